package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// hostWaits are the blocks in host memory, by pool, that refused prompts of a batch have matched.
// The prompts will be tried again, so these blocks are displaced last until then, or until 64
// requests have been released, as the pools evict last what was matched on the device. Only
// policies that predict the next use have that order.
//
// The offloader is told when the pools have begun the wait: with the work that it gets for the
// prompts that are admitted, or in a message of its own if no prompt is admitted.
type hostWaits [][]protocol.BlockID

// note notes what a prompt has matched in a pool, and tells whether any of it is in host memory.
func (w hostWaits) note(p int, m *protocol.MatchItem) (some bool) {
	for k, at := range m.Pages[p][:m.Blocks] {
		if _, tier, ok := at.Page(); ok && tier == messages.Secondary {
			w[p], some = append(w[p], m.IDs[k]), true
		}
	}
	return some
}

// tell adds the blocks to the work of the offloader. Those of one batch have one place in the
// order of waits, that of the wait that began last.
func (w hostWaits) tell(move *moveBatch, pools *poolBatches) {
	for p, blocks := range w {
		if len(blocks) > 0 {
			q := move.pool(p)
			q.Awaited, q.Ranking = append(q.Awaited, blocks...), pools.work[p].Ranking
		}
	}
	w.clear()
}

// clear forgets all blocks.
func (w hostWaits) clear() {
	for p := range w {
		w[p] = w[p][:0]
	}
}

// unclaimed tells the offloader what a batch that waits has matched.
func (a *admission) unclaimed() {
	a.out.pools.received()
	a.wait(a, "awaiting", (*admission).endParked)
	a.out.move.reset()
	a.batch.waits.tell(&a.out.move, &a.out.pools)
	a.out.move.send()
}

// endParked ends the sequences of a batch that waits; when it is tried again, it
// begins with its first stage.
func (a *admission) endParked() {
	a.out.move.received()
	for i := range a.batch.items {
		a.endRefused(&a.batch.items[i])
	}
	a.batch.items = a.batch.items[:0]
	a.end()
}
