package main

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/cmd/demo/internal/paper"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/cmd/demo/internal/watch"
	"github.com/kvactor/kvactor/windows"
)

// replayFlags are the flags of `demo replay`.
type replayFlags struct {
	pageList, policyList, model      string
	pages                            []int    // of pageList
	policies                         []string // of policyList
	hostPages, tokensPerBlock, limit int
	prefetch                         int    // requests
	prefillDoublesAt                 int    // tokens
	serve                            string // address of the page; empty: none
	watcher                          *watch.Watcher
	jobs                             int
	atomic, timed, json, kernels     bool
	report, png                      string // paths; empty: none
	plot                             bool
}

// defaultPages holds the longest prompt of the published traces in blocks of 16.
const defaultPages = 16384

func replayCommand(profiling *profiling) *cobra.Command {
	var f replayFlags
	c := &cobra.Command{
		Use:   "replay TRACE",
		Short: "Drive the engine with a recorded trace",
		Long: `replay drives the engine with a trace of requests whose blocks have identities:
JSON lines with hash_ids or hash_runs, plain or gzip.

Requests arrive by their timestamps, in the simulated device's time, are batched,
prefilled in chunks, answered token by token and released; answers are stored.
So requests overlap; that is --timed, the default. With --atomic they come one at
a time, in file order, their answers are not stored, and --pages is the capacity
in blocks: the model in which caches are compared. With both flags each policy of
the engine is replayed both ways.

Several policies and several numbers of pages, separated by commas, are replayed
on all cores and compared in a table; with --json each replay is a line. The
engine's policies are
` + strings.Join(windows.EvictionPolicies(), ", ") + `.
With --atomic there is optimal, too, which knows the trace and needs no engine. The
table then tells how much of the way from priority_lru to it the others have gone.

--report writes one file that needs no other: hit rate over time and by tier, hit
rate against capacity, reuse distances, bytes copied each way, where time goes, and
policies beside the optimum. --png and --plot have the same plots as images and on
the terminal.

Pages are real but small (4 bytes a token), unless --model says otherwise, so
that large caches can be replayed. What is reused is checked byte by byte.`,
		Example: `  demo replay mooncake_conversation_h1.jsonl.gz --pages 20000 --atomic --json
  demo replay claude_code_agentic_dev.jsonl.gz --pages 32768 --host-pages 65536
  demo replay trace.jsonl --atomic --policy priority_lru,forecast,optimal --pages 2000,10000
  demo replay trace.jsonl --atomic --timed --policy priority_lru,forecast --pages 2000
  demo replay trace.jsonl --pages 8192 --host-pages 16384 --report out.html
  demo replay trace.jsonl --limit 100 --tokens-per-block 64`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cmp.Or(notZero(c.Flags(), "tokens-per-block"), f.check()); err != nil {
				return statusError{err, statusUsage}
			}
			return profiling.around(c, func() error { return replayTrace(c, args[0], &f) })
		},
	}
	f.add(c.Flags())
	return c
}

// add declares the flags.
func (f *replayFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.pageList, "pages", strconv.Itoa(defaultPages),
		"device `pages` of each pool, or several; with --atomic the blocks that fit")
	flags.IntVar(&f.hostPages, "host-pages", 0, "host `pages` of each pool; 0: no offloading")
	flags.IntVar(&f.tokensPerBlock, "tokens-per-block", 0,
		"`tokens` of a block of the engine (default: the trace's own)")
	flags.IntVar(&f.limit, "limit", 0, "stop after so many `requests`; 0: all")
	flags.StringVar(&f.policyList, "policy", windows.PriorityLRU, "eviction `policy`, or several")
	flags.IntVar(&f.prefillDoublesAt, "prefill-doubles-at", 0,
		"let forecast keep what saves most work, if a token at this depth in `tokens` takes twice as "+
			"long as the first one; 0: most blocks")
	flags.StringVar(&f.model, "model", "tiny",
		"`shape` of the pages: tiny, or hybrid with limited and full attention")
	flags.BoolVar(&f.atomic, "atomic", false, "one request at a time, answers not stored")
	flags.BoolVar(&f.timed, "timed", false,
		"requests overlap, by their arrivals and the time of their answers (default without --atomic)")
	flags.BoolVar(&f.kernels, "kernels", true,
		"write and check the bytes of pages; false, with --atomic: measure calls of the engine alone")
	flags.IntVar(&f.prefetch, "prefetch", 0,
		"prefetch so many of the waiting `requests` before each try to admit, with --timed; 0: none")
	flags.IntVar(&f.jobs, "jobs", runtime.GOMAXPROCS(0),
		"`replays` at the same time; one with --serve")
	flags.StringVar(&f.serve, "serve", "",
		"serve a page, metrics and events of the engine at an `address`, such as :8080, while it runs")
	flags.StringVar(&f.report, "report", "",
		"write a page with plots and their numbers to a `file`.html")
	flags.StringVar(&f.png, "png", "",
		"write the plots as images: to one `path`.png, or one each into a folder")
	flags.BoolVar(&f.plot, "plot", false, "draw the plots on the terminal")
	flags.BoolVar(&f.json, "json", false, "print one JSON object for each replay instead of tables")
}

// check refuses values that no replay can have.
func (f *replayFlags) check() error {
	if err := cmp.Or(
		f.lists(), within("host-pages", f.hostPages, 0, replay.MaxPages),
		atLeast("tokens-per-block", f.tokensPerBlock, 0), atLeast("jobs", f.jobs, 1),
		atLeast("prefill-doubles-at", f.prefillDoublesAt, 0), atLeast("prefetch", f.prefetch, 0),
		atLeast("limit", f.limit, 0),
	); err != nil {
		return err
	}
	switch {
	case f.prefillDoublesAt > 0 && !slices.Contains(f.policies, windows.Forecast):
		return fmt.Errorf("--prefill-doubles-at goes with --policy %s", windows.Forecast)
	case f.prefetch > 0 && f.atomic && !f.timed:
		return fmt.Errorf("--prefetch goes with --timed: with --atomic no request waits")
	case f.plot && f.json:
		return fmt.Errorf("--plot and --json both print; --png and --report write files")
	case f.model != "tiny" && f.model != "hybrid":
		return fmt.Errorf("--model %s is none of tiny, hybrid", f.model)
	case !f.kernels && (f.timed || !f.atomic):
		return fmt.Errorf("--kernels=false goes with --atomic only")
	case f.atomic && f.model != "tiny":
		return fmt.Errorf("--atomic counts the blocks of one pool, so it goes with --model tiny only")
	}
	return nil
}

// lists reads the flags that may list several values.
func (f *replayFlags) lists() error {
	f.pages, f.policies = nil, nil
	for text := range strings.SplitSeq(f.pageList, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("--pages %q: it is not a number", text)
		}
		if err := within("pages", n, 1, replay.MaxPages); err != nil {
			return err
		}
		f.pages = append(f.pages, n)
	}
	for name := range strings.SplitSeq(f.policyList, ",") {
		name = strings.TrimSpace(name)
		if name == paper.Optimal && (!f.atomic || f.hostPages > 0 || f.tokensPerBlock > 0) {
			return fmt.Errorf("--policy %s goes with --atomic, without --host-pages and --tokens-per-block",
				name)
		}
		f.policies = append(f.policies, name)
	}
	return nil
}

// config is one replay that the flags ask for.
func (f *replayFlags) config(path, policy string, pages int) replay.Config {
	preset := engine.Tiny()
	if f.model == "hybrid" {
		preset = engine.Hybrid()
	}
	preset.Model.MaxSeqLen = engine.Tiny().Model.MaxSeqLen
	return replay.Config{
		Trace: path, Model: preset.Model, Windows: preset.Windows, Costs: preset.Costs,
		TokensPerBlock: f.tokensPerBlock, Pages: pages, HostPages: f.hostPages, Policy: policy,
		Limit:    f.limit,
		Prefetch: f.prefetch, PrefillDoublesAt: f.prefillDoublesAt,
		Intervals: f.intervals(), NoKernels: !f.kernels,
	}
}
