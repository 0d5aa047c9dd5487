package coordinator

import "github.com/kvactor/kvactor/messages"

// records are the messages that the coordinator sends and gets back, reused
// from round to round. A recovery takes new ones: those of the epoch that is
// over may still be in the hands of an actor.
type records struct {
	match         messages.Match
	rematchRecord messages.Match // one item, judged again without partial reuse
	apply         messages.Apply
	work          []messages.PoolWork // by pool
	move          messages.Move
	offer         messages.Ahead // pages to copy ahead of demand
	forget        messages.Forget
	locate        messages.Locate
	snapshot      messages.Snapshot
	contents      messages.Contents
	audit         auditing
}

func newRecords(pools int) *records {
	r := &records{work: make([]messages.PoolWork, pools)}
	r.move.Pools = make([]messages.PoolMove, pools)
	for p := range r.work {
		r.work[p].Pool = messages.PoolID(p)
	}
	return r
}
