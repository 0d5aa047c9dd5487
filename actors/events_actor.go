package actors

import (
	"context"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// eventsActor is the shell of the event log. The blocks that a reader is told of
// are hashed beside the actors, since they may be a million: one reader after the
// other.
//
// At most one draft is hashed at a time, which bounds the goroutines to one for each engine,
// however many readers there are. Others are taken when it is their turn, so that they refer
// to no memory while they wait, but for snapshots and what waits before them: see takeWaiting.
type eventsActor struct {
	core       *events.Log
	self       *mailbox.Mailbox
	queue      []*forward       // readers that wait for the one that is served
	naming     bool             // a draft is being hashed, by a task
	tree       *mailbox.Mailbox // gets records of changes back
	point      failpoint.Point
	background *background
	// news is what is being logged, from event number before on. It stays set after
	// a panic: then the log cannot be trusted.
	news   *published
	before uint64
}

// named says that the blocks of a draft have been hashed and its reader answered, or
// that this has panicked.
//
// The task gives the draft back by it, so that the log can free what the draft referred
// to.
type named struct {
	draft    *events.Draft
	panicked *mailbox.Panic // nil: it has not
}

// Abort does nothing: the reader has been answered.
func (*named) Abort(error) {}

// Receive logs what is published and answers the readers. Each message first replaces a log
// that a panic has left half changed: no reader sees such a log, and the actor needs no
// recovery by the coordinator.
func (a *eventsActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *published:
		a.replaceBroken()
		a.log(m)
	case *forward:
		a.replaceBroken()
		a.point.Hit("events")
		a.serve(m)
	case *named:
		a.replaceBroken()
		a.naming = false
		a.point.Hit("events")
		// The next reader first: the panic of one reader's hashing fails the actor, and the
		// others are not to wait for the restart.
		a.core.Named(m.draft)
		a.next()
		if m.panicked != nil {
			panic(m.panicked)
		}
	case *actor.Started:
		a.replaceBroken()
		a.next() // they may have waited for one that has failed
	case *actor.Stopping:
		a.stopped()
	}
}

// log logs what has happened; lost events came before the others.
func (a *eventsActor) log(m *published) {
	// Before all that can panic: replaceBroken counts from here what is lost.
	a.news, a.before = m, a.core.Next()
	a.point.Hit("events")
	if m.lost > 0 {
		a.core.TreeLost(0, m.lost)
		a.before = a.core.Next()
	}
	if m.changes != nil {
		if n, breaks := a.point.Within(); breaks {
			cut := *m.changes
			cut.List = cut.List[:min(n, len(cut.List))]
			failpoint.PanicAfter("events", func() { a.core.Append(&cut) })
		}
		a.core.Append(m.changes)
	}
	a.news = nil
	// After a panic the record is not sent back, since the log may refer to it; the tree
	// makes another one.
	if m.changes != nil && a.tree != nil {
		m.counted = a.core.CountsOnly()
		a.tree.PostUserMessage(m) // to be filled again
	}
}

// replaceBroken makes a log that goes on where one has failed within a change. The
// events that the old one kept, and those that it was to log, are lost; readers are
// told how many, and numbers of events go on, so that a mirror knows that it must take
// a snapshot.
func (a *eventsActor) replaceBroken() {
	m := a.news
	if m == nil {
		return
	}
	a.news = nil
	lost, rest := m.lost > 0 && a.core.Next() == a.before, 0
	if m.changes != nil {
		rest = max(0, m.changes.Events()-int(a.core.Next()-a.before))
	}
	a.core = events.Resume(a.core, rest)
	if lost {
		a.core.TreeLost(0, m.lost)
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
	switch r := m.request.(type) {
	case *kvevents.OpenReader:
		r.Reader, r.Err = a.core.OpenReader()
	case *kvevents.CloseReader:
		r.Err = a.core.CloseReader(r.Reader)
	default:
		a.queue = append(a.queue, m)
		if m.keys != nil {
			a.takeWaiting()
		}
		a.next()
		return
	}
	m.port.answer(m.request, m.sender)
}

// takeWaiting takes the drafts of all readers that wait, the last of which waits for a
// snapshot. The tree has listed its keys at this moment: the log must combine them with what
// it knows before more changes come. Those before it come first, since they may be of the
// same reader.
func (a *eventsActor) takeWaiting() {
	for _, m := range a.queue {
		m.take(a.core)
	}
}

// next serves the next reader.
//
// A reader whose call was given up is skipped without a look at its record, which is the
// caller's again.
func (a *eventsActor) next() {
	if a.naming || len(a.queue) == 0 {
		return
	}
	m := a.queue[0]
	a.queue = append(a.queue[:0], a.queue[1:]...) // a slice from 1 on would grow without end
	m.take(a.core)
	switch {
	case m.aborted:
		if m.draft != nil {
			a.core.Named(m.draft)
		}
	case m.refused != nil:
		m.answer(kvevents.EventBatch{}, m.refused)
	// Nothing to hash, so no task: most reads of a host that polls find no events.
	case m.draft.Empty():
		m.answer(m.draft.Name(), nil)
		a.core.Named(m.draft)
	default:
		a.name(m, m.draft)
		return
	}
	a.next()
}

// name hashes the blocks of a draft on a task and answers its reader. The draft is the
// task's until named comes back: the log frees nothing that it refers to.
func (a *eventsActor) name(m *forward, draft *events.Draft) {
	a.naming = true
	a.background.run(func(context.Context) {
		done := &named{draft: draft}
		defer func() {
			if reason := recover(); reason != nil {
				done.panicked = mailbox.NewPanic(reason)
				m.Abort(fmt.Errorf("%w: %w", mailbox.ErrPanicked, done.panicked))
			}
			a.self.PostUserMessage(done)
		}()
		m.answer(draft.Name(), nil)
	})
}

// take takes from the log what a reader has asked for, unless that is done or the call was
// given up.
//
// Taking is short, as it copies no block: what is slow, the hashing, is left to the
// draft's Name.
func (f *forward) take(log *events.Log) {
	if f.aborted || f.draft != nil || f.refused != nil {
		return
	}
	switch r := f.request.(type) {
	case *kvevents.ReadSnapshot:
		f.draft, f.refused = log.Snapshot(r.Reader, f.keys...)
	default:
		f.draft, f.refused = log.Take(f.request.(*kvevents.ReadEvents).Reader)
	}
}

// answer gives a reader a batch.
func (f *forward) answer(batch kvevents.EventBatch, err error) {
	switch r := f.request.(type) {
	case *kvevents.ReadEvents:
		r.Batch, r.Err = batch, err
	case *kvevents.ReadSnapshot:
		r.Batch, r.Err = batch, err
	}
	f.port.answer(f.request, f.sender)
}
