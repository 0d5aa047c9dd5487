package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/demo/internal/paper"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/windows"
)

// printComparison prints a row for each replay. The share is of the way from priority_lru
// to optimal with as many pages, where both were replayed one request at a time.
func printComparison(c *cobra.Command, results []*replay.Result) error {
	type key struct {
		mode, policy string
		pages        int
	}
	rate, modes := map[key]float64{}, map[string]bool{}
	for _, r := range results {
		rate[key{r.Mode, r.Policy, r.Pages}] = r.HitRate
		modes[r.Mode] = true
	}
	t := report.Table{
		Title:  fmt.Sprintf("%s, blocks of %d tokens", results[0].Trace, results[0].TokensPerBlock),
		Header: []string{"policy", "mode", "pages", "blocks hit", "rate", "to optimal", "prefill saved"},
	}
	for _, r := range results {
		share, saved := "", ""
		lru, known := rate[key{r.Mode, windows.PriorityLRU, r.Pages}]
		if best, ok := rate[key{r.Mode, paper.Optimal, r.Pages}]; ok && known && best > lru {
			share = fmt.Sprintf("%.1f %%", 100*(r.HitRate-lru)/(best-lru))
		}
		if r.SavedSeconds > 0 {
			saved = fmt.Sprintf("%.0f s", r.SavedSeconds)
		}
		t.Row(r.Policy, r.Mode, report.Count(r.Pages), report.Count(r.Hits),
			fmt.Sprintf("%.2f %%", 100*r.HitRate), share, saved)
	}
	if err := t.Write(c.OutOrStdout()); err != nil {
		return err
	}
	if !modes[replay.ModeTimed] {
		return nil
	}
	_, err := fmt.Fprintln(c.OutOrStdout(), timedNote)
	return err
}

// timedNote says why timed replays hit other blocks than atomic ones.
const timedNote = `timed: requests overlap. A request cannot hit what one before it has not computed yet,
running requests hold pages that cannot be evicted, and answers are stored, too.`

func printReplay(c *cobra.Command, r *replay.Result) error {
	t := report.Table{
		Title: fmt.Sprintf("%s, %s,\nblocks of %d tokens, %d + %d pages, %s", r.Trace, r.Mode,
			r.TokensPerBlock, r.Pages, r.HostPages, r.Policy),
		Header: []string{"", "count", "share"},
	}
	t.Row("requests", report.Count(r.Requests), "")
	t.Row("given up", report.Count(r.Refused), report.Percent(r.Refused, r.Requests))
	t.Row("blocks looked up", report.Count(r.Blocks), "")
	t.Row("blocks hit", report.Count(r.Hits), report.Percent(r.Hits, r.Blocks))
	t.Row("prompt tokens", report.Count(r.PromptTokens), "")
	t.Row("tokens reused", report.Count(r.ReusedTokens), report.Percent(r.ReusedTokens,
		r.PromptTokens))
	t.Row("tokens evicted and asked for again", report.Count(r.ThrashTokens),
		report.Percent(r.ThrashTokens, r.EnginePromptTokens))
	t.Row("answer tokens", report.Count(r.AnswerTokens), "")
	t.Row("pages evicted", report.Count(r.EvictedPages), "")
	t.Row("pages offloaded", report.Count(r.OffloadedPages), report.Bytes(r.BytesOffloaded))
	t.Row("pages onboarded", report.Count(r.OnboardedPages), report.Bytes(r.BytesOnboarded))
	t.Row("pages checked", report.Count(r.Verified), fmt.Sprintf("%d wrong", len(r.Problems)))
	t.Row("prefill time saved", fmt.Sprintf("%.0f s", r.SavedSeconds),
		report.Percent(int64(1000*r.SavedSeconds), int64(1000*(r.SavedSeconds+r.PrefillSeconds))))
	if err := t.Write(c.OutOrStdout()); err != nil {
		return err
	}
	if _, err := fmt.Fprint(c.OutOrStdout(), thrashNote(r)); err != nil {
		return err
	}
	return printCalls(c, r.Calls, r.EngineSeconds, r.Seconds)
}

// thrashNote says what helps where a tenth of the prompt tokens had been evicted a short while
// before.
func thrashNote(r *replay.Result) string {
	if r.ThrashTokens*10 < r.EnginePromptTokens || r.ThrashTokens == 0 {
		return ""
	}
	help := "more --pages or --host-pages"
	if r.Policy != windows.Forecast {
		help = "--policy forecast, or " + help
	}
	return "The cache is too small for what is asked for again: try " + help + ".\n"
}

// printCalls prints what the engine's calls took: all of them, in so many seconds.
func printCalls(c *cobra.Command, calls []replay.Calls, total, wall float64) error {
	duration := func(seconds float64) string {
		return report.Duration(time.Duration(seconds * float64(time.Second)))
	}
	t := report.Table{
		Title: fmt.Sprintf("engine calls: %s of wall time, summed over hosts, in %s", duration(total),
			duration(wall)),
		Header: []string{"call", "calls", "items", "p50", "p99", "longest", "total"},
	}
	for _, k := range calls {
		t.Row(k.Call, report.Count(k.Calls), report.Count(k.Items), duration(k.P50), duration(k.P99),
			duration(k.Max), duration(k.Seconds))
	}
	return t.Write(c.OutOrStdout())
}
