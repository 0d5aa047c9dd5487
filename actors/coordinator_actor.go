package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/messages"
)

// coordinatorActor is the shell of the coordinator. Requests come from the
// facade as calls, or from hosts that are actors as the messages themselves;
// everything else that comes is an answer to what the coordinator sent.
type coordinatorActor struct {
	core *coordinator.Coordinator
	port *port
}

// Receive passes requests and answers to the core.
func (a *coordinatorActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *call:
		a.core.Submit(m.request, m)
	case *messages.Match, *messages.Apply, *messages.Forget, *messages.Locate, *messages.Snapshot, *messages.Contents,
		*messages.PoolWork, *messages.Move, *messages.Audit, *messages.ResizePool, *messages.ResizeDevice:
		a.core.Answered()
	case *messages.Admit, *messages.Commit, *messages.Append, *messages.Release, *messages.Rewind, *messages.Fork,
		*messages.ReadTables, *messages.Lookup, *messages.PinPrefix, *messages.UnpinPrefix, *messages.Prefetch,
		*messages.Invalidate, *messages.Reset, *messages.Rebalance, *messages.ReadStats, *messages.ReadEvents,
		*messages.ReadSnapshot, *messages.ReadContents, *messages.Check:
		a.core.Submit(m, ctx.Sender())
	}
}

// port carries the core's messages straight to the mailboxes of the others.
type port struct {
	system    *actor.ActorSystem
	tree      *mailbox.Mailbox
	pools     []*mailbox.Mailbox
	offloader *mailbox.Mailbox
	events    *mailbox.Mailbox
	clock     func() time.Duration
}

var _ coordinator.Port = (*port)(nil)

func (p *port) Tree(message any)                  { p.tree.PostUserMessage(message) }
func (p *port) Pool(work *messages.PoolWork)      { p.pools[work.Pool].PostUserMessage(work) }
func (p *port) PoolAudit(audit *messages.Audit)   { p.pools[audit.Pool].PostUserMessage(audit) }
func (p *port) ResizePool(r *messages.ResizePool) { p.pools[r.Pool].PostUserMessage(r) }
func (p *port) Offloader(message any)             { p.offloader.PostUserMessage(message) }
func (p *port) Now() time.Duration                { return p.clock() }
func (p *port) Events(request, sender any)        { p.events.PostUserMessage(&forward{request, sender, p}) }

// Begin asks a caller whether it still waits; actors always do.
func (p *port) Begin(sender any) bool {
	c, ok := sender.(*call)
	return !ok || c.begin()
}

// Reply answers a caller or an actor.
func (p *port) Reply(request, sender any) {
	switch to := sender.(type) {
	case *call:
		to.finish()
	case *actor.PID:
		if to != nil {
			p.system.Root.Send(to, request)
		}
	}
}

// forward is a request that the events actor answers itself.
type forward struct {
	request, sender any
	port            *port
}

// Abort answers the caller when the events actor is gone.
func (f *forward) Abort(err error) {
	if c, ok := f.sender.(*call); ok {
		c.Abort(err)
	}
}
