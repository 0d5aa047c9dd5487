package tree

import (
	"cmp"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// forgetter removes the blocks that an invalidation selects, in three passes: select
// the blocks, report what is forgotten while all of them are still known, then remove
// them. The reports are in the order of prefixes, so that effects and changes join, and
// the removal is in the opposite order.
type forgetter struct {
	*holdings
	path     path
	stack    []int32            // nodes whose subtrees are to be selected
	toForget []protocol.BlockID // what is selected, parents before children
	// kept says which contents stay, as [pool][block]; nil: none.
	kept [][]bool
}

// forget removes what f selects and returns the number of blocks that no pool holds any
// more.
func (t *forgetter) forget(f *protocol.Forget) int {
	t.toForget, t.kept = t.toForget[:0], nil
	t.selectBlocks(f)
	before := t.base.blocksHeld
	for p := range t.base.arena.pools {
		t.reportForgotten(p)
	}
	// From the last to the first, so that no block becomes a ghost on the way.
	for k := len(t.toForget) - 1; k >= 0; k-- {
		t.forgetBlock(t.toForget[k])
	}
	// Only an empty tree makes this event: readers drop all keys by it.
	if f.All && t.base.recording && t.base.blocksHeld == 0 {
		t.base.record(protocol.EverythingForgot, 0, false)
	}
	return before - t.base.blocksHeld
}

// selectBlocks adds what f selects to t.toForget.
func (t *forgetter) selectBlocks(f *protocol.Forget) {
	switch s := &f.Selector; {
	case f.All:
		// Sequences go on to use these pages, so only All, which ends all else, needs
		// the table; a selector forgets blocks whoever uses them.
		t.kept = t.marks(f.Keep)
		for i := range t.base.roots {
			t.selectRoot(int32(i))
		}
	case s.Session != "":
		t.selectSession(s.Session)
	case s.Prefix != nil:
		t.selectPrefix(s.Prefix, f.Cross)
	default:
		for i := range t.base.roots {
			if s.Names(&t.base.roots[i].namespace) {
				t.selectRoot(int32(i))
			}
		}
	}
}

// marks turns lists of blocks, by pool, into [pool][block].
func (t *forgetter) marks(lists [][]protocol.BlockID) [][]bool {
	m := make([][]bool, len(t.base.arena.pools))
	for p := range m {
		m[p] = make([]bool, len(t.base.arena.index.node))
		if p < len(lists) {
			for _, b := range lists[p] {
				m[p][b] = true
			}
		}
	}
	return m
}

// keeps tells whether the contents of block b in pool p stay.
func (t *forgetter) keeps(p int, b protocol.BlockID) bool { return t.kept != nil && t.kept[p][b] }

// selectRoot adds all blocks of a root to t.toForget.
func (t *forgetter) selectRoot(i int32) {
	if x := t.base.roots[i].node; x != none {
		t.stack = append(t.stack[:0], x)
		t.selectSubtrees()
	}
}

// selectSubtrees adds all blocks of the subtrees in t.stack to t.toForget, parents
// first. The stack is kept in the tree, and its depth does not depend on the length
// of prompts.
func (t *forgetter) selectSubtrees() {
	for n := len(t.stack); n > 0; n = len(t.stack) {
		x := t.stack[n-1]
		t.stack = t.stack[:n-1]
		t.toForget = append(t.toForget, t.base.arena.ids(x)...)
		t.stack = t.base.childrenOf(t.stack, x)
	}
}

// selectSession adds the blocks that belong to a session to t.toForget, those of one
// run in order. It looks at the session of every block. Lists of blocks by session
// would cost each block two links, for a request that is rare.
func (t *forgetter) selectSession(name string) {
	s := t.base.sessions.find(name)
	if s == none {
		return
	}
	for b, of := range t.base.blocks.session {
		if of == s {
			t.toForget = append(t.toForget, protocol.BlockID(b))
		}
	}
	slices.SortFunc(t.toForget, func(a, b protocol.BlockID) int {
		if c := cmp.Compare(t.base.arena.index.node[a], t.base.arena.index.node[b]); c != 0 {
			return c
		}
		return cmp.Compare(t.base.arena.depth(a), t.base.arena.depth(b))
	})
}

// selectPrefix adds to t.toForget the blocks of a namespace whose tokens from the
// start begin with all those of the prefix.
func (t *forgetter) selectPrefix(q *messages.Prefix, cross bool) {
	t.base.symbols.lookup(q.Tokens, q.Multimodal)
	x := t.base.rootOf(q.Namespace, cross)
	if x == none {
		return
	}
	whole := t.path.follow(x, q.Tokens)
	rest := q.Tokens[int(whole)*t.base.arena.tpb:]
	if len(rest) >= t.base.arena.tpb {
		return // a whole block of the prefix is not there
	}
	t.stack = t.stack[:0]
	from := int32(0) // the first block of x's run to forget
	if n := len(t.path.segments); n > 0 {
		s := t.path.segments[n-1]
		x, from = s.node, s.hi
	}
	//	rest empty        the prefix ends with a block: that block and all behind it
	//	at end of run     children that begin with rest
	//	inside the run    the next block, if it begins with rest, and all behind it
	switch n := t.base.arena.nodes[x].n; {
	case len(rest) == 0:
		from = max(0, from-1)
	case from == n:
		t.stack = t.base.childrenWith(t.stack, t.base.elements[x].children, rest)
		t.selectSubtrees()
		return
	case firstDifference(t.base.arena.tokensAt(x, from), rest) < len(rest):
		return
	}
	t.toForget = append(t.toForget, t.base.arena.ids(x)[from:]...)
	t.stack = t.base.childrenOf(t.stack, x)
	t.selectSubtrees()
}

// reportForgotten reports what pool p forgets of t.toForget. Device pages and host
// memory are two passes, since effects join only while one kind follows another: in
// one pass each block would be two effects.
func (t *forgetter) reportForgotten(p int) {
	for _, host := range [2]bool{false, true} {
		for _, b := range t.toForget {
			x, i := t.base.arena.at(b)
			page, tier, ok := t.base.arena.locations(x, p)[i].Page()
			switch {
			case !ok || t.keeps(p, b):
			case host && t.host:
				t.base.effect(protocol.HostForget, p, b, messages.NoPage)
			case !host:
				if tier == messages.Primary {
					t.base.effect(protocol.Detach, p, b, page)
				}
				t.base.recordRemoved(b, p)
			}
		}
	}
}

// forgetBlock removes b from the pools that do not keep it. The block's last pool
// ends the block, so alive is asked for each pool.
func (t *forgetter) forgetBlock(b protocol.BlockID) {
	for p := range t.base.arena.pools {
		if t.keeps(p, b) || !t.base.arena.alive(b) {
			continue
		}
		if x, i := t.base.arena.at(b); t.base.arena.locations(x, p)[i] != protocol.Nowhere {
			t.dropBlock(b, p)
		}
	}
}
