package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
)

// eventsActor is the shell of the event log. What a reader takes is named beside
// the actors, since it may be a million blocks: one reader after the other.
type eventsActor struct {
	core   *events.Log
	self   *mailbox.Mailbox
	aside  func(func()) // runs what takes long
	line   []*forward   // readers that wait for the one that is served
	naming bool         // a batch is being named
}

// named says that a batch has been named and its reader answered, or that
// naming has panicked.
type named struct{ panicked any }

// Abort has nobody to tell.
func (*named) Abort(error) {}

// Receive logs what is published and answers the readers.
func (a *eventsActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *published:
		a.core.Append(m.events)
		a.settle()
	case *forward:
		a.line = append(a.line, m)
		a.next()
	case *named:
		a.naming = false
		a.settle()
		a.next()
		if m.panicked != nil {
			panic(m.panicked)
		}
	case *actor.Stopping:
		a.stopped()
	}
}

// stopped answers the readers that cannot be served any more.
func (a *eventsActor) stopped() {
	for _, m := range a.line {
		m.Abort(mailbox.ErrStopped)
	}
	a.line = nil
}

// settle lets the log name what it has to, unless others are naming.
func (a *eventsActor) settle() {
	if !a.naming {
		a.core.Settle()
	}
}

// next serves the next reader.
func (a *eventsActor) next() {
	if a.naming || len(a.line) == 0 {
		return
	}
	m := a.line[0]
	a.line = append(a.line[:0], a.line[1:]...)
	batch := m.take(a.core)
	if len(batch.Events) == 0 {
		m.answer(batch)
		a.next()
		return
	}
	a.naming = true
	a.aside(func() {
		done := &named{}
		defer func() {
			if done.panicked = recover(); done.panicked != nil {
				m.Abort(fmt.Errorf("%w: %v", mailbox.ErrPanicked, done.panicked))
			}
			a.self.PostUserMessage(done)
		}()
		events.Name(batch.Events)
		m.answer(batch)
	})
}

// take takes from the log what a reader has asked for.
func (f *forward) take(log *events.Log) messages.EventBatch {
	if r, ok := f.request.(*messages.ReadSnapshot); ok {
		return log.Snapshot(r.Batch.Events)
	}
	return log.Take()
}

// answer gives a reader a batch.
func (f *forward) answer(batch messages.EventBatch) {
	switch r := f.request.(type) {
	case *messages.ReadEvents:
		r.Batch, r.Err = batch, nil
	case *messages.ReadSnapshot:
		r.Batch, r.Err = batch, nil
	}
	f.port.Reply(f.request, f.sender)
}
