package tree

import "github.com/kvactor/kvactor/internal/protocol"

// measure fills in how far the prompt leads to blocks that some pool holds. A host
// learns by it why a prompt was not reused further. source is that of the match.
func (t *matcher) measure(m *protocol.MatchItem, q *prompt, source choice) {
	m.Reach, m.Lacking = 0, false
	m.Lacks = resize(m.Lacks, len(t.arena.pools))
	clear(m.Lacks)
	if q.root == none {
		return
	}
	// Reach may lead over ghosts. It ends at the last block that some pool holds,
	// whole or in part, so the search goes down until it finds one.
	for k := int32(len(t.path)); k >= 0; k-- {
		c := source
		// With one pool of tokens a block that some pool holds is one that every pool holds, so
		// the match has searched behind the same block.
		if len(t.arena.pools) > 1 || t.arena.recurrent() || k != int32(m.Blocks) {
			c = t.choose(q, k, holders)
		}
		// Most often the last whole block is held and the loop ends in its first
		// turn. More turns need ghosts at the end of the path, with other blocks
		// behind them.
		part := c.block != protocol.NoBlock
		if part || k > 0 && t.arena.held(t.path[k-1]) {
			m.Reach = int(k)*t.arena.tpb + int(c.shared)
			m.Lacking = q.lacking < k || part && t.arena.lackedInFull(c.block, q.first, q.end)
			t.countLacks(m, q, k)
			return
		}
	}
}

// countLacks counts the blocks that pools lack of the first k, of those that
// position Reach attends to. Nothing is counted for a part of a block.
func (t *matcher) countLacks(m *protocol.MatchItem, q *prompt, k int32) {
	if m.Matched >= int(k)*t.arena.tpb {
		return
	}
	for p := q.first; p < q.end; p++ {
		// The count is for position Reach, since that is the match which the host did
		// not get.
		first := min(t.arena.firstNeeded(p, int32(m.Reach)), k)
		m.Lacks[p] = t.countHoles(p, 0, min(t.arena.sinkBlocks(p), first)) + t.countHoles(p, first, k)
	}
}
