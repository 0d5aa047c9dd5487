package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// records are the messages that the coordinator sends and gets back, reused
// from round to round. A recovery takes new ones: those of the epoch that is
// over may still be in the hands of an actor.
type records struct {
	match         protocol.Match
	rematchRecord protocol.Match // one item, judged again without partial reuse
	apply         protocol.Apply
	work          []protocol.PoolWork // by pool
	move          protocol.Move
	offer         protocol.OffloadAhead // pages to copy ahead of demand
	forget        protocol.Forget
	locate        protocol.Locate
	snapshot      protocol.Snapshot
	contents      protocol.Contents
	audit         auditing
}

func newRecords(pools int) *records {
	r := &records{work: make([]protocol.PoolWork, pools)}
	r.move.Pools = make([]protocol.PoolMove, pools)
	for p := range r.work {
		r.work[p].Pool = messages.PoolID(p)
	}
	return r
}
