// Package direct drives the coordinator and the cores without actors, on the
// caller's goroutine. It is the floor that the actors are measured against, and
// the engine of tests that need every step to be synchronous.
package direct

import (
	"errors"
	"time"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/pool"
	"github.com/kvactor/kvactor/tree"
)

// Cores are the parts of an engine.
type Cores struct {
	Tree      *tree.Tree
	Pools     []*pool.Pool
	Offloader *offloader.Offloader
	// Submit carries a submission; nil queues it nowhere.
	Submit func(*offloader.Submission) (messages.Ticket, int)
	// CopyPages carries the pages of a hand-over; nil: they go nowhere.
	CopyPages func(m *protocol.CopyPages, after []messages.Ticket) (ticket messages.Ticket,
		failed bool)
	// Load puts contents of a store on a host page; nil: they go nowhere.
	Load  func(pool messages.PoolID, page messages.PageID, contents []byte)
	Clock func() time.Duration
	// Renew makes an empty tree and offloader, for recoveries.
	Renew func() (*tree.Tree, *offloader.Offloader)
}

// Engine is the coordinator over cores that are called directly.
type Engine struct {
	Cores
	core     *coordinator.Coordinator
	answered int
	seq      uint64 // of submissions that go nowhere

	// Before and After hear of every message to a core, before and after it is
	// served; nil: it is not told. Before returns false to lose the message: the actor
	// that would have got it has failed.
	Before func(to string, message any) bool
	After  func(to string, message any)
	// Sender hears of every question to a sender, by its name: begin or park; nil: it is
	// not told.
	Sender func(question string)
	// Answered hears of every request that was answered; nil: it is not told.
	Answered func(request any)
	// Aborted hears of every request that could not be served; nil: it is not told.
	Aborted func(request any, err error)
	broken  bool                  // the offloader failed in the middle of a change
	failed  []coordinator.Failure // to be told when the coordinator returns
}

var _ coordinator.Port = (*Engine)(nil)

// New joins a coordinator with cores.
func New(config coordinator.Config, cores Cores) *Engine {
	e := &Engine{Cores: cores}
	e.core = coordinator.New(config, e)
	return e
}

// Do serves one request record of package messages.
func (e *Engine) Do(request any) {
	e.core.Submit(request, nil)
	e.drain()
}

// SaveRoom tells the coordinator that there is room again for pages that are to be saved.
func (e *Engine) SaveRoom() {
	e.core.NotSaved(nil)
	e.drain()
}

// drain gives answers and failures to the coordinator until there are no more.
func (e *Engine) drain() {
	for e.answered > 0 || len(e.failed) > 0 {
		if len(e.failed) == 0 {
			e.answered--
			e.core.Answered()
			continue
		}
		f := e.failed[0]
		e.failed = e.failed[1:]
		e.answered = 0 // of an epoch that is over
		e.core.Failed(f)
	}
}

// Fail makes an actor fail: the coordinator hears of it when it returns. An
// offloader that fails dirty does not know any longer what its copies did.
func (e *Engine) Fail(f coordinator.Failure) {
	e.failed = append(e.failed, f)
	e.broken = e.broken || f.Actor == "offloader" && f.Dirty
}

// Recover tells the coordinator of the failures when the caller has recovered from
// a panic of its own.
func (e *Engine) Recover() { e.drain() }

// String draws the coordinator.
func (e *Engine) String() string { return e.core.String() }

// lost tells whether a message does not reach its core.
func (e *Engine) lost(to string, message any) bool {
	return e.Before != nil && !e.Before(to, message)
}

// served counts the answer of a core.
func (e *Engine) served(to string, message any) {
	e.answered++
	if e.After != nil {
		e.After(to, message)
	}
}

// CheckCoordinator verifies the coordinator alone. Unlike Check it may be called in
// the middle of a round.
func (e *Engine) CheckCoordinator() error { return e.core.Check() }

// Check verifies every core.
func (e *Engine) Check() error {
	problems := []error{e.core.Check(), e.Cores.Tree.Check(), e.Cores.Offloader.Check()}
	for _, p := range e.Pools {
		problems = append(problems, p.Check())
	}
	return errors.Join(problems...)
}

// Tree serves a message of the coordinator.
func (e *Engine) Tree(message any) {
	if e.lost("tree", message) {
		return
	}
	switch m := message.(type) {
	case *protocol.Match:
		e.Cores.Tree.Match(m)
	case *protocol.Apply:
		e.Cores.Tree.Apply(m)
	case *protocol.Forget:
		e.Cores.Tree.Forget(m)
	case *protocol.Locate:
		e.Cores.Tree.Locate(m)
	case *protocol.Snapshot:
		e.Cores.Tree.Snapshot(m)
	case *protocol.Contents:
		e.Cores.Tree.Contents(m)
	case *protocol.TopNodes:
		e.Cores.Tree.TopNodes(m)
	case *protocol.ReadTokens:
		e.Cores.Tree.ReadTokens(m)
	case *protocol.Audit:
		m.Problem, m.Attached = e.Cores.Tree.Check(), e.Cores.Tree.Attached()
	case *protocol.ListLocations:
		if m.EmptyTree {
			e.Cores.Tree, _ = e.Renew()
		}
		e.Cores.Tree.ListLocations(m)
	}
	e.served("tree", message)
}

// Pool serves a message to a pool.
func (e *Engine) Pool(id messages.PoolID, message any) {
	p := e.Pools[id]
	if e.lost(p.Name(), message) {
		return
	}
	switch m := message.(type) {
	case *protocol.PoolWork:
		p.Do(m)
	case *protocol.Audit:
		m.Problem, m.Attached = p.Check(), [][]protocol.PageBlock{p.Attached()}
	case *protocol.ResizePool:
		p.Resize(m)
	case *protocol.RebuildPool:
		e.Pools[id] = p.Rebuilt(m)
	}
	e.served(p.Name(), message)
}

// Park accepts that the request waits; no one waits for its answer here.
func (e *Engine) Park(any) bool { return e.accepts("park") }

// Waits is asked of requests that wait.
func (e *Engine) Waits(any) bool { return true }

// Abort tells that a request could not be served.
func (e *Engine) Abort(request, _ any, err error) {
	if e.Aborted != nil {
		e.Aborted(request, err)
	}
}

// Offloader serves a round of the coordinator.
func (e *Engine) Offloader(message any) {
	if e.lost("offloader", message) {
		return
	}
	o := e.Cores.Offloader
	switch m := message.(type) {
	case *protocol.ResizeDevice:
		m.Dirty = e.broken
	case *protocol.Move:
		o.Begin(m)
		e.carry()
	case *protocol.OffloadAhead:
		for p := range m.Pools {
			copied := 0
			if len(m.Pools[p].Victims) > 0 {
				copied = o.PlanAhead(messages.PoolID(p), &m.Pools[p])
				e.carry()
			}
			m.Copied = append(m.Copied, copied)
		}
	case *protocol.SampleHost:
		o.Sample(m)
	case *protocol.HostRoom:
		o.Room(m)
	case *protocol.LoadPages:
		e.load(m)
	case *protocol.RebuildHost:
		e.rebuildHost(m)
	case *protocol.CopyPages:
		e.copyPages(m)
	}
	e.served("offloader", message)
}

// carry submits what the offloader has planned.
func (e *Engine) carry() {
	o := e.Cores.Offloader
	for s := o.Next(); s != nil; s = o.Next() {
		if e.Submit == nil {
			e.seq++
			o.Submitted(messages.Ticket{Stream: messages.StreamID(s.Lane) + 1, Seq: e.seq}, -1)
			continue
		}
		o.Submitted(e.Submit(s))
	}
	o.Finish()
}

// load takes host pages for contents of a store and writes them there.
func (e *Engine) load(m *protocol.LoadPages) {
	e.Cores.Offloader.Load(m)
	for p := range m.Pages {
		for i, page := range m.Pages[p] {
			if e.Load != nil {
				e.Load(messages.PoolID(p), page, m.Bytes[p][i])
			}
		}
	}
}

// copyPages carries pages of a hand-over.
func (e *Engine) copyPages(m *protocol.CopyPages) {
	waits := e.Cores.Offloader.HandoverWaits(m)
	e.seq++
	m.Ticket = messages.Ticket{Stream: transferStream, Seq: e.seq}
	if e.CopyPages != nil {
		m.Ticket, m.Failed = e.CopyPages(m, waits)
	}
	e.Cores.Offloader.NoteHandover(m)
}

// transferStream is the stream of hand-overs, behind those of the lanes.
const transferStream messages.StreamID = 100

// rebuildHost makes host memory again from what the owners of its pages know.
func (e *Engine) rebuildHost(m *protocol.RebuildHost) {
	old := e.Cores.Offloader
	_, e.Cores.Offloader = e.Renew()
	e.broken = false
	e.Cores.Offloader.Rebuild(old, m)
}

// Events drops readers of events: there is no log here.
func (e *Engine) Events(any, any, []*protocol.Changes) {}

// Store serves nothing: there is none.
func (e *Engine) Store(any, any) {}

// Begin accepts every request.
func (e *Engine) Begin(any) bool { return e.accepts("begin") }

// accepts accepts every request, once its sender has been asked.
func (e *Engine) accepts(question string) bool {
	if e.Sender != nil {
		e.Sender(question)
	}
	return true
}

// Reply tells that a request is answered. A request that waits for pages is answered
// after Do has returned.
func (e *Engine) Reply(request, _ any) {
	if e.Answered != nil {
		e.Answered(request)
	}
}

// Now is the time of the clock; without one it stands still.
func (e *Engine) Now() time.Duration {
	if e.Clock == nil {
		return 0
	}
	return e.Clock()
}
