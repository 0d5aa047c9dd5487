package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/tree"
)

// treeActor is the shell of the radix tree.
type treeActor struct {
	core        *tree.Tree
	coordinator *mailbox.Mailbox
	events      *mailbox.Mailbox
}

// published hands events to the events actor, which owns them from then on.
type published struct{ events []messages.Event }

// Receive serves one message and sends it back.
func (a *treeActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *messages.Match:
		a.core.Match(m)
	case *messages.Apply:
		a.core.Apply(m)
		a.publish()
	case *messages.Forget:
		a.core.Forget(m)
		a.publish()
	case *messages.Locate:
		a.core.Locate(m)
	case *messages.Snapshot:
		a.core.Snapshot(m)
	case *messages.Contents:
		a.core.Contents(m)
	case *messages.Audit:
		m.Problem, m.Attached = a.core.Check(), a.core.Attached()
	default:
		return
	}
	a.coordinator.PostUserMessage(ctx.Message())
}

// publish sends what the tree has to tell, if anybody wants to know.
func (a *treeActor) publish() {
	if events := a.core.TakeEvents(); len(events) > 0 {
		a.events.PostUserMessage(&published{events})
	}
}
