// Command demo shows the cache engine at work. Without a command it plays a few
// hundred conversations through a server. `demo replay` drives the engine with a
// recorded trace, `demo script` with a file of requests; `demo model` runs a language
// model over the engine's pages, `demo chat` talks with one, `demo serve` serves one over
// HTTP, and `demo plan` says what a model's cache takes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pkg/profile"
	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/internal/commandline"
	_ "github.com/kvactor/kvactor/pool/evict/published" // its policies
)

// Exit statuses.
const (
	statusFailed = 1 // the work failed, or found something wrong
	statusUsage  = 2 // the command line is wrong, or the script could not be read

	statusInterrupted = 130 // a signal came, as shells report it
)

// statusError is an error with the exit status that it means.
type statusError struct {
	error
	status int
}

// Unwrap gives the error without the status.
func (e statusError) Unwrap() error { return e.error }

func main() {
	commandline.Main(func(ctx context.Context, args []string) int {
		return run(ctx, args, os.Stdin, os.Stdout, os.Stderr)
	})
}

// run runs a command line and gives its exit status. Errors are one line.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(&untilDone{ctx, in})
	root.SetOut(out)
	root.SetErr(errs)
	started := false
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		started = true
		return nil
	}
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil && (errors.Is(err, errInterrupted) || errors.Is(err, context.Canceled)):
		fmt.Fprintln(errs, "demo: interrupted")
		return statusInterrupted
	}
	fmt.Fprintf(errs, "demo: %s\n", oneLine(err))
	var known statusError
	switch {
	case errors.As(err, &known):
		return known.status
	case !started:
		return statusUsage
	}
	return statusFailed
}

// oneLine joins the lines of an error that has several causes.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func rootCommand() *cobra.Command {
	var profiling profiling
	root := converseCommand(&profiling)
	root.Use = "demo"
	root.SilenceUsage, root.SilenceErrors = true, true
	root.Example = `  demo
  demo --conversations 600 --hosts 2
  demo --profile cpu --profile-dir /tmp
  demo replay trace.jsonl.gz --pages 20000 --atomic
  demo script cmd/demo/testdata/readme.jsonl`
	commandline.Prepare(root)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(converseCommand(&profiling), replayCommand(&profiling), scriptCommand(),
		modelCommand(), planCommand(), chatCommand(), serveCommand(), fleetCommand(), handoverCommand())
	return root
}

// converseCommand plays conversations: the command converse, and what demo does without
// a command.
func converseCommand(profiling *profiling) *cobra.Command {
	var conversations conversationFlags
	c := &cobra.Command{
		Use:   "converse",
		Short: "Show the cache engine at work on a simulated GPU",
		Long: `demo plays a few hundred conversations, over a handful of assistants with long
system prompts, through hosts that batch their requests and share one cache
engine. Every page has real bytes; everything that is reused is checked.

The device is simulated: its times are those of a GPU's link and of a model's
arithmetic, the engine's own times are measured.

Then it plays chats with a real model, a tiny one, whose attention reads the pages:
with reuse, drafts and too few pages, and again without any of it. Every token of
every answer has to be the same.

With --store both keep what they compute beyond the process: run twice, the second
time reuses from its first request on.`,
		Example: `  demo converse --conversations 60 --chats 20 --store file:///tmp/kv`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return profiling.around(c, func() error { return converse(c, &conversations) })
		},
	}
	profiling.flags(c)
	conversations.flags(c)
	return c
}

// profiling is what the profile flags ask for.
type profiling struct {
	kind      string
	directory string
}

// flags adds the flags to a command and those below it.
func (p *profiling) flags(c *cobra.Command) {
	c.PersistentFlags().StringVar(&p.kind, "profile", "",
		"record a `profile`: cpu, mem, mutex or trace")
	c.PersistentFlags().StringVar(&p.directory, "profile-dir", ".",
		"`directory` that the profile is written to")
}

// around runs a command under the profile that was asked for.
func (p *profiling) around(c *cobra.Command, run func() error) error {
	if p.kind == "" {
		return run()
	}
	kinds := map[string]func(*profile.Profile){
		"cpu": profile.CPUProfile, "mem": profile.MemProfile,
		"mutex": profile.MutexProfile, "trace": profile.TraceProfile,
	}
	names := map[string]string{"cpu": "cpu.pprof", "mem": "mem.pprof", "mutex": "mutex.pprof",
		"trace": "trace.out"}
	kind := kinds[p.kind]
	if kind == nil {
		return statusError{fmt.Errorf("--profile %s is none of cpu, mem, mutex, trace", p.kind),
			statusUsage}
	}
	recording := profile.Start(kind, profile.ProfilePath(p.directory), profile.Quiet,
		profile.NoShutdownHook)
	defer func() {
		recording.Stop()
		fmt.Fprintf(c.ErrOrStderr(), "the profile is in %s/%s\n", p.directory, names[p.kind])
	}()
	return run()
}
