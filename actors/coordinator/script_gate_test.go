package coordinator_test

import (
	"fmt"

	"github.com/cockroachdb/datadriven"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/messages"
)

// gate is the SaveGate of a script: it has room for the pages of the first pools, and prints
// how many pages were not looked for or found no room.
type gate struct {
	open int // pools
	out  *trace
}

// Room implements coordinator.SaveGate.
func (g *gate) Room(room []bool) {
	for p := range room {
		room[p] = p < g.open
	}
}

// Dropped implements coordinator.SaveGate.
func (g *gate) Dropped(pages int) { fmt.Fprintf(g.out, "  gate      %d pages dropped\n", pages) }

// saves is the configuration of a store that a script names; nil: there is none. At first
// there is room for the pages of all pools.
func (s *script) saves(d *datadriven.TestData) *coordinator.StoreConfig {
	if !d.HasArg("save") {
		return nil
	}
	s.gate = gate{open: 100, out: &s.out}
	c := &coordinator.StoreConfig{MinPriority: messages.Priority(s.number(d, "least", 0)), Gate: &s.gate}
	var policy string
	d.ScanArgs(s.t, "save", &policy)
	if policy == "commit" {
		c.Policy = coordinator.SaveOnCommit
	}
	return c
}
