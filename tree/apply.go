package tree

import (
	"fmt"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Apply changes the tree, part by part in the order of the fields of a.
func (t *Tree) Apply(a *protocol.Apply) {
	t.log.begin(a.Effects)
	t.expire(a.Now)
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
	t.timers.now = max(t.timers.now, now)
	for t.timers.next() <= now && len(t.timers.heap) > 0 {
		b := t.timers.heap[0].block
		t.timers.stop(b)
		old := t.blocks.priority[b]
		t.blocks.priority[b] = messages.DefaultPriority
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
	t.expireNow(b)
	old := t.blocks.priority[b]
	end, _ := t.timers.of(b)
	t.timers.start(b, now, to.duration)
	t.blocks.priority[b] = to.priority
	if next, _ := t.timers.of(b); old != to.priority || end != next {
		t.reportChange(b, old, true)
	}
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
		case tier == messages.Secondary && old != t.blocks.priority[b]:
			t.effect(protocol.HostReprioritize, p, b, messages.NoPage)
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
// and priority by an effect: it took the page without knowing them.
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
	t.setLocation(x, i, p, m.To)
	if from != to {
		t.recordTier(m.Block, p, to)
	}
	if to == messages.Secondary {
		t.expireNow(m.Block)
		t.timers.watch(m.Block)
	}
	if from == messages.Secondary && to == messages.Primary {
		page, _, _ := m.To.Page()
		t.effect(protocol.Attach, p, m.Block, page)
	}
}

// takeOver removes a block whose page a sequence takes over.
func (t *Tree) takeOver(b protocol.BlockID) {
	if !t.alive(b) {
		panic(fmt.Sprintf("tree: takeover of block %d, which is not in the tree", b))
	}
	t.reportForgetting(b)
	for p := range t.pools {
		// The last pool's loss may end the block itself.
		if x, i := t.at(b); t.locations(x, p)[i] != messages.Nowhere {
			t.dropBlock(b, p)
			if !t.alive(b) {
				return
			}
		}
	}
}

// reportForgetting reports that a block is forgotten in all pools, while it is
// still known.
func (t *Tree) reportForgetting(b protocol.BlockID) {
	for p := range t.pools {
		x, i := t.at(b)
		l := t.locations(x, p)[i]
		if l == messages.Nowhere {
			continue
		}
		t.detach(b, p, l)
		t.recordRemoved(b, p)
	}
}

// detach reports that pool p forgets b, which it keeps at l.
func (t *Tree) detach(b protocol.BlockID, p int, l messages.Location) {
	if page, tier, _ := l.Page(); tier == messages.Primary {
		t.effect(protocol.Detach, p, b, page)
	}
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
		if t.nodes[x].depth+at != int32(i) {
			i++
			continue
		}
		n := int32(common(t.ids(x)[at:], c.Blocks[i:]))
		t.claimRun(c, segment{x, at, at + n}, stamp, now)
		i += int(n)
	}
	if c.Source != protocol.NoBlock && t.alive(c.Source) {
		t.touch(c.Source, stamp)
	}
}

// common returns the number of blocks that both begin with.
func common(a, b []protocol.BlockID) int {
	n := min(len(a), len(b))
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
// block belongs to none from now on.
func (t *Tree) shareSession(b protocol.BlockID, session string) {
	s := t.blocks.sessionOf(b)
	if s != none && t.sessions.names[s] != session {
		t.sessions.remove(s)
		t.blocks.setSession(b, none)
	}
}
