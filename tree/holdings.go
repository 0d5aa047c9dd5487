package tree

import (
	"fmt"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// holdings changes what pools hold of stored blocks and how blocks are kept, outside
// of stores: it moves and drops contents, and changes priorities. Blocks that no pool
// holds any more lose their attributes and, unless others follow, leave the tree.
type holdings struct {
	reporter
	host      bool // there is host memory: the offloader is told what is forgotten
	following bool // pools of states are told which checkpoints follow which
	untold    bool // not of all, see followLimit
	appraiser appraiser
	// savePriority is the least of contents that a store would take, and unsaved how many of
	// them the message has dropped.
	savePriority messages.Priority
	unsaved      int
}

// expire gives the default priority to the blocks whose priority ends at or before now.
func (t *holdings) expire(now time.Duration) {
	// Time never goes back, even if a message comes with an older Now.
	t.arena.timers.now = max(t.arena.timers.now, now)
	for t.arena.timers.next() <= t.arena.timers.now && len(t.arena.timers.heap) > 0 {
		b := t.arena.timers.heap[0].block
		t.arena.timers.stop(b)
		t.setPriority(b, messages.DefaultPriority)
	}
}

// setRetention gives a block that some pool holds the priority and the end of a
// retention, and tells pools and offloader if the priority has changed.
func (t *holdings) setRetention(b protocol.BlockID, to term) {
	t.arena.timers.start(b, to.duration)
	t.setPriority(b, to.priority)
}

// setPriority gives a block another priority, and reports it to all that keep the block: as an
// event, to the offloader and to the pools.
func (t *holdings) setPriority(b protocol.BlockID, to messages.Priority) {
	old := t.arena.blocks[b].priority
	if old == to {
		return
	}
	t.arena.blocks[b].priority = to
	for p := range t.arena.pools {
		switch page, tier, ok := t.arena.locations[p][b].Page(); {
		case !ok:
			continue
		case tier == messages.Secondary:
			t.effect(protocol.HostReprioritize, p, b, messages.NoPage)
		default:
			t.effect(protocol.Reprioritize, p, b, page)
		}
		if c := t.record(protocol.PriorityChanged, p, b, 0, to); c != nil {
			c.OldPriority = old
		}
	}
}

// moveBlock notes that contents are gone, or in the other tier from now on, or in a page of
// another number. Of contents that were brought to the device the pool learns block
// and priority by an effect: it took the page without knowing them.
func (t *holdings) moveBlock(m protocol.BlockMove) {
	p := int(m.Pool)
	if !t.arena.alive(m.Block) {
		panic(fmt.Sprintf("tree: block %d moves in pool %d, which is not in the tree", m.Block, p))
	}
	_, from, ok := t.arena.locations[p][m.Block].Page()
	if !ok {
		panic(fmt.Sprintf("tree: block %d moves in pool %d, which does not hold it", m.Block, p))
	}
	if m.To == protocol.Nowhere {
		// The change is recorded first: dropBlock may free the id.
		t.record(protocol.BlocksRemoved, p, m.Block, 0, 0)
		if !m.Displaced {
			t.countUnsaved(m.Block)
		}
		t.dropBlock(m.Block, p)
		return
	}
	_, to, _ := m.To.Page()
	// The block is held before and after, by the same pools. So no stamp comes to
	// count, and the treap is not refreshed.
	t.arena.place(p, m.Block, m.To)
	if from != to {
		t.record(protocol.TierChanged, p, m.Block, to, 0)
	}
	if from == messages.Secondary && to == messages.Primary {
		page, _, _ := m.To.Page()
		t.effect(protocol.Attach, p, m.Block, page)
	}
}

// followReturned tells pools of states between which others the checkpoints lie that moves have
// brought back to the device, whose effects are the only ones of that kind so far. It comes after
// all moves, since a later one may take a checkpoint that a returned one would be told of.
func (t *holdings) followReturned() {
	for _, e := range t.log.effects {
		if e.Kind == protocol.Attach {
			for i, b := range e.Blocks {
				t.follow(int(e.Pool), b, e.Pages[i])
			}
		}
	}
}

// attachCheckpoint makes a page the checkpoint of a block, which lacks one in the
// pool. It is no store: the block has its attributes and keeps its stamp.
func (t *holdings) attachCheckpoint(b protocol.BlockID, p int, page messages.PageID) {
	if !t.arena.alive(b) || p < t.arena.tokenPools || p >= t.arena.selfPools {
		panic(fmt.Sprintf("tree: checkpoint of block %d in pool %d", b, p))
	}
	if t.arena.blocks[b].stamp == 0 || t.arena.locations[p][b] != protocol.Nowhere {
		panic(fmt.Sprintf("tree: checkpoint of block %d in pool %d, which is a ghost or has one", b, p))
	}
	t.arena.place(p, b, protocol.OnDevice(page))
	t.appraiser.relocated(b)
	// A checkpoint follows no stored block, so it is an event of its own.
	t.log.event = noEvent
	t.effect(protocol.Attach, p, b, page)
	t.follow(p, b, page)
	t.recordStored(b, p)
	t.arena.refresh(b)
}

// countUnsaved counts contents of a block that are about to be dropped, if a store would have
// taken them.
func (t *holdings) countUnsaved(b protocol.BlockID) {
	if t.saveable(b) {
		t.unsaved++
	}
}

// saveable tells whether a store would take contents of a block: of a whole one, with the
// priority. A block of an encoder's input is whole, however many of its tokens are padding.
func (t *holdings) saveable(b protocol.BlockID) bool {
	return t.arena.blocks[b].priority >= t.savePriority && len(t.arena.tokensOf(b)) == t.arena.tpb
}

// dropBlock removes a block from pool p, which holds it. If no other pool holds the block, it has
// no attributes any more and, unless others follow, is freed. It reports no effect: the caller has.
func (t *holdings) dropBlock(b protocol.BlockID, p int) {
	t.arena.place(p, b, protocol.Nowhere)
	t.appraiser.relocated(b)
	if !t.arena.held(b) {
		t.arena.expireAttributes(b)
		if t.arena.isLeaf(b) {
			t.prune(b)
			return
		}
	}
	t.arena.refresh(b)
}
