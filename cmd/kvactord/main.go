// Command kvactord runs a KV cache engine for processes of the same machine: they map its
// memory, and ask it over a Unix socket which pages hold what. docs/kvactord.md describes it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/internal/commandline"
	"github.com/kvactor/kvactor/cmd/kvactord/internal/daemon"
	_ "github.com/kvactor/kvactor/pool/evict/published" // its policies
)

// Exit statuses.
const (
	statusFailed = 1 // the daemon failed
	statusUsage  = 2 // the command line or the configuration is wrong
)

func main() {
	commandline.Main(func(ctx context.Context, args []string) int {
		return run(ctx, args, os.Stdout, os.Stderr)
	})
}

// run runs a command line and gives its exit status. Errors are one line.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	c := command(errs)
	c.SetArgs(args)
	c.SetOut(out)
	c.SetErr(errs)
	err := c.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(errs, "kvactord: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	var failed failedError
	if errors.As(err, &failed) {
		return statusFailed
	}
	return statusUsage
}

// failedError is an error of a daemon that has started.
type failedError struct{ error }

// command is the command line.
func command(errs io.Writer) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "kvactord --socket PATH --memory SIZE",
		Short: "Run a KV cache engine for other processes of this machine",
		Long: `kvactord runs a KV cache engine for inference servers in any language. Clients open a
session over the Unix socket, map the memory of its pages, and ask which pages hold what
of a prompt, and where to write what they have computed.

The socket is the user's alone. Memory that is mapped can be read as a whole by every client:
see docs/kvactord.md for tenants that must not.`,
		Example: `  kvactord --socket /run/user/1000/kvactord.sock --memory 8GiB
  kvactord --socket kv.sock --memory 8GiB --store file:///var/cache/kv --metrics :9400`,
		Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error {
			config, closeStore, err := f.read(c.Context(), errs)
			if err != nil {
				return err
			}
			d, err := daemon.Open(config)
			if err != nil {
				return errors.Join(err, closeStore())
			}
			if a := d.Addr(); a != nil {
				fmt.Fprintf(c.ErrOrStderr(),
					"kvactord: serves %s as well: any user of this machine can connect\n", a)
			}
			if a := d.Page(); a != nil {
				fmt.Fprintf(c.ErrOrStderr(), "kvactord: the page of the cache is at http://%s/\n", a)
			}
			fmt.Fprintf(c.ErrOrStderr(), "kvactord: ready at %s\n", config.Socket)
			if err := errors.Join(d.Serve(c.Context()), closeStore()); err != nil {
				return failedError{err}
			}
			return nil
		},
	}
	commandline.Prepare(c)
	f.add(c.Flags())
	return c
}
