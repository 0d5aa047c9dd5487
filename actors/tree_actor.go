package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/tree"
)

// treeActor is the shell of the radix tree. It outlives a restart, and with it
// the core, unless that failed in the middle of a change.
type treeActor struct {
	core        *tree.Tree
	renew       func() *tree.Tree
	coordinator *mailbox.Mailbox
	events      *mailbox.Mailbox
	first       messages.PoolID        // of the tree's pools, as events number them
	adapt       func([]protocol.Event) // of an encoder's tree: what it tells becomes what readers hear
	point       failpoint.Point
	changing    bool // a change is under way: after a panic nothing here can be trusted
}

// published hands events to the events actor, which owns them from then on. Lost
// are those that nobody can tell any more, and that came before: the tree has lost
// all it held.
type published struct {
	events []protocol.Event
	gone   []*protocol.Naming // that the tree has no block of after these events
	lost   int
	first  messages.PoolID // of the tree
}

// spent gives tokens back that the tree has handed out with events.
type spent struct{ tokens [][]messages.Token }

// Abort has nobody to tell.
func (*spent) Abort(error) {}

// Receive serves one message and sends it back.
func (a *treeActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *fence:
		a.coordinator.PostUserMessage(m)
	case *spent:
		a.core.Restock(m.tokens)
	default:
		if !library(m) {
			a.receive(m)
		}
	}
}

func (a *treeActor) receive(message any) {
	a.point.Hit("tree")
	if s, survey := message.(*protocol.ListLocations); a.changing && !(survey && s.EmptyTree) {
		return // the coordinator hears of the failure, and asks again
	}
	switch m := message.(type) {
	case *protocol.Match:
		a.core.Match(m)
	case *protocol.Apply:
		a.changing = true
		if n, breaks := a.point.Within(); breaks {
			a.core.Apply(cutApply(m, n))
			failpoint.Panic("tree")
		}
		a.core.Apply(m)
		a.publish()
	case *protocol.Forget:
		a.changing = true
		a.core.Forget(m)
		if _, breaks := a.point.Within(); breaks {
			failpoint.Panic("tree")
		}
		a.publish()
	case *protocol.Locate:
		a.core.Locate(m)
	case *protocol.Snapshot:
		a.core.Snapshot(m)
	case *protocol.Contents:
		a.core.Contents(m)
	case *protocol.Audit:
		m.Problem, m.Attached = a.core.Check(), a.core.Attached()
	case *protocol.ListLocations:
		a.survey(m)
	default:
		return
	}
	a.changing = false
	a.coordinator.PostUserMessage(message)
}

// survey empties a tree that is broken, and lists the places of all blocks.
func (a *treeActor) survey(m *protocol.ListLocations) {
	if m.EmptyTree {
		a.changing = true
		a.core = a.renew()
		// That each of its keys is gone, one by one, is more than it can tell.
		a.events.PostUserMessage(&published{lost: 1, first: a.first})
	}
	a.core.Survey(m)
}

// publish sends what the tree has to tell, if anybody wants to know.
func (a *treeActor) publish() {
	events, gone := a.core.TakeEvents(), a.core.TakeGone()
	if len(events) == 0 && len(gone) == 0 {
		return
	}
	if a.adapt != nil {
		a.adapt(events)
	}
	a.events.PostUserMessage(&published{events: events, gone: gone, first: a.first})
}
