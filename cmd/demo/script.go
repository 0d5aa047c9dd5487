package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/demo/internal/live"
	"github.com/kvactor/kvactor/cmd/demo/internal/script"
)

func scriptCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "script [FILE]",
		Short: "Drive the engine with a file of requests",
		Long: `script reads requests, one JSON object a line, from FILE, or from standard input
without FILE or with -, and answers each with one line of JSON. The exit status
is 0 when the input was read to its end, 2 when it could not be read.

docs/script.md lists the requests and their fields.`,
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

func runScript(in io.Reader, out io.Writer) error { return script.Run(in, out, live.Open) }
