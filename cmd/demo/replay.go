package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/cmd/demo/internal/watch"
	"github.com/kvactor/kvactor/windows"
)

// replayFlags are the flags of `demo replay`.
type replayFlags struct {
	pageList, policyList, model      string
	pages                            []int    // of pageList
	policies                         []string // of policyList
	hostPages, tokensPerBlock, limit int
	serve                            string // address of the page; empty: none
	watcher                          *watch.Watcher
	atomic, json                     bool
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

Several policies and several numbers of pages, separated by commas, are replayed
one after the other and compared in a table; with --json each replay is a line.
Beside the engine's own policies there are some on paper, with --atomic only:
` + strings.Join(replay.OfflineNames(), ", ") + `; with optimal among them the table tells
how much of the way from priority_lru to it the others have gone.

Pages are real but small (4 bytes a token), unless --model says otherwise, so
that large caches can be replayed. What is reused is checked byte by byte.`,
		Example: `  demo replay mooncake_conversation_h1.jsonl.gz --pages 20000 --atomic --json
  demo replay claude_code_agentic_dev.jsonl.gz --pages 32768 --host-pages 65536
  demo replay trace.jsonl --atomic --policy priority_lru,forecast,optimal --pages 2000,10000
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
	flags.StringVar(&f.pageList, "pages", strconv.Itoa(defaultPages), "device `pages` of each pool, or several; with --atomic the blocks that fit")
	flags.IntVar(&f.hostPages, "host-pages", 0, "host `pages` of each pool; 0: no offloading")
	flags.IntVar(&f.tokensPerBlock, "tokens-per-block", 0, "`tokens` of a block of the engine (default: the trace's own)")
	flags.IntVar(&f.limit, "limit", 0, "stop after so many `requests`; 0: all")
	flags.StringVar(&f.policyList, "policy", windows.PriorityLRU, "eviction `policy`, or several")
	flags.StringVar(&f.model, "model", "tiny", "shape of the pages: `tiny`, or hybrid with limited and full attention")
	flags.BoolVar(&f.atomic, "atomic", false, "one request at a time, answers not stored")
	flags.StringVar(&f.serve, "serve", "", "serve a page, metrics and events of the engine at an `address`, such as :8080, while it runs")
	flags.BoolVar(&f.json, "json", false, "print one JSON object for each replay instead of tables")
	return c
}

// check refuses values that no replay can have.
func (f *replayFlags) check() error {
	if err := f.lists(); err != nil {
		return err
	}
	switch {
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

// lists reads the flags that may list several values.
func (f *replayFlags) lists() error {
	f.pages, f.policies = nil, nil
	for text := range strings.SplitSeq(f.pageList, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("invalid argument %q for --pages: not a number", text)
		}
		if n < 1 || n > replay.MaxPages {
			return fmt.Errorf("--pages %d is not within 1 and %d", n, replay.MaxPages)
		}
		f.pages = append(f.pages, n)
	}
	for name := range strings.SplitSeq(f.policyList, ",") {
		name = strings.TrimSpace(name)
		if replay.Offline(name) && (!f.atomic || f.hostPages > 0 || f.tokensPerBlock > 0) {
			return fmt.Errorf("--policy %s goes with --atomic, without --host-pages and --tokens-per-block", name)
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
		TokensPerBlock: f.tokensPerBlock, Pages: pages, HostPages: f.hostPages, Policy: policy, Limit: f.limit,
	}
}

// replayTrace runs every policy with every number of pages.
func replayTrace(c *cobra.Command, path string, f *replayFlags) error {
	if f.serve != "" {
		w, err := watch.Start(f.serve, "replay of "+filepath.Base(path), c.ErrOrStderr())
		if err != nil {
			return err
		}
		defer w.Close()
		f.watcher = w
	}
	var results []*replay.Result
	for _, pages := range f.pages {
		for _, policy := range f.policies {
			result, meter, err := replayOnce(c, f, f.config(path, policy, pages))
			if err != nil {
				return err
			}
			results = append(results, result)
			switch {
			case f.json:
				err = json.NewEncoder(c.OutOrStdout()).Encode(result)
			case meter != nil && len(f.pages)*len(f.policies) == 1:
				err = printReplay(c, result, meter)
			}
			if err != nil {
				return err
			}
			if len(result.Problems) > 0 {
				return fmt.Errorf("%d problems, the first: %s", len(result.Problems), result.Problems[0])
			}
		}
	}
	if f.json || len(results) == 1 && !replay.Offline(f.policies[0]) {
		return nil
	}
	return printComparison(c, results)
}

// replayOnce runs one replay and shows its progress. A policy on paper has no meter.
func replayOnce(c *cobra.Command, f *replayFlags, config replay.Config) (*replay.Result, *engine.Meter, error) {
	total := -1
	if f.limit > 0 {
		total = f.limit
	}
	label := "replay"
	if len(f.policies)*len(f.pages) > 1 {
		label = fmt.Sprintf("replay of %s with %d pages", config.Policy, config.Pages)
	}
	progress := report.NewProgress(c.ErrOrStderr(), label, total)
	note := func(r *replay.Result) string { return report.Percent(r.Hits, r.Blocks) + " of blocks hit" }
	config.Progress = func(r *replay.Result) { progress.Set(r.Requests, note(r)) }
	if f.watcher != nil {
		config.Spawn = f.watcher.Spawn
	}
	kind := replay.Serve
	switch {
	case replay.Offline(config.Policy):
		kind = func(ctx context.Context, c replay.Config) (*replay.Result, *engine.Meter, error) {
			r, err := replay.Paper(ctx, c)
			return r, nil, err
		}
	case f.atomic:
		kind = replay.Atomic
	}
	result, meter, err := kind(c.Context(), config)
	if err == nil {
		progress.Done(result.Requests, note(result))
	}
	return result, meter, err
}

// printComparison prints a row for each replay. The share is of the way from priority_lru
// to optimal with as many pages, where both were replayed.
func printComparison(c *cobra.Command, results []*replay.Result) error {
	rate := map[string]float64{}
	key := func(policy string, pages int) string { return fmt.Sprint(policy, pages) }
	for _, r := range results {
		rate[key(r.Policy, r.Pages)] = r.HitRate
	}
	t := report.Table{
		Title:  fmt.Sprintf("%s, %s, blocks of %d tokens", results[0].Trace, results[0].Mode, results[0].TokensPerBlock),
		Header: []string{"policy", "pages", "blocks hit", "rate", "of the gap", "prefill saved"},
	}
	for _, r := range results {
		share, saved := "", ""
		lru, known := rate[key(windows.PriorityLRU, r.Pages)]
		if best, ok := rate[key(replay.Optimal, r.Pages)]; ok && known && best > lru {
			share = fmt.Sprintf("%.1f %%", 100*(r.HitRate-lru)/(best-lru))
		}
		if r.SavedSeconds > 0 {
			saved = fmt.Sprintf("%.0f s", r.SavedSeconds)
		}
		t.Row(r.Policy, report.Count(r.Pages), report.Count(r.Hits), fmt.Sprintf("%.4f", r.HitRate), share, saved)
	}
	return t.Write(c.OutOrStdout(), report.Locale())
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
