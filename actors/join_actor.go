package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/cross"
	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/messages"
)

// joinActor is the shell of the join of two engines: it stands where the
// coordinator of a single one does.
type joinActor struct {
	core    *cross.Join
	port    *joinPort
	point   *failpoint.Point // the port's, too
	serving bool             // the core is at work: after a panic it gets nothing before it is told so
}

// joinFailed tells the join that it was restarted.
type joinFailed struct{ cause error }

// joined says that a side has answered the request that was sent it in a turn.
type joined struct {
	turn uint64
	err  error
}

func newJoinActor(e *Engine) *joinActor {
	p := &joinPort{engine: e, point: &e.joint.point}
	return &joinActor{core: cross.New(e.validate, e.pools[len(e.pools)-1], p), port: p, point: &e.joint.point}
}

// Receive passes requests and answers to the core.
func (a *joinActor) Receive(ctx actor.Context) {
	if library(ctx.Message()) {
		if _, stops := ctx.Message().(*actor.Stopping); stops {
			a.point.Disarm()
			a.core.Stop(a.port.engine.failure(mailbox.ErrStopped))
		}
		return
	}
	failed, own := ctx.Message().(*joinFailed)
	if !own && (a.serving || a.point.Armed()) {
		a.keep(ctx)
		a.point.Hit("join")
		return
	}
	a.serving = true
	if own {
		if a.core.Broken() {
			a.port.turn++ // what is still to come is nobody's answer
		}
		a.core.Failed(failed.cause)
	} else {
		a.serve(ctx)
	}
	a.serving = false
}

// keep puts a request into the line, so that it outlives a panic, and an answer
// beside it.
func (a *joinActor) keep(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *call:
		a.core.Queue(m.request, m)
	case *joined:
		if m.turn == a.port.turn {
			a.core.Hold(m.err)
		}
	default:
		if request := fromActor(ctx); request != nil {
			a.core.Queue(request, ctx.Sender())
		}
	}
}

// serve tells requests from answers.
func (a *joinActor) serve(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *call:
		a.core.Submit(m.request, m)
	case *joined:
		if m.turn == a.port.turn {
			a.core.Answered(m.err)
		}
	default:
		if request := fromActor(ctx); request != nil {
			a.core.Submit(request, ctx.Sender())
		}
	}
}

// joinPort carries the core's requests to the two engines.
type joinPort struct {
	engine *Engine
	self   *mailbox.Mailbox
	turn   uint64 // of the request under way
	point  *failpoint.Point
}

var _ cross.Port = (*joinPort)(nil)

func (p *joinPort) Decoder(request any) { p.send(p.engine.joint.decoder, request) }
func (p *joinPort) Encoder(request any) { p.send(p.engine.joint.encoder, request) }

// send starts a request; its answer comes as a message.
func (p *joinPort) send(to *Engine, request any) {
	p.point.Step("join")
	p.turn++
	turn := p.turn
	done := func(err error) { p.self.PostUserMessage(&joined{turn, err}) }
	if err := to.Submit(request, done); err != nil {
		done(err)
	}
}

// Begin asks a caller whether it still waits; actors always do.
func (p *joinPort) Begin(sender any) bool {
	p.point.Step("join")
	c, ok := sender.(*call)
	return !ok || c.begin()
}

// Reply answers a caller or an actor.
func (p *joinPort) Reply(request, sender any) {
	p.point.Step("join")
	if r, ok := request.(*messages.Rebalance); ok && r.Err == nil {
		pools := clonePools(r.Rebalanced.Pools)
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
