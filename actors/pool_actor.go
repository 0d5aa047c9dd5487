package actors

import (
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool"
)

// poolActor is the shell of one pool's device pages. After a panic within a change it
// serves nothing until a RebuildPool brings a sound state.
type poolActor struct {
	core        *pool.Pool
	coordinator *mailbox.Mailbox
	point       failpoint.Point
	// changing is set while a change is under way. It stays set after a panic: then
	// only a RebuildPool is served.
	changing bool
	sampler  *pageSampler // nil: no pages are followed
}

// Receive serves one batch and sends it back. The record is the coordinator's and lent
// until the answer; the core copies what it keeps.
func (a *poolActor) Receive(ctx actor.Context) {
	message := ctx.Message()
	switch m := message.(type) {
	case *fence:
		a.coordinator.PostUserMessage(m)
		return
	default:
		if library(m) {
			return
		}
	}
	a.point.Hit("pool")
	if _, rebuild := message.(*protocol.RebuildPool); a.changing && !rebuild {
		// The record is not sent back: the coordinator is told of the failure by the
		// supervisor, gets its records back by a fence, and asks again.
		return
	}
	// Every message counts as a change, also those that only read: to tell them apart
	// would spare a rebuild after a bug, no more.
	a.changing = true
	switch m := message.(type) {
	case *protocol.PoolWork:
		a.point.Change("pool", func() { a.core.Do(m) })
		if a.sampler != nil {
			a.sampler.done(m)
		}
	// The memory itself is resized later, by the offloader, when all that uses it has passed.
	case *protocol.ResizePool:
		a.forgetSamples()
		a.point.Change("pool", func() { a.core.Resize(m) })
	case *protocol.RebuildPool:
		a.forgetSamples()
		a.core = a.core.Rebuilt(m)
	case *protocol.Audit:
		auditPool(a.core, m)
	default:
		a.changing = false
		return
	}
	a.changing = false
	a.coordinator.PostUserMessage(message)
}

// forgetSamples ends what is known of the pages that are followed: they get other numbers.
func (a *poolActor) forgetSamples() {
	if a.sampler != nil {
		a.sampler.reset()
	}
}

// auditPool compares the references that the coordinator knows of with those
// that the pool has, and says what the pages cache. It asks the pool by an operation, as
// the coordinator does, so that the audit sees what a request would see.
func auditPool(p *pool.Pool, m *protocol.Audit) {
	problems := []error{p.Check()}
	pages := make([]messages.PageID, len(m.References))
	for i := range pages {
		pages[i] = messages.PageID(i)
	}
	work := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Inspect, Pages: pages}}}
	p.Do(&work)
	for i, share := range work.Ops[0].Shares {
		if share.References != m.References[i] {
			problems = append(problems, fmt.Errorf("pool %s: page %d has %d references, sequences hold %d",
				p.Name(), i, share.References, m.References[i]))
		}
	}
	for i, t := range m.Tenants {
		if own := p.TenantOf(messages.PageID(i)); m.References[i] > 0 && t != protocol.AnyTenant &&
			own != t && len(p.Quotas()) > 0 {
			problems = append(problems,
				fmt.Errorf("pool %s: page %d is on the account of tenant %d, sequences of %d hold it", p.Name(),
					i, own, t))
		}
	}
	m.Problem = errors.Join(problems...)
	m.Attached = [][]protocol.PageBlock{p.Attached()}
}
