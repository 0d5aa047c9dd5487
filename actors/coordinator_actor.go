package actors

import (
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// coordinatorActor is the shell of the coordinator. Requests come from the
// facade as calls, or from hosts that are actors as the messages themselves;
// everything else that comes is an answer to what the coordinator sent.
//
// When an actor has failed, its answer never comes, and those of the others must
// come before the core may look at the records that it has lent:
//
//	serving ──actorFailed──▶ fencing ──last fenced──▶ core.Failed ──▶ serving
//	   ▲                       │  ▲                        │
//	   │                       └──┘ another failure        │ more failures
//	   │                       ▲                           │
//	   └───────────────────────┼───────────────────────────┘
//	                           └── a fence for each of them
//
// A fence is a message that each actor sends back after all that it was sent
// before. While the fences are out, requests queue and answers are dropped: the
// round that they belong to is given up.
type coordinatorActor struct {
	core   *coordinator.Coordinator
	port   *port
	engine *Engine
	point  failpoint.Point // the port's, too
	// serving is set while the core is at work. When the core has panicked it stays
	// set, and the core gets nothing before it is told of its own failure.
	serving  bool
	failures []coordinator.Failure // that the core has not been told of
	fences   int                   // that have not come back
}

// actorFailed tells the coordinator that an actor was restarted.
type actorFailed struct{ failure coordinator.Failure }

// Receive passes requests and answers to the core.
func (a *coordinatorActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actorFailed:
		a.failed(m.failure)
	case *notSaved:
		// While the core is broken it is not told: a recovery forgets what was saved.
		if !a.broken() {
			a.serving = true // it may serve requests
			a.core.NotSaved(m.items)
			a.serving = false
		}
	case *fence:
		a.fenced()
	case *actor.Stopping:
		a.point.Disarm()
		a.engine.ending.leaked.Store(int64(a.core.PagesHeld()))
		a.core.Stop(mailbox.ErrStopped)
	case *actor.Stopped:
		keepName(a.engine.system, ctx.Self().Id, a.engine.failure(mailbox.ErrStopped))
	default:
		if !library(m) {
			a.receive(ctx, m)
		}
	}
}

// receive passes on what is not about failures. A request that comes while the core
// is broken, or on which the core is about to panic, is queued: it outlives the
// panic.
func (a *coordinatorActor) receive(ctx actor.Context, message any) {
	// One look at the point: it may be armed otherwise at any time, and what is kept is not served.
	fails := a.point.Take()
	if fails || a.broken() {
		a.keep(ctx)
		if fails {
			failpoint.Panic("coordinator")
		}
		return
	}
	a.serving = true
	a.serve(ctx, message)
	a.serving = false
}

// broken tells whether the core has failed, or waits to be told of a failure.
func (a *coordinatorActor) broken() bool { return a.serving || a.fences > 0 }

// keep queues a request.
func (a *coordinatorActor) keep(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *call:
		a.core.Queue(m.request, m)
	case reply:
		a.port.returned(m)
	default:
		if request := fromActor(ctx); request != nil {
			a.core.Queue(request, ctx.Sender())
		}
	}
}

// failed notes a failed actor, the coordinator's own included, and sends fences.
//
// The events actor mends its own log, and the coordinator waits for nothing from it: its failure
// is counted, and fails only what its readers asked for.
func (a *coordinatorActor) failed(f coordinator.Failure) {
	if f.Actor == "events" {
		a.core.Restarted()
		return
	}
	own := f.Actor == "coordinator"
	f.Dirty = f.Dirty || own && a.serving
	if own {
		a.serving = false
		a.failures = slices.Insert(a.failures, 0, f) // a broken core is mended first
	} else {
		a.failures = append(a.failures, f)
	}
	a.fences += a.port.sendFences()
}

// fenced begins the recovery from one failure when all actors have sent back what
// they were lent.
func (a *coordinatorActor) fenced() {
	a.fences--
	if a.fences > 0 || a.serving || len(a.failures) == 0 {
		return // serving: the core has panicked, and its own failure is on its way
	}
	f := a.failures[0]
	a.failures = a.failures[1:]
	a.port.recall()
	a.serving = true
	a.core.Failed(f)
	a.serving = false
	if len(a.failures) > 0 {
		a.fences += a.port.sendFences()
	}
}

// serve tells requests from answers. It drops an answer of an epoch that is over, and a
// record that comes from outside the engine: that has a sender, or was lent to no actor.
func (a *coordinatorActor) serve(ctx actor.Context, message any) {
	switch m := message.(type) {
	case *call:
		a.core.Submit(m.request, m)
	case *callerGone:
		a.core.Departed()
	case reply:
		if ctx.Sender() != nil {
			fromActor(ctx)
			return
		}
		// A record that was lent to no actor comes from outside and may be nil.
		if a.port.returned(m) && a.core.Awaits() && m.RequestEpoch() == a.core.Epoch() {
			a.core.Answered()
		}
	default:
		if request := fromActor(ctx); request != nil {
			a.core.Submit(request, ctx.Sender())
		}
	}
}

// reply is a record that an actor has sent back: it says of which epoch it is.
type reply interface{ RequestEpoch() uint32 }

// fromActor returns the request that a host's actor has sent; nil for messages of
// the library, which need no answer. What is no request is sent back in an Aborted, so
// that a host that has sent it does not wait for ever.
func fromActor(ctx actor.Context) any {
	m := ctx.Message()
	_, request := m.(messages.Request)
	var refusal error
	switch {
	case !request && (ctx.Sender() == nil || library(m)):
		return nil
	case !request:
		refusal = refusals.NoRequest(m)
	default:
		refusal = empty(m)
	}
	if refusal == nil {
		return m
	}
	if sender := ctx.Sender(); sender != nil {
		ctx.Send(sender, &messages.Aborted{Request: m, Err: refusal})
	}
	return nil
}

// library tells messages of the actor library, which an actor gets when it starts,
// again after a failure, and when it stops: none of them is answered.
func library(message any) bool {
	switch message.(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated,
		*actor.PoisonPill:
		return true
	}
	return false
}
