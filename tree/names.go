package tree

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
)

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
	if m.All {
		for b := range t.arena.blocks {
			t.arena.blocks[b].told = untold
		}
	}
	m.Named = &protocol.Changes{}
	var chain []protocol.BlockID
	for _, b := range m.Blocks {
		// A list of blocks to be saved may have one of them for each pool.
		if t.arena.blocks[b].told == beingTold {
			continue
		}
		chain = append(chain[:0], b)
		for c := t.arena.blocks[b].parent; c != protocol.NoBlock; c = t.arena.blocks[c].parent {
			if t.arena.blocks[c].told != untold {
				break
			}
			chain = append(chain, c)
		}
		slices.Reverse(chain)
		for i, c := range chain {
			t.arena.blocks[c].told = beingTold
			t.enter(m.Named, chain[i:i+1])
		}
	}
	for _, b := range m.Named.Blocks {
		t.arena.blocks[b].told = told
	}
}
