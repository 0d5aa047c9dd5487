package tree

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// storer stores what sequences offer. One offer is stored at a time.
type storer struct {
	*holdings
	path      path           // of the offer's blocks
	plain     []bool         // by segment of the path: no pool held it, and all of it is of one priority
	retention retentionCover // of the offer
}

// position is the place behind the first i blocks of node's run.
type position struct{ node, i int32 }

// offer is one StoreItem while it is stored.
type offer struct {
	*protocol.StoreItem
	// stamp is that of all blocks which the offer stores: siblings are never of one
	// offer, so one stamp orders them as well as one for each block.
	stamp   uint32
	now     time.Duration
	session int32 // the number of Session once a block has joined it
	// [first, end) is poolsOf(Cross), with OnHost the state pools as well; tables of other
	// pools are not read.
	first int // pools [first, end) are those that the offer concerns
	end   int
	kept  bool // a page that was offered, or might be, stays with the sequence
}

// pages returns what the sequence offers of the blocks [lo, hi) to pool p; fewer if
// its table ends before hi. A limited window may have a shorter table than full
// attention, and NoPage in it for blocks that have left the window.
func (o *offer) pages(p int, lo, hi int32) []messages.PageID {
	if p >= len(o.Tables) || int(lo) >= len(o.Tables[p]) {
		return nil
	}
	return o.Tables[p][lo:min(int(hi), len(o.Tables[p]))]
}

// offers tells whether the sequence offers block d to some pool. The last pool is
// asked first, because full attention comes last and offers every block.
func (o *offer) offers(d int32) bool {
	for p := min(o.end, len(o.Tables)) - 1; p >= o.first; p-- {
		if int(d) < len(o.Tables[p]) && o.Tables[p][d] != messages.NoPage {
			return true
		}
	}
	return false
}

// offeredFront returns how many of the blocks [lo, hi) the sequence offers to the last pool
// before the first that it does not.
func (o *offer) offeredFront(lo, hi int32) int {
	p := min(o.end, len(o.Tables)) - 1
	if p < o.first {
		return 0
	}
	return countPages(o.pages(p, lo, hi))
}

// keepsOnHost tells whether block b of pool p stays in host memory whatever page is
// offered of it.
func (o *offer) keepsOnHost(p int, b protocol.BlockID) bool {
	return p < len(o.KeepOnHost) && slices.Contains(o.KeepOnHost[p], b)
}

// store adds what a sequence offers, and finds the block where the offer ends.
func (t *storer) store(s *protocol.StoreItem, now time.Duration) {
	t.storeBlocks(s, now)
	s.Taken = s.Array != nil && t.base.arena.shared.find(s.Array) != noArray
	if s.FindEnd {
		t.findEnd(s)
	}
}

// storeBlocks adds what a sequence offers: first the blocks, then their attributes, then
// the pages, pool by pool. The order is that of what may depend on what: an effect
// carries the priority, and an event names the block.
func (t *storer) storeBlocks(s *protocol.StoreItem, now time.Duration) {
	o := offer{StoreItem: s, stamp: t.base.nextStamp(), now: now, session: none}
	o.first, o.end = t.base.arena.poolsOf(s.Cross)
	if s.OnHost && !s.Cross {
		o.end = t.base.arena.selfPools // a store has checkpoints as well
	}
	t.base.log.event = noEvent // runs of two sequences are two events
	first, whole := int32(s.From/t.base.arena.tpb), int32(s.To/t.base.arena.tpb)
	end := int32((s.To + t.base.arena.tpb - 1) / t.base.arena.tpb)
	// A sequence may have released the pages of its last blocks. Blocks in the middle
	// that nothing is offered of are stored all the same, as ghosts: those behind
	// need them.
	for end > first && !o.offers(end-1) {
		end--
	}
	s.Settled = false
	if end <= first {
		return // what nothing is offered of would be ghosts with nothing behind them
	}
	tokens := s.Tokens[:int(min(end, whole))*t.base.arena.tpb]
	at := t.descend(&o, t.start(s, tokens), tokens)
	leaf := none
	if end > whole {
		at, leaf = t.storePart(at, s.Tokens[int(whole)*t.base.arena.tpb:s.To])
	}
	// The cursor is set after all splits of this store, so its generation is the
	// tree's latest.
	if b := t.last(at); b != protocol.NoBlock {
		s.Cursor = t.base.arena.cursor(b)
	}
	// The path is made only now: descend and storePart may have split nodes of it.
	t.path.retrace(at, first)
	if leaf != none {
		t.path.segments = append(t.path.segments, segment{leaf, 0, 1})
	}
	if s.OnHost {
		t.load(&o)
	} else {
		t.attribute(&o)
		for p := o.first; p < o.end; p++ {
			t.attach(&o, p)
		}
		s.Settled = !o.kept
	}
	// Whether a first block counts depends on all pools, so the treaps are refreshed
	// once, behind the last pool. A segment that does not begin its run has changed
	// no first block.
	for _, g := range t.path.segments {
		if g.lo == 0 {
			t.base.refreshUpwards(g.node)
		}
	}
}

// last returns the block before a position, or NoBlock at a root.
func (t *storer) last(at position) protocol.BlockID {
	// Only a root has positions with i 0: everywhere else a position is behind some
	// block.
	if at.i == 0 {
		return protocol.NoBlock
	}
	return t.base.arena.ids(at.node)[at.i-1]
}

// start returns where tokens, which are whole blocks, end in the tree, or where the
// first of them do: at or above the cursor of s, if its block is still there, else
// at the root. With a cursor a sequence that generates does not compare its whole
// prompt for each block.
func (t *storer) start(s *protocol.StoreItem, tokens []messages.Token) position {
	c := s.Cursor
	if len(tokens) == 0 || !t.base.arena.follows(c) {
		return position{t.base.makeRoot(s), 0}
	}
	// The offer may end before the block of the cursor, after a rewind; then the
	// search goes up to the node that has the last block of the offer. Every block
	// above the cursor has tokens of this sequence, so nothing is compared.
	depth := min(t.base.arena.depth(c.Block)+1, int32(len(tokens)/t.base.arena.tpb))
	x := t.base.arena.index.node[c.Block]
	for t.base.arena.nodes[x].depth >= depth {
		x = t.base.parentOf(x)
	}
	if invariants.Enabled {
		t.mustLeadTo(x, tokens[:int(depth)*t.base.arena.tpb])
	}
	return position{x, depth - t.base.arena.nodes[x].depth}
}

// mustLeadTo panics unless the path from the root into node x has these tokens. It
// compares the whole prompt, which the cursor is there to avoid, so it runs under the
// build tag invariants only.
func (t *storer) mustLeadTo(x int32, tokens []messages.Token) {
	for ; t.base.arena.nodes[x].root == none; x = t.base.parentOf(x) {
		depth := int(t.base.arena.nodes[x].depth) * t.base.arena.tpb
		if n := firstDifference(t.base.arena.tokens(x), tokens[depth:]); depth+n < len(tokens) {
			panic(fmt.Sprintf("tree: a cursor leads to node %d, where token %d is another", x, depth+n))
		}
		tokens = tokens[:depth]
	}
}

// descend follows tokens, which start at the root and are whole blocks, from
// position at on, and makes the blocks that are not there yet.
func (t *storer) descend(o *offer, at position, tokens []messages.Token) position {
	// Each turn does one of four things: it goes on inside a run, splits the run
	// where it differs, goes to a child, or makes what is left as one run and is
	// done.
	rest := tokens[int(t.base.arena.nodes[at.node].depth+at.i)*t.base.arena.tpb:]
	for len(rest) > 0 {
		if at.i < t.base.arena.nodes[at.node].n {
			run := t.base.arena.tokens(at.node)[int(at.i)*t.base.arena.tpb:]
			n := firstDifference(run, rest) / t.base.arena.tpb
			at.i += int32(n)
			rest = rest[n*t.base.arena.tpb:]
			// After the split the position is at the end of its node, where children
			// are.
			if len(rest) > 0 && at.i < t.base.arena.nodes[at.node].n {
				at.node = t.split(at.node, at.i)
			}
			continue
		}
		x, spot := t.base.childOrPlace(at.node, rest[:t.base.arena.tpb])
		if x != none {
			at, rest = position{x, 1}, rest[t.base.arena.tpb:]
			continue
		}
		// A leaf is extended in place, so a sequence that generates stays one run. A
		// root never is: it has no blocks. A node stored in part cannot be here,
		// since child compares whole blocks.
		if t.base.isLeaf(at.node) && t.base.arena.nodes[at.node].root == none {
			at.node = t.extendLeaf(at.node, tokens, t.arrayFor(o, at.node, len(rest)))
		} else {
			at.node = t.newChild(at.node, spot, tokens, t.arrayFor(o, none, len(rest)))
		}
		return position{at.node, t.base.arena.nodes[at.node].n}
	}
	return at
}

// arrayFor returns the shared array for n new tokens of an offer that extend the run of
// node x or, if x is none, are a node of their own; noArray if they are to be copied.
func (t *storer) arrayFor(o *offer, x int32, n int) int32 {
	switch {
	case o.Array == nil:
		return noArray
	case x == none:
	case t.base.arena.nodes[x].shared != noArray:
		// The run leaves another array, or grows in this one: a copy of all of it
		// would cost more than the room that the rest of the array takes.
		return t.base.arena.shared.add(o.Array)
	default:
		n += int(t.base.arena.nodes[x].n) * t.base.arena.tpb
	}
	if !t.base.arena.shared.worth(o.Array, n) {
		return noArray
	}
	return t.base.arena.shared.add(o.Array)
}

// storePart finds or makes the block behind a position that is stored in part with
// these tokens. A leaf with exactly these tokens is used again; one with more or
// fewer tokens is another block, because a match may end inside either.
func (t *storer) storePart(at position, tokens []messages.Token) (before position, leaf int32) {
	if at.i < t.base.arena.nodes[at.node].n {
		at.node = t.split(at.node, at.i)
	}
	leaf, spot := t.base.childOrPlace(at.node, tokens)
	if leaf == none {
		leaf = t.newPartialChild(at.node, spot, tokens)
	}
	return at, leaf
}
