package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measureAll(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	traces, cache, python, only string
	rounds                      int
	json                        bool
}

// parse reads the flags.
func parse() (o options) {
	home, _ := os.UserCacheDir()
	flag.StringVar(&o.traces, "traces", "../../../shared/traces", "`folder` of the traces")
	flag.StringVar(&o.cache, "cache", filepath.Join(home, "kvactor-peers"),
		"`folder` for what is installed and built")
	flag.StringVar(&o.python, "python", "python3", "Python 3.10 or later")
	flag.StringVar(&o.only, "peers", "", "`names` of the peers, separated by commas; empty: all")
	flag.IntVar(&o.rounds, "rounds", 3,
		"`times` that each is measured, in turn; the table has medians")
	flag.BoolVar(&o.json, "json", false, "print every measurement as a JSON line instead of the table")
	flag.Parse()
	return o
}

// measureAll measures the peers on all rows and prints what it found.
func measureAll(ctx context.Context) error {
	o := parse()
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.cache, 0o755); err != nil {
		return err
	}
	s := &setup{here: here, cache: o.cache, python: o.python}
	ready, err := s.prepareAll(ctx, o.only)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if _, err := os.Stat(filepath.Join(o.traces, r.Trace)); err != nil {
			fmt.Fprintf(os.Stderr, "%s: skipped: %v\n", r.Trace, err)
			continue
		}
		found, err := s.row(ctx, ready, r, o)
		if err != nil {
			return err
		}
		if !o.json {
			table(os.Stdout, r, ready, found)
		}
	}
	return nil
}

// candidate is a peer that can be measured.
type candidate struct {
	name    string
	command []string
}

// prepareAll prepares the peers that are asked for. One that cannot be had is left out
// with a word, but not this engine, which all are compared with.
func (s *setup) prepareAll(ctx context.Context, only string) (ready []candidate, err error) {
	for i, p := range peers {
		if i > 0 && only != "" && !slices.Contains(strings.Split(only, ","), p.Name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "preparing %s\n", p.Name)
		command, err := p.prepare(ctx, s)
		if err != nil && (i == 0 || ctx.Err() != nil) {
			return nil, err
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: skipped: %v\n", p.Name, err)
			continue
		}
		ready = append(ready, candidate{p.Name, command})
	}
	return ready, nil
}

// priority is the command that gives a process the processor for itself, if the system
// has it and permits it.
func priority() []string {
	if exec.Command("chrt", "-f", "50", "true").Run() != nil {
		return nil
	}
	return []string{"chrt", "-f", "50"}
}

// row measures the peers on a row, in turn, and returns the measurements by peer.
func (s *setup) row(
	ctx context.Context, ready []candidate, r row, o options,
) (map[string][]measurement, error) {
	file := filepath.Join(s.cache, "prompts.bin")
	if err := r.write(o.traces, file); err != nil {
		return nil, err
	}
	found, first := map[string][]measurement{}, priority()
	for round := range o.rounds {
		for _, c := range ready {
			fmt.Fprintf(os.Stderr, "%s: round %d of %d: %s\n", r, round+1, o.rounds, c.name)
			m, err := s.measure(ctx, first, c.command, r, o.traces, file)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			found[c.name] = append(found[c.name], m)
			if o.json {
				if err := json.NewEncoder(os.Stdout).Encode(struct {
					Peer  string `json:"peer"`
					Trace string `json:"trace"`
					Size  int    `json:"tokens_per_block"`
					measurement
				}{c.name, r.Trace, r.Size, m}); err != nil {
					return nil, err
				}
			}
		}
	}
	return found, nil
}

// median is that of the seconds of measurements.
func median(all []measurement) float64 {
	seconds := make([]float64, len(all))
	for i, m := range all {
		seconds[i] = m.Seconds
	}
	slices.Sort(seconds)
	n := len(seconds)
	return (seconds[(n-1)/2] + seconds[n/2]) / 2
}

// table prints the medians of a row.
func table(to io.Writer, r row, ready []candidate, found map[string][]measurement) {
	fmt.Fprintf(to, "\n%s\n", r)
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "peer\tversion\tµs a request\tns a block\tratio\thits\tdifference\t")
	own := found[peers[0].Name]
	for _, c := range ready {
		all := found[c.name]
		m, seconds := all[0], median(all)
		fmt.Fprintf(out, "%s\t%s\t%.1f\t%.0f\t%.2f×\t%d\t%+.1f %%\t\n", c.name, m.Version,
			1e6*seconds/float64(m.Requests), 1e9*seconds/float64(m.Blocks), seconds/median(own),
			m.Hits, 100*float64(m.Hits-own[0].Hits)/float64(max(1, own[0].Hits)))
	}
	out.Flush()
}
