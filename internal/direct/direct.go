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
	Clock  func() time.Duration
}

// Engine is the coordinator over cores that are called directly.
type Engine struct {
	Cores
	core     *coordinator.Coordinator
	answered int
	seq      uint64 // of submissions that go nowhere
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
	for e.answered > 0 {
		e.answered--
		e.core.Answered()
	}
}

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
	case *protocol.Audit:
		m.Problem, m.Attached = e.Cores.Tree.Check(), e.Cores.Tree.Attached()
	}
	e.answered++
}

// Pool serves a batch of the coordinator.
func (e *Engine) Pool(work *protocol.PoolWork) {
	e.Pools[work.Pool].Do(work)
	e.answered++
}

// PoolAudit serves an audit.
func (e *Engine) PoolAudit(m *protocol.Audit) {
	m.Problem, m.Attached = e.Pools[m.Pool].Check(), [][]protocol.PageBlock{e.Pools[m.Pool].Attached()}
	e.answered++
}

// ResizePool serves a part of a rebalance.
func (e *Engine) ResizePool(m *protocol.ResizePool) {
	r := pool.Resizing{Pages: m.Pages, Now: m.Now}
	p := e.Pools[m.Pool]
	p.Resize(&r)
	m.Victims, m.Counts, m.Moves = r.Victims, r.Counts, m.Moves[:0]
	for _, move := range r.Moves {
		m.Moves = append(m.Moves, protocol.PageMoved{PageMove: move, Block: p.Caches(move.New), Held: p.Holds(move.New)})
	}
	e.answered++
}

// RebuildPool is not needed: nothing fails here.
func (e *Engine) RebuildPool(*protocol.RebuildPool) { e.answered++ }

// Park lets the request wait; no one waits for its answer here.
func (e *Engine) Park(any) bool { return true }

// Waits is asked of requests that wait.
func (e *Engine) Waits(any) bool { return true }

// Abort drops the request.
func (e *Engine) Abort(any, any, error) {}

// Offloader serves a round of the coordinator.
func (e *Engine) Offloader(message any) {
	switch m := message.(type) {
	case *protocol.ResizeDevice:
		for p, n := range m.Pages {
			e.Cores.Offloader.SetDevicePages(messages.PoolID(p), n)
		}
	case *protocol.Move:
		e.Cores.Offloader.Begin(m)
		for s := e.Cores.Offloader.Next(); s != nil; s = e.Cores.Offloader.Next() {
			if e.Submit == nil {
				e.seq++
				e.Cores.Offloader.Submitted(messages.Ticket{Stream: messages.StreamID(s.Lane) + 1, Seq: e.seq}, -1)
				continue
			}
			e.Cores.Offloader.Submitted(e.Submit(s))
		}
		e.Cores.Offloader.Finish()
	}
	e.answered++
}

// Events drops readers of events: there is no log here.
func (e *Engine) Events(any, any, []*protocol.Changes) {}

// Begin accepts every request.
func (e *Engine) Begin(any) bool { return true }

// Reply does nothing: Do returns when the request is answered.
func (e *Engine) Reply(any, any) {}

// Now is the time of the clock; without one it stands still.
func (e *Engine) Now() time.Duration {
	if e.Clock == nil {
		return 0
	}
	return e.Clock()
}
