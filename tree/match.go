package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// matcher finds what can be reused of a prompt. It changes nothing but the references
// of symbols.
type matcher struct {
	*prefixes
	path path
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
	whole   int32 // blocks of the prompt that are in the tree, ghosts included
	// lacking ≤ whole, and no match has more than lacking whole blocks.
	lacking int32 // the first of them that a full-attention pool lacks, else whole
}

// choice is a block that shares tokens with the prompt behind k whole blocks.
type choice struct {
	node, i int32 // none: there is none
	shared  int32
}

func (t *matcher) match(m *protocol.MatchItem) {
	// A match that only asks must not leave entries behind that no Apply releases.
	if m.KeepSymbols {
		t.symbols.acquire(m.Tokens, m.Multimodal)
	} else {
		t.symbols.lookup(m.Tokens, m.Multimodal)
	}
	limit := max(0, min(m.Limit, len(m.Tokens)))
	q := prompt{tokens: m.Tokens[:limit], partial: m.Partial, root: t.rootOf(m.Namespace, m.Cross)}
	q.first, q.end = t.arena.poolsOf(m.Cross)
	t.path.segments = t.path.segments[:0]
	m.Pages = resize(m.Pages, len(t.arena.pools))
	m.Compared = 0
	if q.root != none {
		q.whole = t.path.follow(q.root, q.tokens)
		if t.symbols.none() {
			m.Compared = int(q.whole) * t.arena.tpb
		}
		q.lacking = q.whole
		for p := q.first; p < q.end; p++ {
			if t.arena.pools[p].full() {
				q.lacking = t.path.firstHole(p, q.lacking)
			}
		}
	}
	if m.InTree != nil {
		t.blocksInTree(m.InTree, &q)
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
		length := k*int32(t.arena.tpb) + source.shared
		next := k
		for p := q.first; p < q.end; p++ {
			if !t.arena.pools[p].full() {
				// The pools are asked independently and the smallest answer is tried
				// next. Every pool's answer is an upper bound of the match, so their
				// minimum is one.
				next = min(next, t.gap(p, t.arena.firstNeeded(p, length), k))
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
func (t *matcher) gap(p int, lo, k int32) int32 {
	// clean[p] ≤ k means that p holds all blocks in [clean[p], k). What has been
	// searched for a longer k is not searched again, which makes the whole search
	// linear.
	clean := min(t.clean[p], k)
	if lo >= clean {
		return k
	}
	// The next k is at most h, so the blocks behind h are of no interest any more.
	if h := t.path.lastHole(p, lo, clean); h >= 0 {
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
func (t *matcher) choose(q *prompt, k int32, what int) choice {
	if !q.partial || q.root == none {
		return choice{none, none, 0}
	}
	query := q.tokens[int(k)*t.arena.tpb:]
	query = query[:min(len(query), t.arena.tpb)]
	x := q.root
	if k > 0 {
		s := t.path.segments[t.path.segmentAt(k-1)]
		x = s.node
		// Inside a run the one block behind k is the next of the run. At its end all
		// children are possible, and nearest chooses among them.
		if i := k - t.arena.nodes[x].depth; i < t.arena.nodes[x].n {
			return t.chooseInside(q, segment{x, i, i + 1}, query, what)
		}
	}
	x, shared := t.nearest(x, query, what)
	return choice{x, 0, int32(shared)}
}

// chooseInside is choose for the block at s, inside a run.
func (t *matcher) chooseInside(q *prompt, s segment, query []messages.Token, what int) choice {
	if t.arena.nodes[s.node].depth+s.lo < q.whole {
		return choice{none, none, 0}
	}
	// This block is not the first of its node, so no latest knows of it and it is
	// asked itself.
	counts := t.arena.held(s.node, s.lo)
	if what == candidates {
		counts = t.arena.heldByAll(s.node, s.lo)
	}
	shared := firstDifference(t.arena.tokensAt(s.node, s.lo), query)
	if !counts || shared == 0 {
		return choice{none, none, 0}
	}
	return choice{s.node, s.lo, int32(shared)}
}

// answer fills in what is reused: k whole blocks and a part of source.
func (t *matcher) answer(m *protocol.MatchItem, q *prompt, k int32, source choice) {
	length := k*int32(t.arena.tpb) + source.shared
	m.Matched, m.Blocks, m.Cursor = int(length), int(k), protocol.Cursor{}
	m.IDs = resize(m.IDs, int(k))
	for _, s := range t.path.segments {
		// The last segment may have more blocks than k; copy ends with m.IDs.
		if depth := t.arena.nodes[s.node].depth; depth < k {
			copy(m.IDs[depth:], t.arena.ids(s.node)[:s.hi])
		}
	}
	if k > 0 {
		m.Cursor = t.arena.cursor(m.IDs[k-1])
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
		t.path.copyLocations(m.Pages[p], p, 0, sink)
		fillNowhere(m.Pages[p][sink:first])
		t.path.copyLocations(m.Pages[p], p, first, k)
	}
	t.fillSource(&m.Source, source)
}

// fillSource describes a block that shares tokens with a prompt. HasChildren decides
// whether the page may be taken over: what follows a block would lose it.
func (t *matcher) fillSource(s *protocol.Source, source choice) {
	s.Block, s.Tokens, s.Stored = protocol.NoBlock, 0, 0
	s.HasChildren, s.Pages = false, s.Pages[:0]
	x := source.node
	if x == none {
		return
	}
	s.Block = t.arena.ids(x)[source.i]
	s.Tokens = int(source.shared)
	s.Stored = len(t.arena.tokensAt(x, source.i))
	s.HasChildren = source.i+1 < t.arena.nodes[x].n || t.elements[x].children != none
	for p := range t.arena.pools {
		s.Pages = append(s.Pages, t.arena.locations(x, p)[source.i])
	}
}
