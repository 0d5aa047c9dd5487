package tree

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// forgetter removes the blocks that an invalidation selects, or one that is taken over, in three
// passes: select the blocks, report what is forgotten while all of them are still known, then
// remove them. The reports are in the order of prefixes, so that effects and changes join, and the
// removal is in the opposite order.
type forgetter struct {
	*holdings
	toForget []protocol.BlockID // what is selected, parents before children
	// kept says which contents stay, as [pool][block]; nil: none.
	kept [][]bool
}

// forget removes what f selects and returns the number of blocks that no pool holds any
// more.
func (t *forgetter) forget(f *protocol.Forget) int {
	t.toForget, t.kept = t.toForget[:0], nil
	t.selectBlocks(f)
	before := t.arena.blocksHeld
	t.remove()
	// Only an empty tree makes this event: readers drop all keys by it.
	if f.All && t.recording && t.arena.blocksHeld == 0 {
		addChange(t.log.changes, protocol.EverythingForgot)
	}
	return before - t.arena.blocksHeld
}

// takeOver removes a block whose page a sequence takes over. The sequence writes its
// own tokens over a part of the page, so the block must not be found from this
// message on, in any pool. If other blocks follow, it stays as a ghost.
func (t *forgetter) takeOver(b protocol.BlockID) {
	if !t.arena.alive(b) {
		panic(fmt.Sprintf("tree: takeover of block %d, which is not in the tree", b))
	}
	t.toForget, t.kept = append(t.toForget[:0], b), nil
	t.remove()
}

// remove reports and removes t.toForget.
func (t *forgetter) remove() {
	for p := range t.arena.pools {
		t.reportForgotten(p)
	}
	// From the last to the first, so that no block becomes a ghost on the way.
	for k := len(t.toForget) - 1; k >= 0; k-- {
		t.forgetBlock(t.toForget[k])
	}
}

// selectBlocks adds what f selects to t.toForget.
func (t *forgetter) selectBlocks(f *protocol.Forget) {
	switch s := &f.Selector; {
	case f.All:
		// Sequences go on to use these pages, so only All, which ends all else, needs
		// the table; a selector forgets blocks whoever uses them.
		t.kept = t.marks(f.Keep)
		t.toForget = slices.AppendSeq(t.toForget, t.arena.walk())
	case s.Session != "":
		t.selectSession(s.Session)
	case s.Prefix != nil:
		t.selectPrefix(s.Prefix, f.Cross)
	default:
		for i := range t.arena.roots {
			if r := &t.arena.roots[i]; s.Names(&r.namespace) {
				t.selectBelow(r.children, nil)
			}
		}
	}
}

// marks turns lists of blocks, by pool, into [pool][block].
func (t *forgetter) marks(lists [][]protocol.BlockID) [][]bool {
	m := make([][]bool, len(t.arena.pools))
	for p := range m {
		m[p] = make([]bool, len(t.arena.blocks))
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

// selectBelow adds what walkBelow visits to t.toForget.
func (t *forgetter) selectBelow(b protocol.BlockID, prefix []messages.Token) {
	for run := range t.arena.walkBelow(b, prefix) {
		t.toForget = append(t.toForget, run...)
	}
}

// selectSession adds the blocks that belong to a session to t.toForget. It looks at all
// blocks. Lists of blocks by session would cost each block two links, for a request that is
// rare.
func (t *forgetter) selectSession(name string) {
	s, ok := t.arena.sessions.index[name]
	if !ok {
		return
	}
	for b := range t.arena.walk() {
		if t.arena.blocks[b].session == s {
			t.toForget = append(t.toForget, b)
		}
	}
}

// selectPrefix adds to t.toForget the blocks of a namespace whose tokens from the
// start begin with all those of the prefix.
func (t *forgetter) selectPrefix(q *messages.Prefix, cross bool) {
	t.arena.symbols.lookup(q.Tokens, q.Multimodal)
	root := t.arena.rootOf(q.Namespace, cross)
	if root == none {
		return
	}
	// The last block of the prefix, whole or in part, is searched for by its tokens, and
	// selected with all behind it.
	at, rest := spot{root, protocol.NoBlock}, q.Tokens
	for ; len(rest) > t.arena.tpb; rest = rest[t.arena.tpb:] {
		if at.block = t.arena.child(at, rest[:t.arena.tpb]); at.block == protocol.NoBlock {
			return
		}
	}
	t.selectBelow(t.arena.top(at), rest)
}

// reportForgotten reports what pool p forgets of t.toForget. Device pages and host
// memory are two passes, since effects join only while one kind follows another: in
// one pass each block would be two effects.
func (t *forgetter) reportForgotten(p int) {
	for _, host := range [2]bool{false, true} {
		for _, b := range t.toForget {
			page, tier, ok := t.arena.locations[p][b].Page()
			switch {
			case !ok || t.keeps(p, b):
			case host && t.host:
				t.effect(protocol.HostForget, p, b, messages.NoPage)
			case !host:
				if tier == messages.Primary {
					t.effect(protocol.Detach, p, b, page)
				}
				t.record(protocol.BlocksRemoved, p, b, 0, 0)
			}
		}
	}
}

// forgetBlock removes b from the pools that do not keep it. The block's last pool
// ends the block, so alive is asked for each pool.
func (t *forgetter) forgetBlock(b protocol.BlockID) {
	for p := range t.arena.pools {
		if !t.keeps(p, b) && t.arena.alive(b) && t.arena.locations[p][b] != protocol.Nowhere {
			t.countUnsaved(b)
			t.dropBlock(b, p)
		}
	}
}
