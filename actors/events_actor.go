package actors

import (
	"context"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// eventsActor is the shell of the event log. What a reader takes is named beside
// the actors, since it may be a million blocks: one reader after the other.
type eventsActor struct {
	core       *events.Log
	self       *mailbox.Mailbox
	queue      []*forward       // readers that wait for the one that is served
	naming     bool             // a batch is being named
	tree       *mailbox.Mailbox // gets back what namings were made of
	point      failpoint.Point
	background *background
	// news is what is being logged, from event number before on: after a panic
	// the log cannot be trusted.
	news   *published
	before uint64
}

// named says that a batch has been named and its reader answered, or that
// naming has panicked.
type named struct {
	spent    [][]messages.Token
	panicked *mailbox.Panic // nil: it has not
}

// Abort has nobody to tell.
func (*named) Abort(error) {}

// Receive logs what is published and answers the readers.
func (a *eventsActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *published:
		a.mend()
		a.log(m)
	case *forward:
		a.mend()
		a.point.Hit("events")
		a.serve(m)
	case *named:
		a.mend()
		a.naming = false
		a.giveBack(m.spent)
		a.point.Hit("events")
		a.settle()
		a.next()
		if m.panicked != nil {
			panic(m.panicked)
		}
	case *actor.Started:
		a.next() // they may have waited for one that has failed
	case *actor.Stopping:
		a.stopped()
	}
}

// log logs what has happened; lost events came before the others.
func (a *eventsActor) log(m *published) {
	a.news, a.before = m, a.core.Next()
	a.point.Hit("events")
	if m.lost > 0 {
		a.core.Lose(m.first, m.lost)
		a.before = a.core.Next()
	}
	if n, breaks := a.point.Within(); breaks {
		a.core.Append(m.events[:min(n, len(m.events))])
		failpoint.Panic("events")
	}
	a.core.Append(m.events)
	a.core.Gone(m.gone)
	a.news = nil
	a.settle()
}

// mend makes a log anew that has failed. What it kept and was to keep is lost.
func (a *eventsActor) mend() {
	if m := a.news; m != nil {
		a.news = nil
		lost := m.lost > 0 && a.core.Next() == a.before
		a.core = events.Resume(a.core, m.events[min(uint64(len(m.events)), a.core.Next()-a.before):])
		if lost {
			a.core.Lose(m.first, m.lost)
		}
	}
}

// stopped answers the readers that cannot be served any more.
func (a *eventsActor) stopped() {
	for _, m := range a.queue {
		m.Abort(mailbox.ErrStopped)
	}
	a.queue = nil
}

// serve answers a reader when those before it have been served.
func (a *eventsActor) serve(m *forward) {
	if r, ok := m.request.(*protocol.ReadKeys); ok {
		r.Next, r.Err = a.core.Next(), nil
		m.port.answer(m.request, m.sender)
		return
	}
	a.queue = append(a.queue, m)
	a.next()
}

// settle lets the log name what it has to, unless others are naming.
func (a *eventsActor) settle() {
	if !a.naming {
		a.giveBack(a.core.Settle())
	}
}

// giveBack gives tokens that are of no use here any more to the tree.
func (a *eventsActor) giveBack(tokens [][]messages.Token) {
	if len(tokens) > 0 && a.tree != nil {
		a.tree.PostUserMessage(&spent{tokens})
	}
}

// next serves the next reader.
func (a *eventsActor) next() {
	if a.naming || len(a.queue) == 0 {
		return
	}
	m := a.queue[0]
	a.queue = append(a.queue[:0], a.queue[1:]...)
	if m.aborted {
		a.next()
		return
	}
	batch := m.take(a.core)
	if len(batch.Events) == 0 {
		empty, _ := events.Name(batch)
		m.answer(empty)
		a.next()
		return
	}
	a.naming = true
	a.background.run(func(context.Context) {
		done := &named{}
		defer func() {
			if reason := recover(); reason != nil {
				done.panicked = mailbox.NewPanic(reason)
				m.Abort(fmt.Errorf("%w: %w", mailbox.ErrPanicked, done.panicked))
			}
			a.self.PostUserMessage(done)
		}()
		named, spent := events.Name(batch)
		done.spent = spent
		m.answer(named)
	})
}

// take takes from the log what a reader has asked for.
func (f *forward) take(log *events.Log) protocol.EventBatch {
	switch r := f.request.(type) {
	case *messages.ReadSnapshot:
		return log.Snapshot(f.keys)
	case *protocol.JoinSnapshot:
		if r.Stale = log.ToldSince(r.Pool, r.Since); r.Stale {
			return protocol.EventBatch{}
		}
		return log.Snapshot(f.keys)
	default:
		return log.Take()
	}
}

// answer gives a reader a batch.
func (f *forward) answer(batch messages.EventBatch) {
	switch r := f.request.(type) {
	case *messages.ReadEvents:
		r.Batch, r.Err = batch, nil
	case *messages.ReadSnapshot:
		r.Batch, r.Err = batch, nil
	case *protocol.JoinSnapshot:
		r.Batch, r.Err = batch, nil
	}
	f.port.answer(f.request, f.sender)
}
