package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// segment is the blocks [lo, hi) of node's run, on the path from a root. 0 ≤ lo < hi
// ≤ n. Segments of one path follow one another without a gap. A segment is valid
// until its node is split, merged or freed.
type segment struct{ node, lo, hi int32 }

// Match answers all items of m on the present state. No item sees what another one
// does, so the order of items in a batch does not matter.
func (t *Tree) Match(m *protocol.Match) {
	for i := range m.Items {
		t.match(&m.Items[i])
	}
	t.verify()
}

// prompt is what one match looks for, and what it has found out.
type prompt struct {
	first   int // pools [first, end) are those that the match concerns
	end     int
	tokens  []messages.Token // within the limit
	partial bool
	root    int32
	whole   int32 // blocks of the prompt that are in the tree, ghosts included
	// lacking ≤ whole, and no match has more than lacking whole blocks.
	lacking int32 // the first of them that a full-attention pool lacks, else whole
}

// choice is a block that shares tokens with the prompt behind k whole blocks.
type choice struct {
	node, i int32 // none: there is none
	shared  int32
}

func (t *Tree) match(m *protocol.MatchItem) {
	// A match that only asks must not leave entries behind that no Apply releases.
	if m.KeepSymbols {
		t.symbols.acquire(m.Tokens, m.Multimodal)
	} else {
		t.symbols.lookup(m.Tokens, m.Multimodal)
	}
	limit := max(0, min(m.Limit, len(m.Tokens)))
	q := prompt{tokens: m.Tokens[:limit], partial: m.Partial, root: t.rootOf(m.Namespace, m.Cross)}
	q.first, q.end = t.poolsOf(m.Cross)
	t.path = t.path[:0]
	m.Pages = resize(m.Pages, len(t.pools))
	if q.root != none {
		q.whole = t.walk(q.root, q.tokens)
		q.lacking = q.whole
		for p := q.first; p < q.end; p++ {
			if t.pools[p].full() {
				q.lacking = t.firstHole(p, q.lacking)
			}
		}
	}
	// Two searches follow one walk over the tokens. Both only read t.path and
	// locations, so the cost in tokens is paid once.
	k, source := t.longest(&q)
	if t.recurrent() && !m.Cross {
		k, source = t.matchStates(m, &q, k, source)
	}
	t.answer(m, &q, k, source)
	// measure comes last: it compares with Matched.
	t.measure(m, &q)
}

// walk follows tokens from a root as far as whole blocks match, leaves the path in
// t.path and returns its length in blocks.
func (t *Tree) walk(x int32, tokens []messages.Token) (depth int32) {
	for len(tokens) >= t.tpb {
		// Whole blocks only: a block that is stored in part has fewer tokens than the
		// key that is searched for, so child never returns it.
		x = t.child(x, tokens[:t.tpb])
		if x == none {
			break
		}
		n := int32(firstDifference(t.tokens(x), tokens) / t.tpb)
		t.path = append(t.path, segment{x, 0, n})
		depth += n
		// The prompt leaves the run inside it. It is not split: a match changes
		// nothing.
		if n < t.nodes[x].n {
			break
		}
		tokens = tokens[int(n)*t.tpb:]
	}
	return depth
}

// segmentAt returns the index in t.path of the segment that block i lies in. It is a
// binary search over the depths of nodes: a prompt may have as many nodes as blocks.
// The path must have block i.
func (t *Tree) segmentAt(i int32) int {
	lo, hi := 0, len(t.path)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; t.nodes[t.path[mid].node].depth <= i {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// firstHole returns the first block of the path before end that pool p lacks, else
// end. Nodes that the pool holds in full are left out by their counts, so without
// evictions it costs a step for each node.
func (t *Tree) firstHole(p int, end int32) int32 {
	for _, s := range t.path {
		depth := t.nodes[s.node].depth
		if depth >= end {
			break
		}
		if t.holdsAll(s.node, p) {
			continue
		}
		// A count is of the whole run, and the hole may lie behind the segment or the
		// end.
		for i, l := range t.locations(s.node, p)[:min(s.hi, end-depth)] {
			if l == protocol.Nowhere {
				return depth + int32(i)
			}
		}
	}
	return end
}

// lastHole returns the last block of the path in [lo, hi) that pool p lacks, or −1.
// It goes backwards, because the hole nearest to the end is the one that decides how
// far a window allows a match; those before it may lie outside the next window.
func (t *Tree) lastHole(p int, lo, hi int32) int32 {
	if lo >= hi {
		return -1
	}
	for k := t.segmentAt(hi - 1); k >= 0; k-- {
		s := t.path[k]
		depth := t.nodes[s.node].depth
		if !t.holdsAll(s.node, p) {
			l := t.locations(s.node, p)
			for i := min(s.hi, hi-depth) - 1; i >= max(0, lo-depth); i-- {
				if l[i] == protocol.Nowhere {
					return depth + i
				}
			}
		}
		if depth <= lo {
			break
		}
	}
	return -1
}

// firstNeeded is the first block, sinks apart, that position attends to in pool p.
// The block is rounded down: a window that begins inside a block needs the block.
func (t *Tree) firstNeeded(p int, position int32) int32 {
	return int32(t.pools[p].reach().First(int(position)) / t.tpb)
}

// sinkBlocks is the number of blocks that hold the sink of pool p. It is rounded up,
// for the same reason.
func (t *Tree) sinkBlocks(p int) int32 {
	return int32((t.pools[p].Sink + t.tpb - 1) / t.tpb)
}

// longest finds the longest match: k whole blocks, and the block that the rest
// comes from. It starts at the end of the path. A pool that lacks block h in the
// window of one k lacks it for all k above h, whose windows begin no later, so the
// next k to try is h. No block is looked at twice.
func (t *Tree) longest(q *prompt) (k int32, source choice) {
	k = t.startOfSearch(q)
	for {
		source = t.choose(q, k, candidates)
		// A part of a block moves the end of the match, and with it the start of each
		// window.
		length := k*int32(t.tpb) + source.shared
		next := k
		for p := q.first; p < q.end; p++ {
			if !t.pools[p].full() {
				// The pools are asked independently and the smallest answer is tried
				// next. Every pool's answer is an upper bound of the match, so their
				// minimum is one.
				next = min(next, t.gap(p, t.firstNeeded(p, length), k))
			}
		}
		if next == k {
			return k, source
		}
		k = next
	}
}

// gap returns the last block in [lo, k) that pool p lacks, or k if it has them all.
// It remembers in t.clean from where on p has all blocks before k.
func (t *Tree) gap(p int, lo, k int32) int32 {
	// clean[p] ≤ k means that p holds all blocks in [clean[p], k). What has been
	// searched for a longer k is not searched again, which makes the whole search
	// linear.
	clean := min(t.clean[p], k)
	if lo >= clean {
		return k
	}
	// The next k is at most h, so the blocks behind h are of no interest any more.
	if h := t.lastHole(p, lo, clean); h >= 0 {
		t.clean[p] = h
		return h
	}
	t.clean[p] = lo
	return k
}

// choose finds the block behind k whole blocks that counts and shares the most
// tokens with the prompt. Inside a run only the prompt's own next block is there.
// If k is less than q.whole that block need not be looked at: as a candidate it has
// been found unfit (a pool lacks it) or would be taken whole; as a holder the path
// has been searched from its end.
func (t *Tree) choose(q *prompt, k int32, what int) choice {
	if !q.partial || q.root == none {
		return choice{none, none, 0}
	}
	query := q.tokens[int(k)*t.tpb:]
	query = query[:min(len(query), t.tpb)]
	x := q.root
	if k > 0 {
		s := t.path[t.segmentAt(k-1)]
		x = s.node
		// Inside a run the one block behind k is the next of the run. At its end all
		// children are possible, and nearest chooses among them.
		if i := k - t.nodes[x].depth; i < t.nodes[x].n {
			return t.chooseInside(q, segment{x, i, i + 1}, query, what)
		}
	}
	x, shared := t.nearest(x, query, what)
	return choice{x, 0, int32(shared)}
}

// chooseInside is choose for the block at s, inside a run.
func (t *Tree) chooseInside(q *prompt, s segment, query []messages.Token, what int) choice {
	if t.nodes[s.node].depth+s.lo < q.whole {
		return choice{none, none, 0}
	}
	// This block is not the first of its node, so no latest knows of it and it is
	// asked itself.
	counts := t.held(s.node, s.lo)
	if what == candidates {
		counts = t.heldByAll(s.node, s.lo)
	}
	shared := firstDifference(t.tokensAt(s.node, s.lo), query)
	if !counts || shared == 0 {
		return choice{none, none, 0}
	}
	return choice{s.node, s.lo, int32(shared)}
}

// answer fills in what is reused: k whole blocks and a part of source.
func (t *Tree) answer(m *protocol.MatchItem, q *prompt, k int32, source choice) {
	length := k*int32(t.tpb) + source.shared
	m.Matched, m.Blocks = int(length), int(k)
	m.IDs = resize(m.IDs, int(k))
	for _, s := range t.path {
		// The last segment may have more blocks than k; copy ends with m.IDs.
		if depth := t.nodes[s.node].depth; depth < k {
			copy(m.IDs[depth:], t.ids(s.node)[:s.hi])
		}
	}
	for p := range t.pools {
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
		first := min(t.firstNeeded(p, length), k)
		sink := min(t.sinkBlocks(p), first)
		t.copyLocations(m.Pages[p], p, 0, sink)
		fillNowhere(m.Pages[p][sink:first])
		t.copyLocations(m.Pages[p], p, first, k)
	}
	t.fillSource(&m.Source, source)
}

// fillSource describes a block that shares tokens with a prompt. HasChildren decides
// whether the page may be taken over: what follows a block would lose it.
func (t *Tree) fillSource(s *protocol.Source, source choice) {
	s.Block, s.Tokens, s.Stored = protocol.NoBlock, 0, 0
	s.HasChildren, s.Pages = false, s.Pages[:0]
	x := source.node
	if x == none {
		return
	}
	s.Block = t.ids(x)[source.i]
	s.Tokens = int(source.shared)
	s.Stored = len(t.tokensAt(x, source.i))
	s.HasChildren = source.i+1 < t.nodes[x].n || t.nodes[x].children != none
	for p := range t.pools {
		s.Pages = append(s.Pages, t.locations(x, p)[source.i])
	}
}

// copyLocations copies where pool p keeps the blocks [lo, hi) of the path. A path of
// few nodes is a few copies of memory, however many blocks it has.
func (t *Tree) copyLocations(to []protocol.Location, p int, lo, hi int32) {
	if lo >= hi {
		return
	}
	for _, s := range t.path[t.segmentAt(lo):] {
		depth := t.nodes[s.node].depth
		if depth >= hi {
			break
		}
		from := max(0, lo-depth)
		copy(to[depth+from:hi], t.locations(s.node, p)[from:s.hi])
	}
}

// measure fills in how far the prompt leads to blocks that some pool holds. A host
// learns by it why a prompt was not reused further.
func (t *Tree) measure(m *protocol.MatchItem, q *prompt) {
	m.Reach, m.Lacking = 0, false
	m.Lacks = resize(m.Lacks, len(t.pools))
	clear(m.Lacks)
	if q.root == none {
		return
	}
	// Reach may lead over ghosts. It ends at the last block that some pool holds,
	// whole or in part, so the search goes down until it finds one.
	for k := q.whole; ; k-- {
		if c := t.choose(q, k, holders); c.node != none {
			m.Reach = int(k)*t.tpb + int(c.shared)
			m.Lacking = q.lacking < k || t.lacks(q, c)
			t.countLacks(m, q, k)
			return
		}
		if k == 0 {
			return
		}
		// Most often the last whole block is held and the loop ends in its first
		// turn. More turns need ghosts at the end of the path, with other blocks
		// behind them.
		s := t.path[t.segmentAt(k-1)]
		if t.held(s.node, k-1-t.nodes[s.node].depth) {
			m.Reach, m.Lacking = int(k)*t.tpb, q.lacking < k
			t.countLacks(m, q, k)
			return
		}
	}
}

// countLacks counts the blocks that pools lack of the first k, of those that
// position Reach attends to. Nothing is counted for a part of a block.
func (t *Tree) countLacks(m *protocol.MatchItem, q *prompt, k int32) {
	if m.Matched >= int(k)*t.tpb {
		return
	}
	for p := q.first; p < q.end; p++ {
		// The count is for position Reach, since that is the match which the host did
		// not get.
		first := min(t.firstNeeded(p, int32(m.Reach)), k)
		m.Lacks[p] = t.countHoles(p, 0, min(t.sinkBlocks(p), first)) + t.countHoles(p, first, k)
	}
}

// countHoles counts the blocks of the path in [lo, hi) that pool p lacks.
func (t *Tree) countHoles(p int, lo, hi int32) (n int) {
	if lo >= hi {
		return 0
	}
	for _, s := range t.path[t.segmentAt(lo):] {
		depth := t.nodes[s.node].depth
		if depth >= hi {
			break
		}
		if t.holdsAll(s.node, p) {
			continue
		}
		for _, l := range t.locations(s.node, p)[max(0, lo-depth):min(s.hi, hi-depth)] {
			if l == protocol.Nowhere {
				n++
			}
		}
	}
	return n
}

// lacks tells whether a full-attention pool lacks a block.
func (t *Tree) lacks(q *prompt, c choice) bool {
	for p := q.first; p < q.end; p++ {
		if t.pools[p].full() && t.locations(c.node, p)[c.i] == protocol.Nowhere {
			return true
		}
	}
	return false
}
