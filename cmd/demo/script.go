package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/cmd/demo/internal/script"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/host"
)

func scriptCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "script [FILE]",
		Short: "Drive the engine with a file of requests",
		Long: `script reads requests, one JSON object a line, from FILE, or from standard input
without FILE or with -, and answers each with one line of JSON. The exit status
is 0 when the input was read to its end, 2 when it could not be read.`,
		Example: `  demo script requests.jsonl
  echo '{"op":"close"}' | demo script`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			in := c.InOrStdin()
			if len(args) == 1 && args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return statusError{err, statusUsage}
				}
				defer file.Close()
				in = file
			}
			if err := runScript(in, c.OutOrStdout()); err != nil {
				return statusError{err, statusUsage}
			}
			return nil
		},
	}
}

func runScript(in io.Reader, out io.Writer) error { return script.Run(in, out, openScript) }

// openScript starts the engine of a script: watched, on the script's own clock.
func openScript(s script.Setup) (*script.Rig, error) {
	ctx := context.Background()
	rig, err := engine.Open(engine.Options{
		Model: s.Model, Cache: s.Cache, Pages: s.Pages, DeviceMemory: s.DeviceMemory,
		Seed: s.Seed, Watch: engine.Watched, Clock: s.Clock.Now,
	})
	if err != nil {
		return nil, err
	}
	compute, err := rig.Device.NewStream("compute")
	if err != nil {
		return nil, err
	}
	bytes, err := rig.PageBytes(ctx)
	if err != nil {
		return nil, err
	}
	whole, ok := rig.Engine.(script.Engine)
	if !ok {
		return nil, errors.New("the engine cannot do all that scripts ask for")
	}
	return &script.Rig{
		Engine: whole, Launcher: rig.Launcher, Compute: compute, Pools: rig.DevicePools, Mode: host.Whole,
		Drain:      func(context.Context) error { rig.Sim.Drain(); return nil },
		Bytes:      bytes,
		Hazards:    rig.Hazards,
		FailCopies: func(d gpu.Direction, n int) error { rig.Sim.Fail(d, n); return nil },
		Close:      rig.Stop,
	}, nil
}
