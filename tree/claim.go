package tree

import (
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
)

// claimer marks what sequences reuse as used, and gives it their retention.
type claimer struct {
	*holdings
	retention retentionCover // of the claim
}

// claim marks what a sequence reuses as used now. It leaves out blocks that are not
// there any more or that no pool holds: the sequence may claim blocks that its
// windows have passed.
func (t *claimer) claim(c *protocol.ClaimItem, now time.Duration) {
	stamp := t.base.nextStamp()
	t.retention.read(c.Retention, c.Prompt, t.base.arena.tpb)
	for i := 0; i < len(c.Blocks); {
		if !t.base.arena.alive(c.Blocks[i]) {
			i++
			continue
		}
		x, at := t.base.arena.at(c.Blocks[i])
		// The id may have been freed and given to a block of another depth.
		if t.base.arena.nodes[x].depth+at != int32(i) {
			i++
			continue
		}
		// As many blocks of the run as the claim has in the same order are one step,
		// so a claim costs a search for each node and not for each block.
		n := int32(common(t.base.arena.ids(x)[at:], c.Blocks[i:]))
		t.claimRun(c, segment{x, at, at + n}, stamp, now)
		i += int(n)
	}
	// The source is reused in part, so it gets neither session nor retention of the
	// request: both are for blocks that the sequence has whole.
	if c.Source != protocol.NoBlock && t.base.arena.alive(c.Source) && t.base.arena.held(t.base.arena.at(c.Source)) {
		t.base.touch(c.Source, stamp)
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
func (t *claimer) claimRun(c *protocol.ClaimItem, g segment, stamp uint32, now time.Duration) {
	// solid and plain are decided once for the run. For a plain claim of a run
	// without holes the loop then only writes stamps.
	solid := t.base.arena.heldThroughout(g.node, -1)
	plain := t.base.sessions.none() && t.retention.empty()
	depth, stamps := t.base.arena.nodes[g.node].depth, t.base.blocks.stamp
	for k, b := range t.base.arena.ids(g.node)[g.lo:g.hi] {
		i := g.lo + int32(k)
		if !solid && !t.base.arena.held(g.node, i) {
			continue
		}
		stamps[b] = stamp
		if plain {
			continue
		}
		t.base.shareSession(b, c.Session)
		if term, ok := t.retention.of(depth + i); ok {
			t.setRetention(b, term, now)
		}
	}
	// Only a run's first block is in a treap. The other stamps are read when a split
	// or a merge makes their blocks first.
	if g.lo == 0 {
		t.base.refreshUpwards(g.node)
	}
}
