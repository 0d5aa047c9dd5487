package tree

import (
	"fmt"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Apply changes the tree, part by part in the order of the fields of a. The order of
// the parts has reasons. Moves say what pools and offloader have done already, so
// they come first: a page that a move frees may be offered by a store of the same
// message. A block that is taken over has left before claims and stores look for
// blocks. Symbols are released last, when the stored blocks have their own
// references, so that no entry is freed and made again with another number.
func (t *Tree) Apply(a *protocol.Apply) {
	t.log.begin(a.Effects)
	t.expire(a.Now)
	// Moves that drop contents go by runs. All others, to another tier or page, are
	// rare.
	for moves := a.Moves; len(moves) > 0; {
		n := t.dropRun(moves)
		if n == 0 {
			t.moveBlock(moves[0])
			n = 1
		}
		moves = moves[n:]
	}
	for _, b := range a.Takeovers {
		t.takeOver(b)
	}
	for i := range a.Claims {
		t.claim(&a.Claims[i], a.Now)
	}
	for i := range a.Stores {
		t.store(&a.Stores[i], a.Now)
	}
	for i := range a.Checkpoints {
		c := &a.Checkpoints[i]
		t.attachCheckpoint(c.Block, int(c.Pool), c.Page)
	}
	for _, tokens := range a.ReleasedSymbols {
		t.symbols.release(tokens)
	}
	a.Effects = t.log.end()
	a.NextExpiry = t.timers.next()
	t.verify()
}

// expire gives the default priority to the watched blocks whose priority ends at or
// before now. The pools know of their own pages by themselves.
func (t *Tree) expire(now time.Duration) {
	// Time never goes back, even if a message comes with an older Now.
	t.timers.now = max(t.timers.now, now)
	for t.timers.next() <= now && len(t.timers.heap) > 0 {
		b := t.timers.heap[0].block
		t.timers.stop(b)
		old := t.blocks.priority[b]
		t.blocks.priority[b] = messages.DefaultPriority
		// A block whose priority was the default until its end has changed for no
		// one.
		if old != messages.DefaultPriority {
			t.reportChange(b, old, false)
		}
	}
}

// expireNow notes the default priority of a block whose priority has ended. It is
// called wherever the priority is read: see timers.
func (t *Tree) expireNow(b protocol.BlockID) {
	if t.timers.ended(b) {
		t.timers.stop(b)
		t.blocks.priority[b] = messages.DefaultPriority
	}
}

// setRetention gives a block that some pool holds the priority and the end of a
// retention, and tells pools and offloader if they have changed.
func (t *Tree) setRetention(b protocol.BlockID, to term, now time.Duration) {
	// A priority that has ended but is not noted yet is the default for the pools.
	// Comparing with it unnoted would report a change that is none, or miss one.
	t.expireNow(b)
	old := t.blocks.priority[b]
	end, _ := t.timers.of(b)
	t.timers.start(b, now, to.duration)
	t.blocks.priority[b] = to.priority
	// A new end with the same priority is a change too: the pools run the end by
	// themselves.
	if next, _ := t.timers.of(b); old != to.priority || end != next {
		t.reportChange(b, old, true)
	}
	// timers.start has stopped the old timer, so a block that was watched is watched
	// again here.
	if t.recording || t.inHostMemory(b) {
		t.timers.watch(b)
	}
}

// reportChange reports that a block has another priority, or another end of it, to
// all that keep it: as an event, to the offloader, and to the pools if they do not
// know.
func (t *Tree) reportChange(b protocol.BlockID, old messages.Priority, pools bool) {
	x, i := t.at(b)
	for p := range t.pools {
		page, tier, ok := t.locations(x, p)[i].Page()
		switch {
		case !ok:
			continue
		// The offloader keeps no ends, so a new end alone is nothing to it.
		case tier == messages.Secondary && old != t.blocks.priority[b]:
			t.effect(protocol.HostReprioritize, p, b, messages.NoPage)
		// pools is false when a priority ends: the pool of a device page has ended it
		// at the same time by itself.
		case tier == messages.Primary && pools:
			t.effect(protocol.Reprioritize, p, b, page)
		}
		if old != t.blocks.priority[b] {
			t.recordPriority(b, p, old)
		}
	}
}

// inHostMemory tells whether some pool keeps a block in host memory only.
func (t *Tree) inHostMemory(b protocol.BlockID) bool {
	x, i := t.at(b)
	for p := range t.pools {
		if _, tier, ok := t.locations(x, p)[i].Page(); ok && tier == messages.Secondary {
			return true
		}
	}
	return false
}

// moveBlock notes that contents are in the other tier from now on, or in a page of
// another number. Of contents that were brought to the device the pool learns block
// and priority by an effect: it took the page without knowing them. A block that
// comes back to the device keeps its watch. It is not needed any more if events are
// off; when the end comes there is then nothing to report.
func (t *Tree) moveBlock(m protocol.BlockMove) {
	p := int(m.Pool)
	if !t.alive(m.Block) {
		panic(fmt.Sprintf("tree: block %d moves in pool %d, which is not in the tree", m.Block, p))
	}
	x, i := t.at(m.Block)
	_, from, ok := t.locations(x, p)[i].Page()
	if !ok {
		panic(fmt.Sprintf("tree: block %d moves in pool %d, which does not hold it", m.Block, p))
	}
	_, to, _ := m.To.Page()
	// The block is held before and after, by the same pools. So no stamp comes to
	// count, and the treap is not refreshed.
	t.setLocation(x, i, p, m.To)
	if from != to {
		t.recordTier(m.Block, p, to)
	}
	// From here on the tree ends the priority: the pool does not have the page any
	// more, and the offloader has no clock.
	if to == messages.Secondary {
		t.expireNow(m.Block)
		t.timers.watch(m.Block)
	}
	if from == messages.Secondary && to == messages.Primary {
		page, _, _ := m.To.Page()
		t.effect(protocol.Attach, p, m.Block, page)
	}
}

// takeOver removes a block whose page a sequence takes over. The sequence writes its
// own tokens over a part of the page, so the block must not be found from this
// message on, in any pool. If other blocks follow, it stays as a ghost.
func (t *Tree) takeOver(b protocol.BlockID) {
	if !t.alive(b) {
		panic(fmt.Sprintf("tree: takeover of block %d, which is not in the tree", b))
	}
	t.reportForgetting(b)
	for p := range t.pools {
		// dropBlock may merge or free nodes, so the place of b is asked for again
		// each time.
		// The last pool's loss may end the block itself.
		if x, i := t.at(b); t.locations(x, p)[i] != protocol.Nowhere {
			t.dropBlock(b, p)
			if !t.alive(b) {
				return
			}
		}
	}
}

// reportForgetting reports that a block is forgotten in all pools, while it is still
// known. It runs before the block is dropped: effects and changes state the depth and
// the block before, which the tree has only while the block is alive.
func (t *Tree) reportForgetting(b protocol.BlockID) {
	for p := range t.pools {
		x, i := t.at(b)
		l := t.locations(x, p)[i]
		if l == protocol.Nowhere {
			continue
		}
		t.detach(b, p, l)
		t.recordRemoved(b, p)
	}
}

// detach reports that pool p forgets b, which it keeps at l.
func (t *Tree) detach(b protocol.BlockID, p int, l protocol.Location) {
	if page, tier, _ := l.Page(); tier == messages.Primary {
		t.effect(protocol.Detach, p, b, page)
	}
	// Host memory may have a clean copy of a block that is on the device. The tree
	// does not know of copies, so the offloader is told in either case.
	if t.host {
		t.effect(protocol.HostForget, p, b, messages.NoPage)
	}
}

// claim marks what a sequence reuses as used now. It leaves out blocks that are not
// there any more or that no pool holds: the sequence may claim blocks that its
// windows have passed.
func (t *Tree) claim(c *protocol.ClaimItem, now time.Duration) {
	stamp := t.nextStamp()
	t.retention.read(c.Retention, c.Prompt, t.tpb)
	for i := 0; i < len(c.Blocks); {
		if !t.alive(c.Blocks[i]) {
			i++
			continue
		}
		x, at := t.at(c.Blocks[i])
		// The id may have been freed and given to a block of another depth.
		if t.nodes[x].depth+at != int32(i) {
			i++
			continue
		}
		// As many blocks of the run as the claim has in the same order are one step,
		// so a claim costs a search for each node and not for each block.
		n := int32(common(t.ids(x)[at:], c.Blocks[i:]))
		t.claimRun(c, segment{x, at, at + n}, stamp, now)
		i += int(n)
	}
	// The source is reused in part, so it gets neither session nor retention of the
	// request: both are for blocks that the sequence has whole.
	if c.Source != protocol.NoBlock && t.alive(c.Source) {
		t.touch(c.Source, stamp)
	}
}

// common returns the number of blocks that both begin with.
func common(a, b []protocol.BlockID) int {
	n := min(len(a), len(b))
	// With equal lengths the compiler can leave out bounds checks in the loop.
	a, b = a[:n], b[:n]
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// claimRun marks those blocks of a segment that some pool holds as used now.
func (t *Tree) claimRun(c *protocol.ClaimItem, g segment, stamp uint32, now time.Duration) {
	// solid and plain are decided once for the run. For a plain claim of a run
	// without holes the loop then only writes stamps.
	solid := t.heldThroughout(g.node, -1)
	plain := t.sessions.none() && t.retention.empty()
	depth := t.nodes[g.node].depth
	for k, b := range t.ids(g.node)[g.lo:g.hi] {
		i := g.lo + int32(k)
		if !solid && !t.held(g.node, i) {
			continue
		}
		t.blocks.stamp[b] = stamp
		if plain {
			continue
		}
		t.shareSession(b, c.Session)
		if term, ok := t.retention.of(depth + i); ok {
			t.setRetention(b, term, now)
		}
	}
	// Only a run's first block is in a treap. The other stamps are read when a split
	// or a merge makes their blocks first.
	if g.lo == 0 {
		t.refreshUpwards(g.node)
	}
}

// touch gives a block a new stamp.
func (t *Tree) touch(b protocol.BlockID, stamp uint32) {
	t.blocks.stamp[b] = stamp
	if x, i := t.at(b); i == 0 {
		t.refreshUpwards(x)
	}
}

// shareSession applies the rule of sessions to a block that a sequence of the named
// session, or of none, reuses whole or stores too: if that is another session the
// block belongs to none from now on. A block of two sessions would be lost to the
// second when the first is forgotten, so it belongs to neither and is forgotten by
// prefix, salt or eviction only.
func (t *Tree) shareSession(b protocol.BlockID, session string) {
	s := t.blocks.sessionOf(b)
	if s != none && t.sessions.names[s] != session {
		t.sessions.remove(s)
		t.blocks.setSession(b, none)
	}
}
