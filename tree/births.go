package tree

import "github.com/kvactor/kvactor/internal/protocol"

// births bound when the blocks of a node came to be, by the tree's count of
// births, so that a Cursor is known not to be of another block that had the id
// before. Two numbers for a run do: sequences that go on from one end, each
// behind the other, find the blocks before the newest as old as they are.
type generations struct {
	minGeneration uint64 // of blocks before depth fresh none is younger
	newest        uint64 // of blocks from there on none is
	fresh         int32
}

// bear tells that the blocks from this depth on are born now.
func (a *generations) bump(now uint64, depth int32) {
	*a = generations{minGeneration: max(a.minGeneration, a.newest), newest: now, fresh: depth}
}

// join are the births of a run that begins with those of a.
func (a generations) merge(behind generations) generations {
	behind.minGeneration = max(a.minGeneration, a.newest, behind.minGeneration)
	return behind
}

// of bounds the birth of the block of this depth.
func (a *generations) of(depth int32) uint64 {
	if depth < a.fresh {
		return a.minGeneration
	}
	return a.newest
}

// cursor remembers block b.
func (t *Tree) cursor(b protocol.BlockID) protocol.Cursor {
	return protocol.Cursor{Block: b, Generation: t.generation}
}

// follows tells whether a cursor leads to the block it was made for. It may say
// no of one that is still there, in a run that has been joined with younger ones.
func (t *Tree) follows(c protocol.Cursor) bool {
	if c.Generation == 0 || !t.alive(c.Block) {
		return false
	}
	x, i := t.at(c.Block)
	return t.nodes[x].generations.of(t.nodes[x].depth+i) <= c.Generation
}
