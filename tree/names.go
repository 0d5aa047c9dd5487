package tree

import "github.com/kvactor/kvactor/internal/protocol"

// telling says whether the receiver of NameBlocks knows a block.
type telling uint8

const (
	untold    telling = iota // it does not, or an earlier block had the id
	told                     // an earlier message has told it
	beingTold                // the message under way tells it
)

// NameBlocks answers what the blocks of a message are: ids, tokens and parents of the blocks
// themselves, and of those before them that no earlier message has told. So a block is named
// when it is first to be saved, and blocks that are never saved cost nothing.
//
// Invariant: of a block that is told, all blocks before it in its prefix are told. A block
// cannot leave the tree before those behind it, and an id that is given again is untold.
func (t *Tree) NameBlocks(m *protocol.NameBlocks) {
	s := &t.base.arena.index
	if m.All {
		clear(s.told)
	}
	if more := len(s.node) - len(s.told); more > 0 {
		s.told = lengthen(s.told, more)
	}
	m.Named = &protocol.Changes{}
	for at := 0; at < len(m.Blocks); {
		x, lo := t.base.arena.at(m.Blocks[at])
		hi := lo + 1
		// Consecutive blocks of a run are one change.
		ids := t.base.arena.ids(x)
		for at++; at < len(m.Blocks) && int(hi) < len(ids) && ids[hi] == m.Blocks[at]; at++ {
			hi++
		}
		t.base.tellBefore(m.Named, x, lo)
		t.base.tell(m.Named, segment{x, lo, hi})
	}
	for _, b := range m.Named.Blocks {
		s.told[b] = told
	}
}

// tellBefore adds the blocks before block i of node x that are not told, the first block of
// the prefix first.
func (t *reporter) tellBefore(c *protocol.Changes, x, i int32) {
	var path []segment
	for {
		lo, ids := i, t.arena.ids(x)
		for lo > 0 && t.arena.index.told[ids[lo-1]] == untold {
			lo--
		}
		if lo < i {
			path = append(path, segment{x, lo, i})
		}
		// Above a told block all blocks are told. A root has no blocks.
		if lo > 0 || t.arena.nodes[x].root != none {
			break
		}
		x = t.parentOf(x)
		i = t.arena.nodes[x].n
	}
	for k := len(path) - 1; k >= 0; k-- {
		t.tell(c, path[k])
	}
}

// tell adds blocks of one run to a record, but for those that it has already: a list of
// blocks to be saved may have one of them for each pool.
func (t *reporter) tell(c *protocol.Changes, g segment) {
	ids, state := t.arena.ids(g.node), t.arena.index.told
	for i := g.lo; i < g.hi; i++ {
		from := i
		for i < g.hi && state[ids[i]] != beingTold {
			state[ids[i]] = beingTold
			i++
		}
		if from < i {
			t.enter(c, segment{g.node, from, i})
		}
	}
}

// untell notes that ids are those of other blocks from now on.
func (s *index) untell(ids []protocol.BlockID) {
	for _, b := range ids {
		if int(b) < len(s.told) {
			s.told[b] = untold
		}
	}
}
