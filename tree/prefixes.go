package tree

import (
	"iter"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// root is where the prefixes of one namespace begin.
//
// The root of cross pools has the one prefix that there is in its namespace: the
// input of the encoder, which the namespace names, padded to whole blocks.
type root struct {
	rootName
	children protocol.BlockID // the top of the treap of first blocks; NoBlock: the root is free
	input    int32            // tokens of the encoder's input without the padding; 0 for self pools
}

// rootName tells roots apart.
type rootName struct {
	namespace messages.Namespace
	cross     bool // cross pools hold its blocks, and no self pool; else the other way round
}

// rootOf returns the root of a namespace for self or cross pools, or none.
func (t *arena) rootOf(ns messages.Namespace, cross bool) int32 {
	if i, ok := t.byName[rootName{ns, cross}]; ok {
		return i
	}
	return none
}

// makeRoot returns the root of what s stores, and makes it if there is none. A caller
// makes a root only if it then stores at least one block below it, since nothing removes
// a root that never had a child.
func (t *arena) makeRoot(s *protocol.StoreItem) int32 {
	if i := t.rootOf(s.Namespace, s.Cross); i != none {
		return i
	}
	i := int32(len(t.roots))
	if n := len(t.freeRoots); n > 0 {
		i, t.freeRoots = t.freeRoots[n-1], t.freeRoots[:n-1]
	} else {
		t.roots = append(t.roots, root{})
	}
	t.roots[i] = root{rootName: rootName{s.Namespace, s.Cross}, children: protocol.NoBlock}
	// The input is that of the root's first store. Later stores name the same input,
	// because the namespace has its key.
	if s.Cross {
		t.roots[i].input = int32(s.Prompt)
	}
	t.byName[t.roots[i].rootName] = i
	return i
}

// removeRoot removes a root without blocks. It clears the entry, so that the strings of the
// namespace can be collected.
func (t *arena) removeRoot(i int32) {
	delete(t.byName, t.roots[i].rootName)
	t.roots[i] = root{children: protocol.NoBlock}
	t.freeRoots = append(t.freeRoots, i)
}

// padding returns how many tokens at the end of block b are none of the host's: those
// behind the end of an encoder's input.
func (t *arena) padding(b protocol.BlockID) int32 {
	if !t.cross(b) {
		return 0
	}
	return max(0, (t.blocks[b].depth+1)*int32(t.tpb)-t.roots[t.blocks[b].root].input)
}

// hostTokens returns the tokens of a block without the padding.
func (t *arena) hostTokens(b protocol.BlockID) []messages.Token {
	tokens := t.tokensOf(b)
	return tokens[:len(tokens)-int(t.padding(b))]
}

// prune removes the ghosts that nothing stands behind, from block b upwards.
func (t *reporter) prune(b protocol.BlockID) {
	for b != protocol.NoBlock && t.arena.isLeaf(b) && !t.arena.held(b) {
		up := t.arena.before(b)
		t.recordLeft(b)
		t.arena.freeBlock(b)
		if t.arena.top(up) == protocol.NoBlock && up.block == protocol.NoBlock {
			t.arena.removeRoot(up.root)
		}
		b = up.block
	}
}

// walk visits all blocks, namespace by namespace, in the order of walkBelow. The order is the same
// in each run, because no map is ranged over.
func (t *arena) walk() iter.Seq[protocol.BlockID] {
	return func(yield func(protocol.BlockID) bool) {
		for i := range t.roots {
			for run := range t.walkBelow(t.roots[i].children, nil) {
				for _, b := range run {
					if !yield(b) {
						return
					}
				}
			}
		}
	}
}

// walkBelow visits the siblings from b down that begin with prefix, and all blocks behind them, by
// runs of consecutive blocks where nothing branches off: parents before children, children in token
// order. The tree must not change during the walk, and a run holds until the next one. The depth of
// the stack does not depend on the length of prompts.
func (t *arena) walkBelow(b protocol.BlockID, prefix []messages.Token) iter.Seq[[]protocol.BlockID] {
	return func(yield func([]protocol.BlockID) bool) {
		var run []protocol.BlockID
		stack := t.appendSiblings(nil, b, prefix)
		for n := len(stack); n > 0; n = len(stack) {
			run = t.appendRun(run[:0], stack[n-1])
			if !yield(run) {
				return
			}
			stack = t.appendChildren(stack[:n-1], t.behind(run[len(run)-1]))
		}
	}
}
