package actors

import (
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/cross"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/messages"
)

// joinActor is the shell of the join of two engines: it stands where the
// coordinator of a single one does.
type joinActor struct {
	core *cross.Join
	port *joinPort
	fuse *fuse
}

// joined says that a side has answered the request that was sent it in a turn.
type joined struct {
	turn uint64
	err  error
}

func newJoinActor(e *Engine) *joinActor {
	p := &joinPort{engine: e}
	return &joinActor{core: cross.New(e.validate, e.pools[len(e.pools)-1], p), port: p, fuse: &e.joint.fuse}
}

// Receive passes requests and answers to the core.
func (a *joinActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *call:
		a.submit(m.request, m)
	case *joined:
		if m.turn == a.port.turn {
			a.core.Answered(m.err)
		}
	case *actor.Stopping:
		a.core.Stop(a.port.engine.failure(mailbox.ErrStopped))
	default:
		if request := fromActor(ctx); request != nil {
			a.submit(request, ctx.Sender())
		}
	}
}

// submit hands a request to the core; it is in the line before a lit fuse
// burns, so that it is answered.
func (a *joinActor) submit(request, sender any) {
	if a.fuse.lit() {
		a.core.Queue(request, sender)
		a.fuse.burn("join")
	}
	a.core.Submit(request, sender)
}

// joinPort carries the core's requests to the two engines.
type joinPort struct {
	engine *Engine
	self   *mailbox.Mailbox
	turn   uint64 // of the request under way
}

var _ cross.Port = (*joinPort)(nil)

func (p *joinPort) Decoder(request any) { p.send(p.engine.joint.decoder, request) }
func (p *joinPort) Encoder(request any) { p.send(p.engine.joint.encoder, request) }

// send starts a request; its answer comes as a message.
func (p *joinPort) send(to *Engine, request any) {
	p.turn++
	turn := p.turn
	done := func(err error) { p.self.PostUserMessage(&joined{turn, err}) }
	if err := to.Submit(request, done); err != nil {
		done(err)
	}
}

// Begin asks a caller whether it still waits; actors always do.
func (p *joinPort) Begin(sender any) bool {
	c, ok := sender.(*call)
	return !ok || c.begin()
}

// Reply answers a caller or an actor.
func (p *joinPort) Reply(request, sender any) {
	if r, ok := request.(*messages.Rebalance); ok && r.Err == nil {
		pools := slices.Clone(r.Rebalanced.Pools)
		p.engine.resized.Store(&pools)
	}
	switch to := sender.(type) {
	case *call:
		to.finish()
	case *actor.PID:
		if to != nil {
			p.engine.system.Root.Send(to, request)
		}
	}
}

// Abort tells a caller that its request could not be served. An actor gets the
// request inside an Aborted.
func (p *joinPort) Abort(request, sender any, cause error) {
	switch to := sender.(type) {
	case *call:
		to.err = cause
		to.finish()
	case *actor.PID:
		if to != nil {
			p.engine.system.Root.Send(to, &messages.Aborted{Request: request, Err: cause})
		}
	}
}
