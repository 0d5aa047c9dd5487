package coordinator_test

import (
	"fmt"

	"github.com/cockroachdb/datadriven"

	"github.com/kvactor/kvactor/actors/coordinator"
)

// gate is the SaveGate of a script: it has room for so many pages of each pool, takes none if
// that is negative, and prints how many pages were dropped.
type gate struct {
	pages int
	out   *trace
}

// Room implements coordinator.SaveGate.
func (g *gate) Room(room []int) {
	for p := range room {
		room[p] = g.pages
	}
}

// Dropped implements coordinator.SaveGate.
func (g *gate) Dropped(pages int) { fmt.Fprintf(g.out, "  gate      %d pages dropped\n", pages) }

// saves is the configuration of a store that a script names; nil: there is none. At first
// there is room for 100 pages of each pool.
func (s *script) saves(d *datadriven.TestData) *coordinator.StoreConfig {
	if !d.HasArg("save") {
		return nil
	}
	s.gate = gate{pages: 100, out: &s.out}
	c := &coordinator.StoreConfig{Gate: &s.gate}
	var policy string
	d.ScanArgs(s.t, "save", &policy)
	if policy == "commit" {
		c.Policy = coordinator.SaveOnCommit
	}
	return c
}
