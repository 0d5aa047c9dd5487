package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// matcher finds what can be reused of a prompt. It changes nothing but the references
// of symbols.
type matcher struct {
	arena *arena
	path  []protocol.BlockID // the blocks of the prompt that are in the tree, ghosts included
	// clean is, by pool, the block from which on the pool has all blocks before the
	// longest match that is still possible: see gap.
	clean []int32
}

// prompt is what one match looks for, and what it has found out.
type prompt struct {
	first   int // pools [first, end) are those that the match concerns
	end     int
	tokens  []messages.Token // within the limit
	partial bool
	root    int32
	// No match has more than lacking whole blocks.
	lacking int32 // the first block of the path that a full-attention pool lacks, else its length
}

// choice is a block that shares tokens with the prompt behind k whole blocks.
type choice struct {
	block  protocol.BlockID // NoBlock: there is none
	shared int32
}

// noChoice says that no block shares tokens.
var noChoice = choice{block: protocol.NoBlock}

func (t *matcher) match(m *protocol.MatchItem) {
	// A match that only asks must not leave entries behind that no Apply releases.
	if m.KeepSymbols {
		t.arena.symbols.acquire(m.Tokens, m.Multimodal)
	} else {
		t.arena.symbols.lookup(m.Tokens, m.Multimodal)
	}
	limit := max(0, min(m.Limit, len(m.Tokens)))
	q := prompt{tokens: m.Tokens[:limit], partial: m.Partial,
		root: t.arena.rootOf(m.Namespace, m.Cross)}
	q.first, q.end = t.arena.poolsOf(m.Cross)
	m.Pages = resize(m.Pages, len(t.arena.pools))
	t.follow(&q)
	q.lacking = int32(len(t.path))
	for p := q.first; p < q.end; p++ {
		if t.arena.pools[p].full() {
			q.lacking = t.firstHole(p, q.lacking)
		}
	}
	if m.InTree != nil {
		t.blocksInTree(m.InTree)
	}
	// Two searches follow one walk over the tokens. Both only read the path and
	// locations, so the cost in tokens is paid once.
	k, source := t.longest(&q)
	if t.arena.recurrent() && !m.Cross {
		k, source = t.matchStates(m, &q, k, source)
	}
	t.answer(m, &q, k, source)
	// measure comes last: it compares with Matched.
	t.measure(m, &q, source)
}

// longest finds the longest match: k whole blocks, and the block that the rest
// comes from. It starts at the end of the path. A pool that lacks block h in the
// window of one k lacks it for all k above h, whose windows begin no later, so the
// next k to try is h. No block is looked at twice.
func (t *matcher) longest(q *prompt) (k int32, source choice) {
	k = t.startOfSearch(q)
	for {
		source = t.choose(q, k, candidates)
		// A part of a block moves the end of the match, and with it the start of each
		// window.
		next := t.covered(q, k, k*int32(t.arena.tpb)+source.shared)
		if next == k {
			return k, source
		}
		k = next
	}
}

// gap returns the last block in [lo, k) that pool p lacks, or k if it has them all.
// It remembers in t.clean from where on p has all blocks before k.
func (t *matcher) gap(p int, lo, k int32) int32 {
	// clean[p] ≤ k means that p holds all blocks in [clean[p], k). What has been
	// searched for a longer k is not searched again, which makes the whole search
	// linear.
	clean := min(t.clean[p], k)
	if lo >= clean {
		return k
	}
	// It goes backwards, because the hole nearest to the end is the one that decides how far a window
	// allows a match; those before it may lie outside the next window. The next k is at most h, so the
	// blocks behind h are of no interest any more.
	for h := clean - 1; h >= lo; h-- {
		if t.arena.locations[p][t.path[h]] == protocol.Nowhere {
			t.clean[p] = h
			return h
		}
	}
	t.clean[p] = lo
	return k
}

// choose finds the block behind k whole blocks that counts and shares the most
// tokens with the prompt. The next block of the path is never it: as a candidate it has
// been found unfit (a pool lacks it) or would be taken whole; as a holder the path has been
// searched from its end.
func (t *matcher) choose(q *prompt, k int32, what int) choice {
	if !q.partial || q.root == none {
		return noChoice
	}
	query := q.tokens[int(k)*t.arena.tpb:]
	b, shared := t.arena.nearest(t.spotAt(q, k), query[:min(len(query), t.arena.tpb)], what)
	return choice{b, int32(shared)}
}

// follow makes the path of a prompt, as far as whole blocks match.
func (t *matcher) follow(q *prompt) {
	t.path = t.path[:0]
	if q.root == none {
		return
	}
	at := spot{q.root, protocol.NoBlock}
	for tokens := q.tokens; len(tokens) >= t.arena.tpb; tokens = tokens[t.arena.tpb:] {
		// A block that is stored in part has fewer tokens than the key, so child never
		// returns it.
		if at.block = t.arena.child(at, tokens[:t.arena.tpb]); at.block == protocol.NoBlock {
			return
		}
		t.path = append(t.path, at.block)
	}
}

// spotAt returns the place behind the first k blocks of the path.
func (t *matcher) spotAt(q *prompt, k int32) spot {
	if k == 0 {
		return spot{q.root, protocol.NoBlock}
	}
	return spot{q.root, t.path[k-1]}
}

// firstHole returns the first block of the path before end that pool p lacks, else end.
func (t *matcher) firstHole(p int, end int32) int32 {
	locations := t.arena.locations[p]
	for i, b := range t.path[:end] {
		if locations[b] == protocol.Nowhere {
			return int32(i)
		}
	}
	return end
}

// countHoles counts the blocks of the path in [lo, hi) that pool p lacks.
func (t *matcher) countHoles(p int, lo, hi int32) (n int) {
	for i := lo; i < hi; i++ {
		if t.arena.locations[p][t.path[i]] == protocol.Nowhere {
			n++
		}
	}
	return n
}

// copyLocations copies where pool p keeps the blocks [lo, hi) of the path.
func (t *matcher) copyLocations(to []protocol.Location, p int, lo, hi int32) {
	locations := t.arena.locations[p]
	for i := lo; i < hi; i++ {
		to[i] = locations[t.path[i]]
	}
}

// answer fills in what is reused: k whole blocks and a part of source.
func (t *matcher) answer(m *protocol.MatchItem, q *prompt, k int32, source choice) {
	length := k*int32(t.arena.tpb) + source.shared
	m.Matched, m.Blocks, m.Cursor = int(length), int(k), protocol.Cursor{}
	m.IDs = resize(m.IDs, int(k))
	copy(m.IDs, t.path)
	if k > 0 {
		m.Cursor = t.arena.cursor(t.path[k-1])
	}
	for p := range t.arena.pools {
		m.Pages[p] = resize(m.Pages[p], int(k))
		// Slices of other pools are filled too: they may have the answer of an
		// earlier match.
		if p < q.first || p >= q.end {
			fillNowhere(m.Pages[p])
			continue
		}
		//	blocks   0        sink         first          k
		//	         │ sink   │ Nowhere    │ window       │
		//
		// Blocks between sink and window are Nowhere even if the pool holds them: the
		// sequence needs no page of them.
		first := min(t.arena.firstNeeded(p, length), k)
		sink := min(t.arena.sinkBlocks(p), first)
		t.copyLocations(m.Pages[p], p, 0, sink)
		fillNowhere(m.Pages[p][sink:first])
		t.copyLocations(m.Pages[p], p, first, k)
	}
	t.fillSource(&m.Source, source)
}

// fillSource describes a block that shares tokens with a prompt. HasChildren decides
// whether the page may be taken over: what follows a block would lose it.
func (t *matcher) fillSource(s *protocol.Source, source choice) {
	s.Block, s.Tokens, s.Stored = protocol.NoBlock, 0, 0
	s.HasChildren, s.Pages = false, s.Pages[:0]
	b := source.block
	if b == protocol.NoBlock {
		return
	}
	s.Block, s.Tokens, s.Stored = b, int(source.shared), len(t.arena.tokensOf(b))
	s.HasChildren = !t.arena.isLeaf(b)
	for p := range t.arena.pools {
		s.Pages = append(s.Pages, t.arena.locations[p][b])
	}
}

// fillNowhere makes locations those of blocks that a pool does not hold.
func fillNowhere(l []protocol.Location) {
	for i := range l {
		l[i] = protocol.Nowhere
	}
}
