package tree

import (
	"math"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
)

// nextStamp returns a stamp that is later than all before it.
func (t *siblings) nextStamp() uint32 {
	if t.stamp == math.MaxUint32 {
		t.restamp()
	}
	t.stamp++
	return t.stamp
}

// restamp numbers the stamps in use from 1, in their order, so that 32 bits never run
// out. It costs a sort of all blocks once in 2³² claims and stores, which is nothing
// for each of them; 64-bit stamps would cost 4 bytes for each block all the time.
// Blocks with equal stamps stay equal, so every choice among siblings comes out as
// before.
func (t *siblings) restamp() {
	used := make([]uint32, 0, t.blocksHeld)
	for _, s := range t.blocks.stamp {
		if s != 0 {
			used = append(used, s)
		}
	}
	slices.Sort(used)
	used = slices.Compact(used)
	// The fields own and latest of an element are stamps of held blocks, so the search always
	// finds them. Ghosts and free ids have stamp 0, which stays.
	rank := func(s uint32) uint32 {
		if s == 0 {
			return 0
		}
		i, _ := slices.BinarySearch(used, s)
		return uint32(i) + 1
	}
	for b, s := range t.blocks.stamp {
		t.blocks.stamp[b] = rank(s)
	}
	for x := range t.elements {
		e := &t.elements[x]
		for what := range e.own {
			e.own[what], e.latest[what] = rank(e.own[what]), rank(e.latest[what])
		}
	}
	t.stamp = uint32(len(used))
}

// touch gives a block that some pool holds a new stamp.
func (t *siblings) touch(b protocol.BlockID, stamp uint32) {
	t.blocks.stamp[b] = stamp
	if x, i := t.arena.at(b); i == 0 {
		t.refreshUpwards(x)
	}
}
