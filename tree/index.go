package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
)

// index finds the node of a block and the place of the block in its prefix. node and
// low have one length; ids from 0 up to it are in use or in free. They are two arrays
// and not one array of structs, which would be padded.
type index struct {
	node []int32 // by block; none: the id is free
	// low is by depth and not by the index in the run: split and merge change that for
	// all blocks behind, the depth for none. The low half is enough, since the node
	// knows where its depths begin.
	low  []uint16 // by block: of the depth, which is the index in the prefix
	free []protocol.BlockID
	// told is shorter than node, and empty in a tree that names no blocks: see NameBlocks.
	told []telling // by block
}

// reserve makes room for n blocks. Config.Blocks is a hint: the arrays grow beyond
// it.
func (s *index) reserve(n int) {
	s.node, s.low = make([]int32, 0, n), make([]uint16, 0, n)
}

// used returns the number of blocks that there are, ghosts included.
func (s *index) used() int { return len(s.node) - len(s.free) }

// nameBlocks gives ids to consecutive blocks of node x, the first at depth. The id
// that was freed last is used first, so that a run which left as a whole comes back
// with consecutive ids, and its attributes are neighbours in memory.
func (t *arena) nameBlocks(ids []protocol.BlockID, x, depth int32) {
	t.generation++
	t.nodes[x].bump(t.generation, depth)
	s := &t.index
	// Free ids are a stack, and freeBlocks puts the last block in first.
	used := min(len(ids), len(s.free))
	freed := s.free[len(s.free)-used:]
	s.free = s.free[:len(s.free)-used]
	if used < len(ids) {
		s.lengthen(ids[used:])
	}
	node, d := s.node, uint16(depth)
	low := s.low[:len(node)] // one comparison with a length is enough
	for i := range freed {
		b := freed[len(freed)-1-i]
		ids[i], node[b], low[b] = b, x, d+uint16(i)
	}
	for i := used; i < len(ids); i++ {
		node[ids[i]], low[ids[i]] = x, d+uint16(i)
	}
	if len(s.told) > 0 {
		s.untell(ids)
	}
}

// lengthen makes ids that were never used.
func (s *index) lengthen(ids []protocol.BlockID) {
	first := len(s.node)
	s.node, s.low = lengthen(s.node, len(ids)), lengthen(s.low, len(ids))
	for i := range ids {
		ids[i] = protocol.BlockID(first + i)
		s.node[first+i] = none
	}
}

// freeBlocks frees the ids of consecutive ghosts, the last one first.
func (t *arena) freeBlocks(ids []protocol.BlockID) {
	node, free := t.index.node, t.index.free
	for i := len(ids) - 1; i >= 0; i-- {
		node[ids[i]] = none
		free = append(free, ids[i])
	}
	t.index.free = free
}

// alive tells whether b is a block of the tree, perhaps a ghost. An id may be of
// another block than the caller knew: alive says only that it is in use.
func (t *arena) alive(b protocol.BlockID) bool {
	return b >= 0 && int(b) < len(t.index.node) && t.index.node[b] != none
}

// lows is the number of depths that have different low halves.
const lows = 1 << 16

// at returns the node of a block and its index in the run of the node. It costs a
// step for each lows blocks of the run.
func (t *arena) at(b protocol.BlockID) (x, i int32) {
	x = t.index.node[b]
	nd := &t.nodes[x]
	// The difference is taken in 16 bits, so it wraps around as the low halves do. In
	// a longer run the blocks with the same low half lie lows apart.
	i = int32(t.index.low[b] - uint16(nd.depth))
	if nd.n > lows {
		for t.ids(x)[i] != b {
			i += lows
		}
	}
	return x, i
}

// depth returns the index of a block in its prefix.
func (t *arena) depth(b protocol.BlockID) int32 {
	x, i := t.at(b)
	return t.nodes[x].depth + i
}
