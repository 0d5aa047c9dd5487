package tree

import (
	"cmp"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Forget removes blocks from the tree and answers how many no pool holds any more.
func (t *Tree) Forget(f *protocol.Forget) {
	t.log.begin(f.Effects)
	t.expire(f.Now)
	t.toForget = t.toForget[:0]
	var kept [][]bool
	switch s := &f.Selector; {
	case f.All:
		kept = t.marks(f.Keep)
		for i := range t.roots {
			t.selectRoot(int32(i))
		}
	case s.Session != "":
		t.selectSession(s.Session)
	case s.Prefix != nil:
		t.selectPrefix(s.Prefix, f.Cross)
	default:
		for i := range t.roots {
			if t.roots[i].namespace.Salt == s.Salt {
				t.selectRoot(int32(i))
			}
		}
	}
	before := t.blocksHeld
	for p := range t.pools {
		t.reportForgotten(p, kept)
	}
	// From the last to the first, so that what is behind goes first.
	for k := len(t.toForget) - 1; k >= 0; k-- {
		t.forgetBlock(t.toForget[k], kept)
	}
	f.Blocks = before - t.blocksHeld
	if f.All && t.recording && t.blocksHeld == 0 {
		t.record(protocol.Change{Kind: protocol.EverythingForgot})
	}
	f.Effects = t.log.end()
	t.verify()
}

// marks turns lists of blocks, by pool, into [pool][block].
func (t *Tree) marks(lists [][]protocol.BlockID) [][]bool {
	m := make([][]bool, len(t.pools))
	for p := range m {
		m[p] = make([]bool, len(t.blocks.node))
		if p < len(lists) {
			for _, b := range lists[p] {
				m[p][b] = true
			}
		}
	}
	return m
}

// doomRoot adds all blocks of a namespace to the doomed.
func (t *Tree) selectRoot(i int32) {
	if x := t.roots[i].node; x != none {
		t.stack = append(t.stack[:0], x)
		t.selectSubtrees()
	}
}

// doomKin adds all blocks of the subtrees of t.kin to the doomed, parents first.
func (t *Tree) selectSubtrees() {
	for n := len(t.stack); n > 0; n = len(t.stack) {
		x := t.stack[n-1]
		t.stack = t.stack[:n-1]
		t.toForget = append(t.toForget, t.ids(x)...)
		t.stack = t.childrenOf(t.stack, x)
	}
}

// doomSession adds the blocks that belong to a session to the doomed, runs in order.
func (t *Tree) selectSession(name string) {
	s := t.sessions.find(name)
	if s == none {
		return
	}
	for b, of := range t.blocks.session {
		if of == s {
			t.toForget = append(t.toForget, protocol.BlockID(b))
		}
	}
	slices.SortFunc(t.toForget, func(a, b protocol.BlockID) int {
		if c := cmp.Compare(t.blocks.node[a], t.blocks.node[b]); c != 0 {
			return c
		}
		return cmp.Compare(t.depth(a), t.depth(b))
	})
}

// doomPrefix adds to the doomed the blocks of a namespace whose tokens from
// the start begin with all those of the prefix.
func (t *Tree) selectPrefix(q *messages.Prefix, cross bool) {
	t.symbols.lookup(q.Tokens, q.Multimodal)
	x := t.rootOf(q.Namespace, cross)
	if x == none {
		return
	}
	t.path = t.path[:0]
	whole := t.walk(x, q.Tokens)
	rest := q.Tokens[int(whole)*t.tpb:]
	if len(rest) >= t.tpb {
		return // a whole block of the prefix is not there
	}
	t.stack = t.stack[:0]
	from := int32(0) // first doomed block of x's run
	if len(t.path) > 0 {
		s := t.path[len(t.path)-1]
		x, from = s.node, s.hi
	}
	switch n := t.nodes[x].n; {
	case len(rest) == 0:
		from = max(0, from-1)
	case from == n:
		t.stack = t.childrenWith(t.stack, t.nodes[x].children, rest)
		t.selectSubtrees()
		return
	case firstDifference(t.tokensAt(x, from), rest) < len(rest):
		return
	}
	t.toForget = append(t.toForget, t.ids(x)[from:]...)
	t.stack = t.childrenOf(t.stack, x)
	t.selectSubtrees()
}

// kids adds the children of x to list, the last in order first.
func (t *Tree) childrenOf(list []int32, x int32) []int32 {
	return t.childrenWith(list, t.nodes[x].children, nil)
}

// kidsWith adds the elements from x down whose first block begins with prefix
// to list, the last in order first. Its depth is that of the treap.
func (t *Tree) childrenWith(list []int32, x int32, prefix []messages.Token) []int32 {
	if x == none {
		return list
	}
	c := t.against(x, prefix)
	if c <= 0 {
		list = t.childrenWith(list, t.nodes[x].side[1], prefix)
	}
	if c == 0 {
		list = append(list, x)
	}
	if c >= 0 {
		list = t.childrenWith(list, t.nodes[x].side[0], prefix)
	}
	return list
}

// tellForgotten records what pool p forgets of the doomed.
func (t *Tree) reportForgotten(p int, kept [][]bool) {
	for _, host := range [2]bool{false, true} {
		for _, b := range t.toForget {
			x, i := t.at(b)
			page, tier, ok := t.locations(x, p)[i].Page()
			switch {
			case !ok || kept != nil && kept[p][b]:
			case host && t.host:
				t.effect(protocol.HostForget, p, b, messages.NoPage)
			case !host:
				if tier == messages.Primary {
					t.effect(protocol.Detach, p, b, page)
				}
				t.recordRemoved(b, p)
			}
		}
	}
}

// doom makes the pools that do not keep b lose it.
func (t *Tree) forgetBlock(b protocol.BlockID, kept [][]bool) {
	for p := range t.pools {
		if kept != nil && kept[p][b] || !t.alive(b) {
			continue
		}
		if x, i := t.at(b); t.locations(x, p)[i] != messages.Nowhere {
			t.dropBlock(b, p)
		}
	}
}
