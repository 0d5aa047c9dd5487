package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// eventsActor is the shell of the event log. It has a goroutine of its own: it hashes new
// blocks, and copies those that a reader is told of, which may be a million. What is published
// meanwhile waits in its mailbox.
type eventsActor struct {
	core  *events.Log
	point failpoint.Point
	// news is what is being logged, from event number before on, or nothing while a reader
	// is served. It stays set after a panic: then the log cannot be trusted.
	news   *published
	before uint64
}

// published sends changes to the events actor. Lost counts events that cannot be told and came
// before: the tree has lost all it held.
type published struct {
	changes *protocol.Changes // nil: none
	lost    int
}

// Abort does nothing: no caller waits for the record.
func (*published) Abort(error) {}

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
		a.news, a.before = &published{}, a.core.Next()
		a.serve(m)
		a.news = nil
	}
}

// log logs what has happened; lost events came before the others.
func (a *eventsActor) log(m *published) {
	// Before all that can panic: replaceBroken counts from here what is lost.
	a.news, a.before = m, a.core.Next()
	a.point.Hit("events")
	if m.lost > 0 {
		a.core.TreeLost(0, m.lost)
	}
	if m.changes != nil {
		a.point.Change("events", func() { a.core.Append(m.changes) })
	}
	a.news = nil
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
	all := m.lost
	if m.changes != nil {
		all += m.changes.Events()
	}
	a.core = events.Resume(a.core, max(0, all-int(a.core.Next()-a.before)))
}

// serve answers a reader.
func (a *eventsActor) serve(m *forward) {
	switch r := m.request.(type) {
	case *kvevents.OpenReader:
		r.Reader, r.Err = a.core.OpenReader()
	case *kvevents.CloseReader:
		r.Err = a.core.CloseReader(r.Reader)
	case *kvevents.ReadEvents:
		r.Batch, r.Err = a.core.Take(r.Reader)
	case *kvevents.ReadSnapshot:
		r.Batch, r.Err = a.core.Snapshot(r.Reader, m.keys...)
	}
	m.port.answer(m.request, m.sender)
}
