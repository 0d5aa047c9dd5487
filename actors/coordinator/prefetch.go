package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// A Prefetch brings what host memory holds of a prefix to the device. Its stages are those of an
// admission that takes no other page, and drops all pages where an admission adds references of
// beams. So when it is answered it holds nothing, and what it has brought may be evicted like
// everything that is cached.

// startPrefetch enters the prefix.
func (a *admission) startPrefetch(r *messages.Prefetch) {
	a.prefetch, r.OnboardedPages = r, 0
	a.batch.storedOnly = true
	r.Err = a.batch.addPrefix(&r.Prefix, len(r.Prefix.Tokens))
}

// dropPrefetched drops all pages again. The drop leaves a use on everything that was found, on the
// device or brought there: what a host asks for in advance is about to be used. What did arrive
// stays cached, also if a copy failed.
func (a *admission) dropPrefetched() {
	r, it := a.prefetch, &a.batch.items[0]
	if it.refused != nil {
		r.Err = it.refused
	}
	if !it.served() {
		return
	}
	for p := it.pools.first; p < it.pools.end; p++ {
		a.out.pools.add(p, protocol.PoolOp{
			Kind: protocol.Drop, Pages: it.sequence.Table(p), Use: it.sequence.Use, Awaited: true,
		})
		if it.refused == nil {
			r.OnboardedPages += it.plans[p].onboarded
		}
	}
}
