package main

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/demo/internal/fleet"
	"github.com/kvactor/kvactor/cmd/demo/internal/report"
)

// fleetTables is what `demo fleet` prints in the end.
type fleetTables struct {
	command *cobra.Command
	flags   *fleetFlags
	runs    []fleetRun // without a failure
	killed  []fleetRun // of the same variants, with one
}

type fleetRun struct {
	variant variant
	*fleet.Result
}

func (t *fleetTables) add(v variant, r *fleet.Result) {
	if r.Killed < 0 {
		t.runs = append(t.runs, fleetRun{v, r})
	} else {
		t.killed = append(t.killed, fleetRun{v, r})
	}
}

// wrong tells whether anything was wrong with the bytes or with the indexes.
func (t *fleetTables) wrong() bool {
	for _, r := range t.all() {
		if len(r.Problems) > 0 || r.WrongPages > 0 {
			return true
		}
	}
	return false
}

func (t *fleetTables) all() []fleetRun {
	return append(append([]fleetRun(nil), t.runs...), t.killed...)
}

// soFar prints the runs that had ended when a signal came.
func (t *fleetTables) soFar() error {
	if t.command.Context().Err() == nil || t.flags.json || len(t.runs) == 0 {
		return nil
	}
	return t.print()
}

func (t *fleetTables) print() error {
	tables := []*report.Table{t.shared()}
	if len(t.killed) > 0 {
		tables = append(tables, t.failure())
	}
	for _, table := range tables {
		if err := table.Write(t.command.OutOrStdout()); err != nil {
			return err
		}
	}
	return t.verdict()
}

// title says what was replayed and on what.
func (t *fleetTables) title() string {
	f := t.flags
	of := "requests of " + t.runs[0].Trace
	if f.trace == "" {
		of = "generated requests"
	}
	return fmt.Sprintf("%s %s through %d engines;\n"+
		"blocks of %d tokens; each pool holds %s tokens on the device\n"+
		"and %s in host memory; bytes and times are %s's on an H100",
		report.Count(t.runs[0].Requests), of, f.engines, f.blockTokens,
		report.Count(f.deviceTokens), report.Count(f.hostTokens), t.runs[0].Model)
}

// shared compares what the engines share.
func (t *fleetTables) shared() *report.Table {
	table := newFleetTable(t.title(), t.runs)
	table.row("hit rate, prompt tokens", func(r, _ fleetRun) string { return rate(r.HitRate) })
	table.row("prefill tokens computed",
		func(r, _ fleetRun) string { return report.Count(r.ComputedTokens) })
	table.row("prefill tokens saved",
		func(r, _ fleetRun) string { return report.Count(r.ReusedTokens) })
	table.row("prefill time computed", func(r, _ fleetRun) string { return seconds(r.PrefillSeconds) })
	table.row("prefill time saved", func(r, _ fleetRun) string { return seconds(r.SavedSeconds) })
	table.row("waits for the store", func(r, _ fleetRun) string { return seconds(r.FetchSeconds) })
	table.row("read from the store",
		func(r, _ fleetRun) string { return report.Bytes(r.StoreReadBytes) })
	table.row("written to the store",
		func(r, _ fleetRun) string { return report.Bytes(r.StoreWrittenBytes) })
	table.row("first token after, mean",
		func(r, _ fleetRun) string { return fmt.Sprintf("%.2f s", r.FirstSeconds) })
	return &table.Table
}

// failure says what a killed engine has cost: against the same requests before it, and
// against those behind in the run without a failure.
func (t *fleetTables) failure() *report.Table {
	table := newFleetTable(fmt.Sprintf("one of the %d is killed after %s requests", t.flags.engines,
		report.Count(t.flags.requests/2)), t.killed)
	table.without = t.runs
	table.row("cached pages that it had", func(r, _ fleetRun) string {
		return report.Count(r.LostBlocks)
	})
	table.row("requests sent again", func(r, _ fleetRun) string { return report.Count(r.Retried) })
	table.row("hit rate of these", func(r, _ fleetRun) string { return rate(r.Again.HitRate) })
	table.row("hit rate before it", func(r, _ fleetRun) string { return rate(r.Before.HitRate) })
	table.row("hit rate after it", func(r, _ fleetRun) string { return rate(r.After.HitRate) })
	table.row("hit rate after it, no failure",
		func(_, w fleetRun) string { return rate(w.After.HitRate) })
	table.row("prefill tokens more",
		func(r, w fleetRun) string { return report.Count(r.ComputedTokens - w.ComputedTokens) })
	table.row("prefill time more",
		func(r, w fleetRun) string { return seconds(r.PrefillSeconds - w.PrefillSeconds) })
	table.row("first token after, mean",
		func(r, _ fleetRun) string { return fmt.Sprintf("%.2f s", r.FirstSeconds) })
	table.row("first token, no failure",
		func(_, w fleetRun) string { return fmt.Sprintf("%.2f s", w.FirstSeconds) })
	return &table.Table
}

// fleetTable has a column for each run.
type fleetTable struct {
	report.Table
	runs    []fleetRun
	without []fleetRun // the runs of the same variants without a failure
}

func newFleetTable(title string, runs []fleetRun) *fleetTable {
	t := &fleetTable{Table: report.Table{Title: title, Header: []string{"shared by the engines"}},
		runs: runs, without: runs}
	for _, r := range runs {
		t.Header = append(t.Header, r.variant.column)
	}
	return t
}

// row adds a row of what a run and its like without a failure give.
func (t *fleetTable) row(name string, value func(run, without fleetRun) string) {
	cells := []any{name}
	for i := range t.runs {
		cells = append(cells, value(t.runs[i], t.without[i]))
	}
	t.Row(cells...)
}

func rate(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// seconds has a digit behind the point where it says something.
func seconds(s float64) string {
	if math.Abs(s) < 10 {
		return fmt.Sprintf("%.1f s", s)
	}
	return fmt.Sprintf("%.0f s", s)
}

// verdict says what was checked.
func (t *fleetTables) verdict() error {
	var v verdict
	events, answered, givenUp := 0, 0, 0
	for _, r := range t.all() {
		v.verified, v.wrong = v.verified+r.VerifiedPages, v.wrong+r.WrongPages
		v.checked, v.problems = v.checked+r.CheckedPages, append(v.problems, r.Problems...)
		events, answered, givenUp = events+r.Events, answered+r.Answered, givenUp+r.GivenUp
	}
	out := t.command.OutOrStdout()
	if _, err := fmt.Fprintf(out,
		"\n%s answers, %s requests too large for an engine; %s events followed\n",
		report.Count(answered), report.Count(givenUp), report.Count(events)); err != nil {
		return err
	}
	return v.print(out, "all right, and the router knew all of them")
}
