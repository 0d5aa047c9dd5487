package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/windows"
)

// replayFlags are the flags of `demo replay`.
type replayFlags struct {
	pages, hostPages, tokensPerBlock, limit int
	policy, model                           string
	atomic, json                            bool
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
prefilled in chunks, answered and released; answers are stored. With --atomic
they come one at a time, in file order, their answers are not stored, and
--pages is the capacity in blocks: the model in which caches are compared.

Pages are real but small (4 bytes a token), unless --model says otherwise, so
that large caches can be replayed. What is reused is checked byte by byte.`,
		Example: `  demo replay mooncake_conversation_h1.jsonl.gz --pages 20000 --atomic --json
  demo replay claude_code_agentic_dev.jsonl.gz --pages 32768 --host-pages 65536
  demo replay trace.jsonl --limit 100 --tokens-per-block 64`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return statusError{err, statusUsage}
			}
			return profiling.around(c, func() error { return replayTrace(c, args[0], &f) })
		},
	}
	flags := c.Flags()
	flags.IntVar(&f.pages, "pages", defaultPages, "device `pages` of each pool; with --atomic the blocks that fit")
	flags.IntVar(&f.hostPages, "host-pages", 0, "host `pages` of each pool; 0: no offloading")
	flags.IntVar(&f.tokensPerBlock, "tokens-per-block", 0, "`tokens` of a block of the engine (default: the trace's own)")
	flags.IntVar(&f.limit, "limit", 0, "stop after so many `requests`; 0: all")
	flags.StringVar(&f.policy, "policy", windows.PriorityLRU, "eviction policy")
	flags.StringVar(&f.model, "model", "tiny", "shape of the pages: `tiny`, or hybrid with limited and full attention")
	flags.BoolVar(&f.atomic, "atomic", false, "one request at a time, answers not stored")
	flags.BoolVar(&f.json, "json", false, "print one JSON object instead of tables")
	return c
}

// check refuses values that no replay can have.
func (f *replayFlags) check() error {
	switch {
	case f.pages < 1 || f.pages > replay.MaxPages:
		return fmt.Errorf("--pages %d is not within 1 and %d", f.pages, replay.MaxPages)
	case f.hostPages < 0 || f.hostPages > replay.MaxPages:
		return fmt.Errorf("--host-pages %d is not within 0 and %d", f.hostPages, replay.MaxPages)
	case f.tokensPerBlock < 0:
		return fmt.Errorf("--tokens-per-block %d is negative", f.tokensPerBlock)
	case f.limit < 0:
		return fmt.Errorf("--limit %d is negative", f.limit)
	case f.model != "tiny" && f.model != "hybrid":
		return fmt.Errorf("--model %s is none of tiny, hybrid", f.model)
	case f.atomic && f.model != "tiny":
		return fmt.Errorf("--atomic counts the blocks of one pool, so it goes with --model tiny only")
	}
	return nil
}

// config is the replay that the flags ask for.
func (f *replayFlags) config(path string) replay.Config {
	preset := engine.Tiny()
	if f.model == "hybrid" {
		preset = engine.Hybrid()
	}
	preset.Model.MaxSeqLen = engine.Tiny().Model.MaxSeqLen
	return replay.Config{
		Trace: path, Model: preset.Model, Windows: preset.Windows, Costs: preset.Costs,
		TokensPerBlock: f.tokensPerBlock, Pages: f.pages, HostPages: f.hostPages, Policy: f.policy, Limit: f.limit,
	}
}

func replayTrace(c *cobra.Command, path string, f *replayFlags) error {
	total := -1
	if f.limit > 0 {
		total = f.limit
	}
	progress := report.NewProgress(c.ErrOrStderr(), "replay", total)
	note := func(r *replay.Result) string { return report.Percent(r.Hits, r.Blocks) + " of blocks hit" }
	config := f.config(path)
	config.Progress = func(r *replay.Result) { progress.Set(r.Requests, note(r)) }
	kind := replay.Serve
	if f.atomic {
		kind = replay.Atomic
	}
	result, meter, err := kind(c.Context(), config)
	if err != nil {
		return err
	}
	progress.Done(result.Requests, note(result))
	if f.json {
		err = json.NewEncoder(c.OutOrStdout()).Encode(result)
	} else {
		err = printReplay(c, result, meter)
	}
	if err == nil && len(result.Problems) > 0 {
		err = fmt.Errorf("%d problems, the first: %s", len(result.Problems), result.Problems[0])
	}
	return err
}

func printReplay(c *cobra.Command, r *replay.Result, meter *engine.Meter) error {
	t := report.Table{
		Title:  fmt.Sprintf("%s, %s, blocks of %d tokens, %d + %d pages, %s", r.Trace, r.Mode, r.TokensPerBlock, r.Pages, r.HostPages, r.Policy),
		Header: []string{"", "count", "share"},
	}
	t.Row("requests", report.Count(r.Requests), "")
	t.Row("given up", report.Count(r.Refused), report.Percent(r.Refused, r.Requests))
	t.Row("blocks looked up", report.Count(r.Blocks), "")
	t.Row("blocks hit", report.Count(r.Hits), report.Percent(r.Hits, r.Blocks))
	t.Row("prompt tokens", report.Count(r.PromptTokens), "")
	t.Row("tokens reused", report.Count(r.ReusedTokens), report.Percent(r.ReusedTokens, r.PromptTokens))
	t.Row("answer tokens", report.Count(r.AnswerTokens), "")
	t.Row("pages evicted", report.Count(r.EvictedPages), "")
	t.Row("pages offloaded", report.Count(r.OffloadedPages), report.Bytes(r.BytesOffloaded))
	t.Row("pages onboarded", report.Count(r.OnboardedPages), report.Bytes(r.BytesOnboarded))
	t.Row("pages checked", report.Count(r.Verified), fmt.Sprintf("%d wrong", len(r.Problems)))
	t.Row("prefill time saved", fmt.Sprintf("%.0f s", r.SavedSeconds),
		report.Percent(int64(1000*r.SavedSeconds), int64(1000*(r.SavedSeconds+r.PrefillSeconds))))
	if err := t.Write(c.OutOrStdout(), report.Locale()); err != nil {
		return err
	}
	return printTimings(c, meter, time.Duration(r.Seconds*float64(time.Second)))
}

// printTimings prints what the engine's calls took.
func printTimings(c *cobra.Command, meter *engine.Meter, wall time.Duration) error {
	t := report.Table{
		Title:  fmt.Sprintf("engine calls: %s of wall time, summed over hosts, in %s", report.Duration(meter.Total()), report.Duration(wall)),
		Header: []string{"call", "calls", "items", "p50", "p99", "longest", "total"},
	}
	meter.Timings(func(o engine.Operation, m *engine.Timing) {
		t.Row(o, report.Count(m.Calls), report.Count(m.Items), report.Duration(m.Quantile(0.5)),
			report.Duration(m.Quantile(0.99)), report.Duration(m.Max), report.Duration(m.Total))
	})
	return t.Write(c.OutOrStdout(), report.Locale())
}
