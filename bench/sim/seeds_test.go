package sim

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvactor/kvactor/messages/inspect"
)

var (
	firstSeed = flag.Uint64("seed", 0, "the first seed; 0: TestSeeds is skipped")
	seeds     = flag.Int("seeds", 1, "runs, each with the next seed")
	steps     = flag.Int("steps", 20_000, "steps of each run")
	tries     = flag.Int("shrink", 1500, "runs to spend on making a failure smaller; 0: none")
	lines     = flag.Int("lines", 120, "lines of history to print of a failure")
	keepOn    = flag.Bool("keep-on", false, "go on with the next seed after a failure")
)

// TestSeeds plays the seeds that its flags name.
func TestSeeds(t *testing.T) {
	if *firstSeed == 0 {
		t.Skip("no -seed")
	}
	total, failed := tally{}, 0
	start := time.Now()
	// Who stops it, as after a night, gets the report of what there was until then.
	stopped, forget := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer forget()
	for i := 0; i < *seeds && stopped.Err() == nil; i++ {
		p := plan{seed: *firstSeed + uint64(i), steps: *steps}
		w, err := run(p)
		if w != nil {
			total.addAll(w.counts)
			total.add("steps", w.step+1)
		}
		total.add("seeds", 1)
		if err == nil {
			continue
		}
		failed++
		t.Errorf("seed %d, %d steps: %v", p.seed, p.steps, err)
		if *tries > 0 && w != nil {
			t.Log(explain(shrink(p, w.step, *tries, err), *lines))
		}
		if !*keepOn {
			break
		}
	}
	fmt.Printf("%s%d failures in %v\n", total, failed, time.Since(start).Round(time.Millisecond))
}

// tally counts by name.
type tally map[string]int

func (t tally) add(name string, n int) { t[name] += n }

// addAll adds another tally.
func (t tally) addAll(other tally) {
	for name, n := range other {
		t[name] += n
	}
}

// addStats adds the engine's own counters.
func (t tally) addStats(w *world) {
	m := &inspect.ReadStats{}
	if w.stop(w.serve(m)) {
		return
	}
	t.add("rounds", int(m.Stats.Rounds))
	t.add("recoveries", int(m.Stats.Restarts))
	t.add("admissions served", int(m.Stats.Requests))
	for _, p := range m.Stats.Pools {
		t.add("pages, evicted", int(p.Evicted))
		t.add("pages, offloaded", int(p.Offloaded))
		t.add("pages, dropped", int(p.Dropped))
		t.add("pages, onboarded", int(p.Onboarded))
		t.add("pages, reused whole", int(p.ReusedFull))
		t.add("pages, reused in part", int(p.ReusedPartial))
	}
}

// String lists the counts, one a line.
func (t tally) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintf(&b, "  %-28s %d\n", name, t[name])
	}
	return b.String()
}
