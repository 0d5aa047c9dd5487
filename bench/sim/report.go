package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/messages/inspect"
)

// tally counts by name.
type tally map[string]int

func (t tally) add(name string, n int) { t[name] += n }

// join adds another tally.
func (t tally) join(other tally) {
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
