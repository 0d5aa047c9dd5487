package tree

import "github.com/kvactor/kvactor/internal/protocol"

// generations bound when the blocks of a node were made, in generations of the
// tree: one for each run that is made. They show that a Cursor is not of another
// block that had the same id before.
//
// A run keeps two bounds: blocks before depth node.fresh were made no later than
// minGeneration, the others no later than newest. Two are enough for sequences that
// extend one run in turn, each behind the blocks of the other: they find the blocks
// before the newest ones as old as they are.
type generations struct {
	minGeneration uint64
	newest        uint64
}

// max returns the bound of all blocks.
func (g generations) max() uint64 { return max(g.minGeneration, g.newest) }

// bump notes that the blocks from this depth on are made in generation now. The
// bounds become less precise for earlier blocks: a cursor to one of those may be
// refused although its block is there, which costs a walk from the root and is never
// wrong.
func (nd *node) bump(now uint64, depth int32) {
	nd.generations = generations{minGeneration: nd.generations.max(), newest: now}
	nd.fresh = depth
}

// generationOf returns the latest generation in which the block of this depth can
// have been made.
func (nd *node) generationOf(depth int32) uint64 {
	if depth < nd.fresh {
		return nd.generations.minGeneration
	}
	return nd.generations.newest
}

// joinGenerations gives nodes x and y, which follows it, the bounds of both. No block
// is newer than one that follows it: a block stays in the tree while others follow it.
// So the newer bounds of y hold for all, once its older bound covers x.
func (t *arena) joinGenerations(x, y int32) {
	t.nodes[y].generations.minGeneration = max(t.nodes[x].generations.max(), t.nodes[y].generations.minGeneration)
	t.nodes[x].generations, t.nodes[x].fresh = t.nodes[y].generations, t.nodes[y].fresh
}

// cursor returns a Cursor that remembers block b. The tree's generation is at least
// that of the block, and less than that of any block that gets the same id later.
func (t *arena) cursor(b protocol.BlockID) protocol.Cursor {
	return protocol.Cursor{Block: b, Generation: t.generation}
}

// follows tells whether a cursor leads to the block that it was made for. It may
// say no for a block that is still there, in a run that has been merged with a
// newer one: the store then starts at the root.
func (t *arena) follows(c protocol.Cursor) bool {
	if c.Generation == 0 || !t.alive(c.Block) {
		return false
	}
	// The id may have been given to another block since. That block was made later
	// than the cursor, and the bound of its run says so.
	x, i := t.at(c.Block)
	return t.nodes[x].generationOf(t.nodes[x].depth+i) <= c.Generation
}
