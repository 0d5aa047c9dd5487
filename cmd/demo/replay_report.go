package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kvactor/kvactor/cmd/demo/internal/charts"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay/page"
	"github.com/kvactor/kvactor/cmd/internal/commandline"
)

// reportIntervals is how many parts of the time a report has, about as many as a plot can show.
const reportIntervals = 60

// reports tells whether any kind of report is wanted.
func (f *replayFlags) reports() bool { return f.report != "" || f.png != "" || f.plot }

// checkOutputs refuses, before anything is replayed, files that could not be written.
func (f *replayFlags) checkOutputs() error {
	if f.png != "" && !strings.HasSuffix(f.png, ".png") {
		if info, err := os.Stat(f.png); err == nil && !info.IsDir() ||
			err != nil && filepath.Ext(f.png) != "" {
			return fmt.Errorf("--png %s is neither a folder nor a file.png", f.png)
		}
		if err := os.MkdirAll(f.png, 0o755); err != nil {
			return fmt.Errorf("--png: %w", err)
		}
	} else if err := writable(f.png); err != nil {
		return fmt.Errorf("--png: %w", err)
	}
	if err := writable(f.report); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

// writable opens a file for writing without changing it; "" is none.
func writable(path string) error {
	if path == "" {
		return nil
	}
	_, missing := os.Stat(path)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	err = file.Close()
	if missing != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// intervals is how many parts of the time each replay has.
func (f *replayFlags) intervals() int {
	if f.reports() {
		return reportIntervals
	}
	return 0
}

// writeReports writes the page, the images and the plots on the terminal.
func (f *replayFlags) writeReports(
	c *cobra.Command, path string, t *replay.Trace, results []*replay.Result,
) error {
	origin := page.Origin{
		Command: commandLine(c, path), Version: commandline.Version(),
		Date: time.Now().UTC().Format(time.RFC3339),
		Machine: fmt.Sprintf("%s, %s/%s, %d cores", runtime.Version(), runtime.GOOS, runtime.GOARCH,
			runtime.NumCPU()),
	}
	data, err := page.Gather(c.Context(), origin, filepath.Base(path), t, results)
	if err != nil {
		return err
	}
	if f.plot {
		for _, chart := range data.Charts() {
			if err := chart.Terminal(c.OutOrStdout()); err != nil {
				return err
			}
		}
	}
	if f.png != "" {
		if err := writeImages(f.png, data.Charts()); err != nil {
			return err
		}
	}
	if f.report == "" {
		return nil
	}
	return writeFile(f.report, data.Write)
}

// writeImages writes one image of all charts if the path is that of an image, else one image
// for each chart into a folder.
func writeImages(path string, list []*charts.Chart) error {
	if strings.HasSuffix(path, ".png") {
		return writeFile(path, func(w io.Writer) error { return charts.Sheet(w, list) })
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	for _, c := range list {
		if err := writeFile(filepath.Join(path, c.Name+".png"), c.PNG); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file. The first error is that of the file.
func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	err = write(file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// commandLine is the command as it can be typed again: the flags that were set, in the order
// of their names.
func commandLine(c *cobra.Command, args ...string) string {
	words := strings.Fields(c.CommandPath())
	words = append(words, args...)
	c.Flags().Visit(func(flag *pflag.Flag) {
		switch value := flag.Value.String(); {
		case flag.Value.Type() == "bool" && value == "true":
			words = append(words, "--"+flag.Name)
		default:
			words = append(words, "--"+flag.Name, value)
		}
	})
	for i, word := range words {
		if word == "" || strings.ContainsAny(word, " \t\"'\\$&|;<>()*?`") {
			words[i] = strconv.Quote(word)
		}
	}
	return strings.Join(words, " ")
}
