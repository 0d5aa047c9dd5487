package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/tree"
)

// treeActor is the shell of the radix tree. The shell outlives a restart, and so does
// the core unless it failed within a change: the coordinator then asks for an empty
// tree with a ListLocations.
type treeActor struct {
	core        *tree.Tree
	renew       func() *tree.Tree
	coordinator *mailbox.Mailbox
	events      *mailbox.Mailbox // nil: events are off
	store       *mailbox.Mailbox // nil: there is no store
	point       failpoint.Point
	// changing is set while a change is under way. It stays set after a panic: then
	// no part of the core can be trusted, and only a ListLocations that empties the
	// tree is served.
	changing bool
}

// Receive serves one message and sends it back. The record is the coordinator's: it is
// lent from the message until the answer, and the core keeps no part of it.
func (a *treeActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	// Also of a broken tree: the coordinator waits for the fences of all actors.
	case *fence:
		a.coordinator.PostUserMessage(m)
	default:
		if !library(m) {
			a.receive(m)
		}
	}
}

func (a *treeActor) receive(message any) {
	a.point.Hit("tree")
	if list, ok := message.(*protocol.ListLocations); a.changing && !(ok && list.EmptyTree) {
		// The record is not sent back: the coordinator is told of the failure by the
		// supervisor, gets its records back by a fence, and asks again.
		return
	}
	switch m := message.(type) {
	case *protocol.Match:
		a.core.Match(m)
	case *protocol.Apply:
		a.changing = true // before the first change, so that a panic in it is seen
		a.point.Change("tree", func() { a.core.Apply(m) })
		a.publish() // before the answer: a reader that asks behind it finds the events
	case *protocol.Forget:
		a.changing = true
		a.point.Change("tree", func() { a.core.Forget(m) })
		a.publish()
	case *protocol.Locate:
		a.core.Locate(m)
	case *protocol.Snapshot:
		a.core.Snapshot(m)
	case *protocol.Contents:
		a.core.Contents(m)
	case *protocol.TopNodes:
		a.core.TopNodes(m)
	case *protocol.ReadTokens:
		a.core.ReadTokens(m)
	case *protocol.Audit:
		m.Problem, m.Attached = a.core.Check(), a.core.Attached()
	case *protocol.ListLocations:
		a.listLocations(m)
	default:
		return
	}
	// Before the answer: on this goroutine the coordinator may go on at once, and send the
	// next message back to this actor.
	a.changing = false
	a.coordinator.PostUserMessage(message)
}

// listLocations lists where each pool keeps each block, of a tree that it has emptied when
// the tree is broken.
func (a *treeActor) listLocations(m *protocol.ListLocations) {
	if m.EmptyTree {
		a.changing = true
		a.core = a.renew()
		// A broken tree cannot list the keys that are gone: readers see a gap.
		if a.events != nil {
			a.events.PostUserMessage(&published{lost: 1})
		}
	}
	a.core.ListLocations(m)
	// The actor that has failed may be the store's, which has forgotten all.
	if a.store != nil {
		all := &protocol.Snapshot{}
		a.core.Snapshot(all)
		a.store.PostUserMessage(&blocksChanged{changes: all.Keys, all: true})
	}
}

// publish sends what the tree has changed, if it records that. The record goes to two actors at
// once: no one changes it from then on.
func (a *treeActor) publish() {
	c := a.core.TakeChanges()
	if c == nil {
		return
	}
	if a.store != nil {
		a.store.PostUserMessage(&blocksChanged{changes: c})
	}
	if a.events != nil {
		a.events.PostUserMessage(&published{changes: c})
	}
}
