package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/group/simgroup"
	"github.com/kvactor/kvactor/messages/inspect"
)

// tables is what the demo prints in the end.
type tables struct {
	command  *cobra.Command
	play     *play
	stats    *inspect.Stats
	stored   *actors.StoreStats // nil: no store
	total    *serve.Totals
	device   time.Duration
	checked  int
	problems []string
}

func (r *tables) print(wall time.Duration) error {
	list := []*report.Table{r.requests(), r.reuse(), r.eviction(), r.waiting(), r.transfers(),
		r.time()}
	if gpu.Ranks(r.play.rig.Device) > 1 {
		list = append(list, r.ranks())
	}
	if r.stored != nil {
		list = append(list, r.store())
	}
	for _, t := range list {
		if err := t.Write(r.command.OutOrStdout()); err != nil {
			return err
		}
	}
	if err := r.storeTimes(wall); err != nil {
		return err
	}
	meter := &r.play.rig.Meter
	if err := printCalls(r.command, replay.CallsOf(meter), meter.Total().Seconds(),
		wall.Seconds()); err != nil {
		return err
	}
	if err := r.picture(); err != nil {
		return err
	}
	fmt.Fprintln(r.command.OutOrStdout())
	return verdict{r.total.VerifiedPages, r.total.WrongPages, int64(r.checked), r.problems}.print(
		r.command.OutOrStdout(), "all right; all invariants hold")
}

// storeTimes says why the modelled times of waiting grow with a store: reads take real time,
// in which the simulated hosts play through more of theirs.
func (r *tables) storeTimes(wall time.Duration) error {
	if r.stored == nil || wall <= 0 {
		return nil
	}
	_, err := fmt.Fprintf(r.command.OutOrStdout(),
		`reads of the store take real time, in which the modelled GPU's passes %.0f times as fast:
the wait for the first token and the whole run say nothing of what a store would cost there
`, float64(r.device)/float64(wall))
	return err
}

func (r *tables) requests() *report.Table {
	t := &report.Table{Title: "requests and tokens", Header: []string{"", "count", "share"}}
	n := r.total
	t.Row("requests answered", report.Count(n.Requests), "")
	t.Row("requests given up", report.Count(n.GivenUp), "")
	t.Row("waits for pages", report.Count(n.Refusals), "")
	t.Row("preemptions", report.Count(n.Preemptions), "")
	t.Row("sequences lost and admitted again", report.Count(n.Lost), "")
	t.Row("prompt tokens", report.Count(n.PromptTokens), "")
	t.Row("of these reused", report.Count(n.ReusedTokens), report.Percent(n.ReusedTokens,
		n.PromptTokens))
	t.Row("computed", report.Count(n.ComputedTokens), report.Percent(n.ComputedTokens, n.PromptTokens))
	t.Row("answer tokens", report.Count(n.AnswerTokens), "")
	t.Row("batched steps", report.Count(n.Steps), "")
	return t
}

// reuse shows the pools and reuse by tier: an onboarded page was reused from host memory.
func (r *tables) reuse() *report.Table {
	t := &report.Table{
		Title:  "pages by pool",
		Header: []string{"pool", "pages", "host", "reused on device", "from host", "in part"},
	}
	for _, p := range r.stats.Pools {
		t.Row(p.Name, report.Count(p.Primary.Total), report.Count(p.Secondary.Total),
			report.Count(max(0, p.ReusedFull-p.Onboarded)), report.Count(p.Onboarded),
			report.Count(p.ReusedPartial))
	}
	return t
}

// eviction shows what became of the pages' contents.
func (r *tables) eviction() *report.Table {
	t := &report.Table{
		Title:  "pages taken, contents evicted for them, and contents lost from both tiers",
		Header: []string{"pool", "taken", "evicted", "offloaded", "lost"},
	}
	for _, p := range r.stats.Pools {
		t.Row(p.Name, report.Count(p.AllocatedPages), report.Count(p.Evicted), report.Count(p.Offloaded),
			report.Count(p.Dropped))
	}
	return t
}

// waiting shows how many of the pages that were taken from contents still to be
// copied to host memory had to wait for that copy, and how many were copied
// before they were needed. Copies are saved where an onboard had left one.
func (r *tables) waiting() *report.Table {
	t := &report.Table{
		Title:  "pages taken from contents that had to be copied to host memory",
		Header: []string{"pool", "taken", "copied ahead", "waited for", "share", "copies saved"},
	}
	for _, p := range r.stats.Pools {
		t.Row(p.Name, report.Count(p.DirtyTakes), report.Count(p.DirtyTakes-p.WaitingTakes),
			report.Count(p.WaitingTakes),
			report.Percent(p.WaitingTakes, p.DirtyTakes), report.Bytes(p.BytesSaved))
	}
	return t
}

// transfers shows what the device's copy engines did.
func (r *tables) transfers() *report.Table {
	t := &report.Table{
		Title:  "copies on the link and on the device",
		Header: []string{"direction", "calls", "pages and parts", "pieces", "bytes", "engine busy"},
	}
	counters := r.play.rig.Sim.Counters()
	for _, row := range []struct {
		direction gpu.Direction
		name      string
	}{{gpu.Offload, "device to host"}, {gpu.Onboard, "host to device"}, {gpu.Local, "on the device"}} {
		n := counters.Directions[row.direction]
		t.Row(row.name, report.Count(n.Calls), report.Count(n.Copies), report.Count(n.Descriptors),
			report.Bytes(n.Bytes), report.Duration(n.Busy))
	}
	return t
}

// ranks shows the share of each device of a group: all do the same copies, each of its own
// bytes.
func (r *tables) ranks() *report.Table {
	t := &report.Table{
		Title:  "the devices of the group",
		Header: []string{"rank", "device to host", "host to device", "on the device", "kernels"},
	}
	for rank, d := range simgroup.Sims(r.play.rig.Sim) {
		n := d.Counters()
		t.Row(fmt.Sprint(rank), report.Bytes(n.Directions[gpu.Offload].Bytes),
			report.Bytes(n.Directions[gpu.Onboard].Bytes),
			report.Bytes(n.Directions[gpu.Local].Bytes), report.Count(n.Kernels))
	}
	return t
}

// store shows what came from the store and went there. The prompt that each host asks
// first finds nothing in an engine that has just begun: what it reuses an earlier process
// has left.
func (r *tables) store() *report.Table {
	t := &report.Table{Title: "the store, beyond the process",
		Header: []string{"", "count", "bytes or share"}}
	n, s := r.total, r.stored
	t.Row("tokens of the hosts' first prompts", report.Count(n.FirstPrompt), "")
	t.Row("of these reused", report.Count(n.FirstReused), report.Percent(n.FirstReused, n.FirstPrompt))
	t.Row("pages read", report.Count(s.FetchedObjects), report.Bytes(s.FetchedBytes))
	t.Row("pages written", report.Count(s.SavedObjects), report.Bytes(s.SavedBytes))
	t.Row("pages not written, for want of room or time", report.Count(s.Dropped), "")
	t.Row("misses", report.Count(s.Misses), "")
	t.Row("objects that were not what was asked for", report.Count(s.Rejected), "")
	t.Row("calls", report.Count(s.Calls), report.Duration(s.CallTime))
	t.Row("of these failed", report.Count(s.Errors), report.Percent(s.Errors, s.Calls))
	return t
}

// time shows what reuse saves, by the model of the device.
func (r *tables) time() *report.Table {
	t := &report.Table{
		Title:  "time on the modelled GPU (" + r.play.preset.Costs.Name + " on one H100)",
		Header: []string{"", "time", "share"},
	}
	n := r.total
	all := n.Prefill + n.Saved
	t.Row("prefill without reuse", report.Duration(all), "")
	t.Row("prefill computed", report.Duration(n.Prefill), report.Percent(n.Prefill.Nanoseconds(),
		all.Nanoseconds()))
	t.Row("prefill saved", report.Duration(n.Saved), report.Percent(n.Saved.Nanoseconds(),
		all.Nanoseconds()))
	if n.Requests > 0 {
		t.Row("mean wait for the first token", report.Duration(n.Wait/time.Duration(n.Requests)), "")
	}
	t.Row("the whole run", report.Duration(r.device), "")
	return t
}

// pictureWidth is that of a narrow terminal, without the names of the pools.
const pictureWidth = 60

// picture draws how full the pools were over the run.
func (r *tables) picture() error {
	out := r.command.OutOrStdout()
	if _, err := fmt.Fprintf(out,
		"\ndevice pages over the run, used and cached, then used alone\n"); err != nil {
		return err
	}
	for i, p := range r.stats.Pools {
		_, err := fmt.Fprintf(out, "%10s %s\n%10s %s\n", p.Name,
			report.Sparkline(r.play.occupied[i], pictureWidth),
			"", report.Sparkline(r.play.used[i], pictureWidth))
		if err != nil {
			return err
		}
	}
	return nil
}

// verdict is what was checked.
type verdict struct {
	verified, wrong, checked int64 // pages
	problems                 []string
}

// print prints the verdict, with what is said where there are no problems.
func (v verdict) print(out io.Writer, right string) error {
	lines := append([]string{fmt.Sprintf("%d problems", len(v.problems))}, v.problems...)
	if len(v.problems) == 0 {
		lines[0] = right
	}
	_, err := fmt.Fprintf(out,
		"%s reused pages were checked byte by byte, %s of them wrong\n%s stored pages at the end: %s\n",
		report.Count(v.verified), report.Count(v.wrong), report.Count(v.checked),
		strings.Join(lines, "\n  "))
	return err
}
