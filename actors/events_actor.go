package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
)

// eventsActor is the shell of the event log.
type eventsActor struct{ core *events.Log }

// Receive logs what is published and answers the readers.
func (a *eventsActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *published:
		a.core.Append(m.events)
	case *forward:
		switch r := m.request.(type) {
		case *messages.ReadEvents:
			r.Batch, r.Err = a.core.Take(), nil
		case *messages.ReadSnapshot:
			r.Batch, r.Err = a.core.Snapshot(r.Batch.Events), nil
		}
		m.port.Reply(m.request, m.sender)
	}
}
