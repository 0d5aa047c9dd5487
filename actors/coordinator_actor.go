package actors

import (
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// coordinatorActor is the shell of the coordinator. Requests come from the
// facade as calls, or from hosts that are actors as the messages themselves;
// everything else that comes is an answer to what the coordinator sent.
type coordinatorActor struct {
	core    *coordinator.Coordinator
	port    *port
	fuse    fuse // the port's, too
	serving bool // the core is at work: after a panic its round cannot be trusted
	// others are failures of other actors that came while the core was broken.
	others []coordinator.Failure
}

// actorFailed tells the coordinator that an actor was restarted.
type actorFailed struct{ failure coordinator.Failure }

// Receive passes requests and answers to the core. A core that is broken gets
// nothing before it is told so: requests wait, answers are of an epoch that is
// over by then.
func (a *coordinatorActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actorFailed:
		a.failed(m.failure)
		return
	case *actor.Stopping:
		a.fuse.state.Store(0)
		a.core.Stop(mailbox.ErrStopped)
		return
	default:
		if library(m) {
			return
		}
	}
	if a.fuse.lit() || a.serving {
		a.keep(ctx)
		a.fuse.burn("coordinator")
		if a.serving {
			return
		}
	}
	a.serving = true
	a.serve(ctx)
	a.serving = false
}

// keep puts a request into the line, so that it outlives the panic to come.
func (a *coordinatorActor) keep(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *call:
		a.core.Queue(m.request, m)
	default:
		if request := fromActor(ctx); request != nil {
			a.core.Queue(request, ctx.Sender())
		}
	}
}

// failed begins the recovery from a failed actor, itself included.
func (a *coordinatorActor) failed(f coordinator.Failure) {
	own := f.Actor == "coordinator"
	if a.serving && !own {
		a.others = append(a.others, f)
		return
	}
	f.Dirty = f.Dirty || own && a.serving
	a.serving = true
	a.core.Failed(f)
	for len(a.others) > 0 {
		f, a.others = a.others[0], a.others[1:]
		a.core.Failed(f)
	}
	a.serving = false
}

// serve tells requests from answers; an answer of an epoch that is over is
// nobody's any more, and one that comes from outside never was.
func (a *coordinatorActor) serve(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *call:
		a.core.Submit(m.request, m)
	case *departed:
		a.core.Departed()
	case epoched:
		switch {
		case ctx.Sender() != nil: // the engine's own actors answer without
			fromActor(ctx)
		case a.core.Awaits() && m.RequestEpoch() == a.core.Epoch():
			a.core.Answered()
		}
	default:
		if request := fromActor(ctx); request != nil {
			a.core.Submit(request, ctx.Sender())
		}
	}
}

// epoched is an answer: it says of which epoch.
type epoched interface{ RequestEpoch() uint32 }

// port carries the core's messages straight to the mailboxes of the others.
type port struct {
	system    *actor.ActorSystem
	tree      *mailbox.Mailbox
	pools     []*mailbox.Mailbox
	offloader *mailbox.Mailbox
	events    *mailbox.Mailbox
	clock     func() time.Duration
	fuse      *fuse // of the coordinator: what it sends are the parts of its changes
	// resized hears of every rebalance, whoever asked for it.
	resized func([]messages.PoolInfo)
}

var _ coordinator.Port = (*port)(nil)

func (p *port) Tree(message any)                    { p.send(p.tree, message) }
func (p *port) Pool(work *protocol.PoolWork)        { p.send(p.pools[work.Pool], work) }
func (p *port) PoolAudit(audit *protocol.Audit)     { p.send(p.pools[audit.Pool], audit) }
func (p *port) ResizePool(r *protocol.ResizePool)   { p.send(p.pools[r.Pool], r) }
func (p *port) RebuildPool(r *protocol.RebuildPool) { p.send(p.pools[r.Pool], r) }
func (p *port) Offloader(message any)               { p.send(p.offloader, message) }
func (p *port) Events(request, sender any, keys []protocol.Event) {
	p.send(p.events, &forward{request: request, sender: sender, keys: keys, port: p})
}

func (p *port) send(to *mailbox.Mailbox, message any) {
	p.fuse.step("coordinator")
	to.PostUserMessage(message)
}

// Now is the time by which timers act.
func (p *port) Now() time.Duration {
	p.fuse.step("coordinator")
	return p.clock()
}

// Begin asks a caller whether it still waits; actors always do.
func (p *port) Begin(sender any) bool {
	p.fuse.step("coordinator")
	c, ok := sender.(*call)
	return !ok || c.begin()
}

// Park tells a caller that its request waits for pages; actors always wait.
func (p *port) Park(sender any) bool {
	p.fuse.step("coordinator")
	c, ok := sender.(*call)
	return !ok || c.park()
}

// Waits asks a caller whose request waits for pages whether it still does.
func (p *port) Waits(sender any) bool {
	c, ok := sender.(*call)
	return !ok || c.stage.Load() != callCancelled
}

// Reply answers a caller or an actor.
func (p *port) Reply(request, sender any) {
	p.fuse.step("coordinator")
	p.answer(request, sender)
}

// answer is Reply, for the events actor, too.
func (p *port) answer(request, sender any) {
	if r, ok := request.(*messages.Rebalance); ok && len(r.Rebalanced.Pools) > 0 {
		p.resized(slices.Clone(r.Rebalanced.Pools))
	}
	switch to := sender.(type) {
	case *call:
		to.finish()
	case *actor.PID:
		if to != nil {
			p.system.Root.Send(to, request)
		}
	}
}

// Abort tells a caller that its request could not be served. An actor gets the
// request inside an Aborted.
func (p *port) Abort(request, sender any, cause error) {
	switch to := sender.(type) {
	case *call:
		to.Abort(cause)
	case *actor.PID:
		if to != nil {
			p.system.Root.Send(to, &messages.Aborted{Request: request, Err: cause})
		}
	}
}

// forward is a request that the events actor answers itself.
type forward struct {
	request, sender any
	keys            []protocol.Event // of the tree, for a snapshot
	port            *port
	aborted         bool // while it waited: the actor failed over it
}

// Abort answers the caller when the events actor is gone or has panicked: the
// coordinator has given the request away, so no recovery sees to it.
func (f *forward) Abort(err error) {
	f.aborted = true
	switch to := f.sender.(type) {
	case *call:
		to.abandon(err)
	case *actor.PID:
		f.port.Abort(f.request, to, err)
	}
}
