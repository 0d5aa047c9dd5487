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
	forest
	host      bool // there is host memory: the offloader is told what is forgotten
	following bool // pools of states are told which checkpoints follow which
	untold    bool // not of all, see followLimit
}

// expire gives the default priority to the watched blocks whose priority ends at or
// before now. The pools know of their own pages by themselves.
func (t *holdings) expire(now time.Duration) {
	// Time never goes back, even if a message comes with an older Now.
	t.base.timers.now = max(t.base.timers.now, now)
	for t.base.timers.next() <= now && len(t.base.timers.heap) > 0 {
		b := t.base.timers.heap[0].block
		t.base.timers.stop(b)
		old := t.base.blocks.priority[b]
		t.base.blocks.priority[b] = messages.DefaultPriority
		// A block whose priority was the default until its end has changed for no
		// one.
		if old != messages.DefaultPriority {
			t.reportChange(b, old, false)
		}
	}
}

// setRetention gives a block that some pool holds the priority and the end of a
// retention, and tells pools and offloader if they have changed.
func (t *holdings) setRetention(b protocol.BlockID, to term, now time.Duration) {
	// A priority that has ended but is not noted yet is the default for the pools.
	// Comparing with it unnoted would report a change that is none, or miss one.
	t.base.expireNow(b)
	old := t.base.blocks.priority[b]
	end, _ := t.base.timers.of(b)
	t.base.timers.start(b, now, to.duration)
	t.base.blocks.priority[b] = to.priority
	// A new end with the same priority is a change too: the pools run the end by
	// themselves.
	if next, _ := t.base.timers.of(b); old != to.priority || end != next {
		t.reportChange(b, old, true)
	}
	// timers.start has stopped the old timer, so a block that was watched is watched
	// again here.
	if t.base.recording || t.base.arena.inHostMemory(b) {
		t.base.timers.watch(b)
	}
}

// reportChange reports that a block has another priority, or another end of it, to
// all that keep it: as an event, to the offloader, and to the pools if they do not
// know.
func (t *holdings) reportChange(b protocol.BlockID, old messages.Priority, pools bool) {
	x, i := t.base.arena.at(b)
	for p := range t.base.arena.pools {
		page, tier, ok := t.base.arena.locations(x, p)[i].Page()
		switch {
		case !ok:
			continue
		// The offloader keeps no ends, so a new end alone is nothing to it.
		case tier == messages.Secondary && old != t.base.blocks.priority[b]:
			t.base.effect(protocol.HostReprioritize, p, b, messages.NoPage)
		// pools is false when a priority ends: the pool of a device page has ended it
		// at the same time by itself.
		case tier == messages.Primary && pools:
			t.base.effect(protocol.Reprioritize, p, b, page)
		}
		if old != t.base.blocks.priority[b] {
			t.base.recordPriority(b, p, old)
		}
	}
}

// moveBlock notes that contents are in the other tier from now on, or in a page of
// another number. Of contents that were brought to the device the pool learns block
// and priority by an effect: it took the page without knowing them. A block that
// comes back to the device keeps its watch. It is not needed any more if events are
// off; when the end comes there is then nothing to report.
func (t *holdings) moveBlock(m protocol.BlockMove) {
	p := int(m.Pool)
	if !t.base.arena.alive(m.Block) {
		panic(fmt.Sprintf("tree: block %d moves in pool %d, which is not in the tree", m.Block, p))
	}
	x, i := t.base.arena.at(m.Block)
	_, from, ok := t.base.arena.locations(x, p)[i].Page()
	if !ok {
		panic(fmt.Sprintf("tree: block %d moves in pool %d, which does not hold it", m.Block, p))
	}
	_, to, _ := m.To.Page()
	// The block is held before and after, by the same pools. So no stamp comes to
	// count, and the treap is not refreshed.
	t.base.arena.setLocation(x, i, p, m.To)
	if from != to {
		t.base.recordTier(m.Block, p, to)
	}
	// From here on the tree ends the priority: the pool does not have the page any
	// more, and the offloader has no clock.
	if to == messages.Secondary {
		t.base.expireNow(m.Block)
		t.base.timers.watch(m.Block)
	}
	if from == messages.Secondary && to == messages.Primary {
		page, _, _ := m.To.Page()
		t.base.effect(protocol.Attach, p, m.Block, page)
		t.follow(p, x, i, page)
	}
}

// takeOver removes a block whose page a sequence takes over. The sequence writes its
// own tokens over a part of the page, so the block must not be found from this
// message on, in any pool. If other blocks follow, it stays as a ghost.
func (t *holdings) takeOver(b protocol.BlockID) {
	if !t.base.arena.alive(b) {
		panic(fmt.Sprintf("tree: takeover of block %d, which is not in the tree", b))
	}
	t.reportForgetting(b)
	for p := range t.base.arena.pools {
		// dropBlock may merge or free nodes, so the place of b is asked for again
		// each time.
		// The last pool's loss may end the block itself.
		if x, i := t.base.arena.at(b); t.base.arena.locations(x, p)[i] != protocol.Nowhere {
			t.dropBlock(b, p)
			if !t.base.arena.alive(b) {
				return
			}
		}
	}
}

// reportForgetting reports that a block is forgotten in all pools, while it is still
// known. It runs before the block is dropped: effects and changes state the depth and
// the block before, which the tree has only while the block is alive.
func (t *holdings) reportForgetting(b protocol.BlockID) {
	for p := range t.base.arena.pools {
		x, i := t.base.arena.at(b)
		l := t.base.arena.locations(x, p)[i]
		if l == protocol.Nowhere {
			continue
		}
		t.detach(b, p, l)
		t.base.recordRemoved(b, p)
	}
}

// detach reports that pool p forgets b, which it keeps at l.
func (t *holdings) detach(b protocol.BlockID, p int, l protocol.Location) {
	if page, tier, _ := l.Page(); tier == messages.Primary {
		t.base.effect(protocol.Detach, p, b, page)
	}
	// Host memory may have a clean copy of a block that is on the device. The tree
	// does not know of copies, so the offloader is told in either case.
	if t.host {
		t.base.effect(protocol.HostForget, p, b, messages.NoPage)
	}
}

// attachCheckpoint makes a page the checkpoint of a block, which lacks one in the
// pool. It is no store: the block keeps its stamp.
func (t *holdings) attachCheckpoint(b protocol.BlockID, p int, page messages.PageID) {
	if !t.base.arena.alive(b) || p < t.base.arena.tokenPools || p >= t.base.arena.selfPools {
		panic(fmt.Sprintf("tree: checkpoint of block %d in pool %d", b, p))
	}
	x, i := t.base.arena.at(b)
	if !t.base.arena.held(x, i) || t.base.arena.locations(x, p)[i] != protocol.Nowhere {
		panic(fmt.Sprintf("tree: checkpoint of block %d in pool %d, which is not held or has one", b, p))
	}
	// The block was held before, so it has its attributes, and blocksHeld stays.
	t.base.arena.setLocation(x, i, p, protocol.OnDevice(page))
	// A checkpoint follows no stored block, so it is an event of its own.
	t.base.log.event = noEvent
	t.base.effect(protocol.Attach, p, b, page)
	t.follow(p, x, i, page)
	t.base.recordStored(segment{x, i, i + 1}, p)
	if i == 0 {
		t.base.refreshUpwards(x)
	}
}
