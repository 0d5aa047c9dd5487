package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// port carries the coordinator's messages straight to the mailboxes of the others.
// It belongs to the coordinator's actor, but for answer, which the events actor and
// its task call, too.
//
// Messages go to mailboxes and not through the library's process registry: a hop is then
// one call, with no look-up of a name. staged ends whenever the call may become the caller's
// again, because the caller may use the record at once.
type port struct {
	engine    *Engine
	tree      *mailbox.Mailbox
	pools     []*mailbox.Mailbox
	offloader *mailbox.Mailbox
	store     *mailbox.Mailbox // nil: there is no store, and no request for it
	point     *failpoint.Point // of the coordinator: what it sends are the parts of its changes
	out       []any            // records that actors have: only these are answers when they come
	last      time.Duration    // the last time that the clock returned
	staged    *stages          // of the call that is served; nil: no one asks
}

var _ coordinator.Port = (*port)(nil)

// Tree lends a record to the tree.
func (p *port) Tree(message any) {
	p.staged.begin(stageOfTree(message))
	p.lend(p.tree, message)
}

// Pool lends a record to a pool.
func (p *port) Pool(id messages.PoolID, message any) {
	if work, ok := message.(*protocol.PoolWork); ok && p.staged != nil {
		p.staged.begin(stageOfPool(work))
	}
	p.lend(p.pools[id], message)
}

// Offloader lends a record to the offloader.
func (p *port) Offloader(message any) {
	p.staged.begin(inspect.StageMove)
	p.lend(p.offloader, message)
}

// Events gives a request to the events actor, which answers it itself.
//
// The coordinator's round ends with it. A reader of events may wait for a hash of many
// blocks, and other requests must not wait with it.
func (p *port) Events(request, sender any, keys []*protocol.Changes) {
	p.staged = nil
	p.point.Step("coordinator")
	p.engine.events.PostUserMessage(&forward{request: request, sender: sender, keys: keys, port: p})
}

// Store gives a request to the store's actor, which answers it itself.
func (p *port) Store(request, sender any) {
	p.staged = nil
	p.point.Step("coordinator")
	p.store.PostUserMessage(&forward{request: request, sender: sender, port: p})
}

// lend sends a record to an actor, which owns it until it sends it back.
func (p *port) lend(to *mailbox.Mailbox, record any) {
	p.point.Step("coordinator")
	p.out = append(p.out, record) // before the message: the receiver may answer at once
	to.PostUserMessage(record)
}

// returned ends the loan of a record and tells whether there was one. A record that was not
// lent comes from outside the engine, and is no answer whatever it says.
func (p *port) returned(answer any) bool {
	// A list and no map: few records are out, about one for each actor. Behind its end it keeps
	// records that have come back, until others take their places.
	for i := range p.out {
		if p.out[i] == answer {
			last := len(p.out) - 1
			p.out[i] = p.out[last]
			p.out = p.out[:last]
			return true
		}
	}
	return false
}

// recall ends all loans: the fences are back, so no actor will use a record that is out. What
// an actor still sends back of these is dropped.
func (p *port) recall() {
	clear(p.out)
	p.out = p.out[:0]
}

// fence is sent to an actor and comes back behind everything that the actor was
// sent before: the actor holds no record of the coordinator's then.
type fence struct{}

// Abort does nothing: an actor that has stopped sends no fence back, and the engine
// ends with it.
func (*fence) Abort(error) {}

// sendFences sends a fence to each actor that records are lent to, and returns how
// many there are.
//
// The events actor and the store's get none: they get requests and copies, but no record
// of the coordinator's.
func (p *port) sendFences() int {
	p.tree.PostUserMessage(&fence{})
	p.offloader.PostUserMessage(&fence{})
	for _, pool := range p.pools {
		pool.PostUserMessage(&fence{})
	}
	return 2 + len(p.pools)
}

// Now is the time by which timers act. The coordinator reads it once a round, so that
// one round has one time. When the host's clock panics it stands still.
func (p *port) Now() time.Duration {
	p.point.Step("coordinator")
	p.engine.callHost("WithClock", func() { p.last = p.engine.settings.Clock() })
	return p.last
}

// Begin asks a caller whether it still waits, at the last moment before its request
// changes anything; actors always do.
//
// After a false the record is the caller's, and the coordinator must not read it. A host's
// actor cannot give up a request, since a message that is sent cannot be taken back.
func (p *port) Begin(sender any) bool {
	p.point.Step("coordinator")
	c, ok := sender.(*call)
	p.staged = nil
	if !ok {
		return true
	}
	if !c.begin() {
		return false
	}
	p.staged = c.stages
	return true
}

// Park tells a caller that its request waits for pages; actors always wait.
func (p *port) Park(sender any) bool {
	p.point.Step("coordinator")
	p.staged.begin(inspect.StageWait) // before the marks are the caller's
	p.staged = nil
	c, ok := sender.(*call)
	return !ok || c.park()
}

// Waits asks a caller whose request waits for pages whether it still does.
//
// A request in the waiting room is asked again and again: no page is to go to a caller
// that has left.
func (p *port) Waits(sender any) bool {
	c, ok := sender.(*call)
	return !ok || c.stage.Load() != callCancelled
}

// Reply answers a caller or an actor.
func (p *port) Reply(request, sender any) {
	p.staged = nil // the stages are the caller's from here on
	p.point.Step("coordinator")
	p.answer(request, sender)
}

// answer is Reply, for the events actor, too.
func (p *port) answer(request, sender any) {
	p.publishCounts(request)
	switch to := sender.(type) {
	case *call:
		to.finish()
	case *actor.PID:
		if to != nil {
			p.engine.system.Root.Send(to, request)
		}
	}
}

// publishCounts publishes what a rebalance has made of the pools, whoever has asked for it and
// also if an actor failed over it. It comes before the answer: a caller that has that must not
// see the old counts.
func (p *port) publishCounts(request any) {
	if r, ok := request.(*messages.Rebalance); ok && len(r.Rebalanced.Pools) > 0 {
		pools := clonePools(r.Rebalanced.Pools)
		p.engine.resized.Store(&pools)
	}
}

// Abort tells a caller that its request could not be served. An actor gets the
// request inside an Aborted.
func (p *port) Abort(request, sender any, cause error) {
	p.staged = nil
	p.publishCounts(request)
	switch to := sender.(type) {
	case *call:
		to.Abort(cause)
	case *actor.PID:
		p.engine.returnRequest(to, request, cause)
	}
}

// returnRequest sends a request that cannot be served back to the host's actor that
// it came from.
func (e *Engine) returnRequest(to *actor.PID, request any, cause error) {
	if to != nil {
		e.system.Root.Send(to, &messages.Aborted{Request: request, Err: e.failure(cause)})
	}
}

// forward is a request that the events actor or the store's answers itself. It is the receiver's
// until that has answered.
type forward struct {
	request, sender any
	keys            []*protocol.Changes // of the tree, for a snapshot
	port            *port
}

// Abort answers the caller when the events actor is gone or has panicked: the
// coordinator has given the request away, so no recovery sees to it.
func (f *forward) Abort(err error) {
	switch to := f.sender.(type) {
	case *call:
		to.abandon(err)
	case *actor.PID:
		f.port.Abort(f.request, to, err)
	}
}
