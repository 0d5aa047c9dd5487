package tree

import "github.com/kvactor/kvactor/internal/protocol"

// Recurrent layers. A state pool keeps, for some blocks, the state of the layers after
// the last token of the block: the checkpoint of the block. A state serves exactly
// the tokens that it was computed from, so a match must end where a checkpoint is:
//
//	path        b0 ── b1 ── b2 ── b3 ──┬── b4 …      attention matches b0 … b3 and a
//	checkpoint        ●                └── p5        part of b4: Attention. The match
//	                                       ●         ends behind b1, or behind p5 if
//	                                                 the prompt has all tokens of p5
//
// A block stored in part that is reused so is the source in all pools, and needs a
// page in every one.

// matchStates finds the longest match that ends at a checkpoint of every state pool.
// k and source are the match of the attention pools alone, which it notes in m.
func (t *matcher) matchStates(
	m *protocol.MatchItem, q *prompt, k int32, source choice,
) (int32, choice) {
	// What the attention pools alone would give is answered too: the difference to
	// Matched says how much of the prompt must be computed again only for want of a
	// checkpoint.
	m.Attention = int(k)*t.arena.tpb + int(source.shared)
	t.fillSource(&m.AttentionSource, source)
	m.AttentionWhole = m.Attention
	if source.block != protocol.NoBlock {
		// The search is repeated without partial reuse, since a match that ends
		// inside a block may have a later window: without the part its whole blocks
		// need not be covered. A tree with state pools pays for up to three searches,
		// all on one path.
		whole := *q
		whole.partial = false
		k, _ = t.longest(&whole)
		m.AttentionWhole = int(k) * t.arena.tpb
	}
	k, source = t.longestWithStates(q)
	m.CheckpointPages = resize(m.CheckpointPages, len(t.arena.pools))
	// Without a match no state is reused; the answer must not keep pages of an
	// earlier match.
	fillNowhere(m.CheckpointPages)
	// The checkpoint is that of the block where the match ends: the part at the end,
	// if there is one, else the last whole block.
	m.Checkpoint = source.block
	if source.block == protocol.NoBlock && k > 0 {
		m.Checkpoint = t.path[k-1]
	}
	if m.Checkpoint != protocol.NoBlock {
		for p := t.arena.tokenPools; p < t.arena.selfPools; p++ {
			m.CheckpointPages[p] = t.arena.locations[p][m.Checkpoint]
		}
	}
	return k, source
}

// longestWithStates finds the longest match that ends at a checkpoint: k whole blocks
// and the block stored in part where it ends, if it ends inside a block. It goes up the
// path from its end, so the first checkpoint that the windows allow is the longest. The
// candidates of one depth are the parts behind the block, then the block. When a window
// lacks block end, no length down to it is possible.
func (t *matcher) longestWithStates(q *prompt) (int32, choice) {
	if q.root == none {
		return 0, noChoice
	}
	for k := t.startOfSearch(q); k > 0; {
		part, end := t.endInPart(q, k)
		if part.block != protocol.NoBlock {
			return k, part
		}
		if end == k && t.arena.checkpointed(t.path[k-1]) {
			if end = t.covered(q, k, k*int32(t.arena.tpb)); end == k {
				return k, noChoice
			}
		}
		k = min(k-1, end)
	}
	part, _ := t.endInPart(q, 0)
	return 0, part
}

// startOfSearch is the number of blocks that the full-attention pools and the sinks
// allow to be matched, and prepares the search for gaps in windows.
func (t *matcher) startOfSearch(q *prompt) int32 {
	k := q.lacking
	for p := q.first; p < q.end; p++ {
		t.clean[p] = int32(len(t.path))
		// A sink is needed whatever the length is, so a hole in it ends every match
		// there. A window moves with the length and is searched by gap.
		end := min(t.arena.sinkBlocks(p), k)
		if h := t.firstHole(p, end); h < end {
			k = h
		}
	}
	return k
}

// covered returns k if the windows hold what a position attends to of the first k
// whole blocks, else the last of them that a window lacks. No match that ends behind
// that block has it all either: its window reaches as far back. position may lie
// behind the k whole blocks, inside a part: a window begins later then.
func (t *matcher) covered(q *prompt, k, position int32) int32 {
	// The pools are asked independently: every answer is an upper bound of the match, so their
	// minimum is one.
	covered := k
	for p := q.first; p < q.end; p++ {
		if !t.arena.pools[p].full() {
			covered = min(covered, t.gap(p, t.arena.firstNeeded(p, position), k))
		}
	}
	return covered
}

// endInPart finds, behind the first k blocks of the path, the longest block that is stored
// in part, has only tokens of the prompt, and has a page in every pool. It also returns the
// most blocks that a match may still have if there is none.
func (t *matcher) endInPart(q *prompt, k int32) (choice, int32) {
	at, query := t.spotAt(q, k), q.tokens[int(k)*t.arena.tpb:]
	// A part has fewer tokens than a block.
	for n := min(len(query), t.arena.tpb-1); n > 0 && q.partial; n-- {
		b := t.arena.child(at, query[:n])
		if b == protocol.NoBlock || !t.arena.heldByAll(b) || !t.arena.checkpointed(b) {
			continue
		}
		// A window lacks a block here. A shorter part has a window that reaches
		// as far back or further, so no other part behind this block helps.
		if covered := t.covered(q, k, k*int32(t.arena.tpb)+int32(n)); covered < k {
			return noChoice, covered
		}
		return choice{b, int32(n)}, k
	}
	return noChoice, k
}
