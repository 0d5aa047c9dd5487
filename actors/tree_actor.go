package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/internal/blockkeys"
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
	// follows says that the store's actor gets all changes, and not only what NameBlocks asks
	// for: SaveHostEvict saves pages whose blocks leave the tree in the same round.
	follows bool
	point   failpoint.Point
	// changing is set while a change is under way. It stays set after a panic: then
	// no part of the core can be trusted, and only a ListLocations that empties the
	// tree is served.
	changing bool
	news     *published // that has come back, to be sent again
	// snapshots counts those that the tree has made. An answer of the log to a record from
	// before the last one says nothing of what the log needs now.
	snapshots int
}

// published sends changes to the events actor, which sends the message back when
// it has read them. Lost counts events that cannot be told and came before: the
// tree has lost all it held.
//
//	tree ── changes ──▶ events actor                     no reader reads
//	     ◀─ counted ───                                  the tree counts events from here on
//	coordinator ── read ─▶ tree ── number ─▶ events actor
//	                            ── read ───▶             behind the number
//	tree ── Snapshot ─▶ coordinator ── keys ─▶ tree ── keys ─▶ events actor
//	     ── changes ──▶                                  behind the keys, and listed again
type published struct {
	changes *protocol.Changes // nil: none
	lost    int
	// The events actor sets counted when the log would only count the events of more changes,
	// until a snapshot. snapshots is how many the tree had made when it sent the message.
	counted   bool
	snapshots int
}

// Abort does nothing: no caller waits for the record.
func (*published) Abort(error) {}

// Receive serves one message and sends it back. The record is the coordinator's: it is
// lent from the message until the answer, and the core keeps no part of it.
func (a *treeActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	// Also of a broken tree: the coordinator waits for the fences of all actors.
	case *fence:
		a.coordinator.PostUserMessage(m)
	// Of a broken tree too: its events are counted up to the failure, and the reader need not
	// wait for the recovery.
	case *forward:
		a.publishCount()
		a.events.PostUserMessage(m)
	// The events actor has read the changes; the core fills the same record again.
	case *published:
		a.core.ReturnChanges(m.changes)
		// The store's actor needs the changes, whoever reads events.
		if m.counted && m.snapshots == a.snapshots && !a.follows {
			a.core.CountChanges()
		}
		a.news = m
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
		// A failpoint of a test does a part of the change, so that recovery sees a tree
		// that has broken off.
		if n, breaks := a.point.Within(); breaks {
			failpoint.PanicAfter("tree", func() { a.core.Apply(cutApply(m, n)) })
		}
		a.core.Apply(m)
		a.publish() // before the answer: a reader that asks behind it finds the events
	case *protocol.Forget:
		a.changing = true
		a.core.Forget(m)
		if _, breaks := a.point.Within(); breaks {
			failpoint.Panic("tree")
		}
		a.publish()
	case *protocol.Locate:
		a.core.Locate(m)
	case *protocol.NameBlocks:
		a.core.NameBlocks(m)
		if a.store != nil {
			a.store.PostUserMessage(&blocksChanged{changes: m.Named})
		}
		m.Named = nil // the store's actor has it
	case *protocol.Snapshot:
		// Before snapshots grows: the events actor answers the number, and may answer late.
		a.publishCount()
		a.snapshots++
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
		a.publishCount()
		a.changing = true
		a.core = a.renew()
		// A broken tree cannot list the keys that are gone: readers see a gap.
		if a.events != nil {
			a.events.PostUserMessage(&published{lost: 1})
		}
		if a.store != nil {
			a.store.PostUserMessage(&blocksChanged{})
		}
	}
	a.core.ListLocations(m)
}

// publish sends what the tree has changed, if it records that.
//
// Nothing is sent while the tree only counts: no reader needs the number of events before it asks,
// and a step pays for no message.
func (a *treeActor) publish() {
	if !a.core.CountsChanges() {
		a.send()
	}
}

// publishCount sends how many events a tree that only counts has not told of. It comes before all
// that depends on the numbers of events: requests of readers, a snapshot, and a gap.
func (a *treeActor) publishCount() {
	if a.core.CountsChanges() {
		a.send()
	}
}

// send sends the changes, or their number, since the last ones that were sent.
func (a *treeActor) send() {
	c := a.core.TakeChanges()
	if c == nil {
		return
	}
	// The store's actor gets a copy: one record cannot be lent to two actors, and the core
	// must not wait for the slower of them.
	if a.follows {
		a.store.PostUserMessage(&blocksChanged{changes: blockkeys.Copy(c)})
	}
	if a.events == nil {
		a.core.ReturnChanges(c)
		return
	}
	m := a.news
	if a.news = nil; m == nil {
		m = &published{}
	}
	*m = published{changes: c, snapshots: a.snapshots}
	a.events.PostUserMessage(m)
}

// cutApply returns the first parts of an Apply: what is done before the panic that a
// failpoint asks for.
func cutApply(m *protocol.Apply, parts int) *protocol.Apply {
	c, n := *m, parts
	c.Moves, c.Takeovers, c.Claims = upTo(m.Moves, &n), upTo(m.Takeovers, &n), upTo(m.Claims, &n)
	c.Stores, c.ReleasedSymbols = upTo(m.Stores, &n), upTo(m.ReleasedSymbols, &n)
	return &c
}

// upTo returns the first n of a list, or all, and takes their number from n.
func upTo[T any](list []T, n *int) []T {
	k := min(*n, len(list))
	*n -= k
	return list[:k]
}
