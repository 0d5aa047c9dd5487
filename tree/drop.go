package tree

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// What the pools lose they mostly lose from the tail of a prefix to its head,
// one block after the other: so it goes by runs of one node.

// dropRun handles the first moves if they drop contents: as many of them as drop,
// from the last to the first, consecutive blocks of one node in one pool. It
// returns their number, 0 if the first move drops nothing. Pools lose most blocks
// from the tail of a prefix to its head, so most moves are handled by runs.
func (t *holdings) dropRun(moves []protocol.BlockMove) int {
	m := &moves[0]
	if m.To != protocol.Nowhere {
		return 0
	}
	if !t.base.arena.alive(m.Block) {
		panic(fmt.Sprintf("tree: block %d leaves pool %d, which is not in the tree", m.Block, m.Pool))
	}
	x, last := t.base.arena.at(m.Block)
	n := 1 + droppedBefore(t.base.arena.ids(x)[:last], moves[1:], m.Pool)
	s := segment{x, last + 1 - int32(n), last + 1}
	// The change is recorded first: drop may free the ids.
	t.base.recordEvicted(s, int(m.Pool))
	t.drop(s, int(m.Pool))
	return n
}

// droppedBefore returns how many moves drop blocks from a pool that are the last of ids: the last one
// first, then the one before it. All of it is compared with one branch for a move.
func droppedBefore(ids []protocol.BlockID, moves []protocol.BlockMove, pool messages.PoolID) int {
	moves = moves[:min(len(moves), len(ids))]
	ids = ids[len(ids)-len(moves):]
	for i, at := 0, len(ids)-1; i < len(moves) && uint(at) < uint(len(ids)); i, at = i+1, at-1 {
		if m := &moves[i]; m.Block^ids[at]|protocol.BlockID(m.Pool^pool)|protocol.BlockID(m.To^protocol.Nowhere) != 0 {
			return i
		}
	}
	return len(moves)
}

// drop removes the blocks of a segment from pool p, which holds them. Nodes may be
// freed by it. It reports no effect: either pool and offloader have dropped the
// contents by themselves, or the caller has reported it before.
func (t *holdings) drop(s segment, p int) {
	t.clearLocations(s, p)
	gone := t.expireDropped(s, p)
	// The treap is brought up to date before prune, which takes ghosts out of it on
	// the condition that no latest counts them.
	if s.lo == 0 {
		t.base.refreshUpwards(s.node)
	}
	// A block that another pool holds stays, so only a block that has become a ghost
	// can change nodes.
	if gone {
		t.prune(s.node)
	}
}

// clearLocations makes nowhere the place of the blocks of a segment in pool p, which holds
// them. If the pool has the whole run in device pages, as the counts say, the locations need
// not be read.
func (t *holdings) clearLocations(s segment, p int) {
	locations := t.base.arena.locations(s.node, p)[s.lo:s.hi]
	device, host := t.base.arena.count(s.node, p, messages.Primary), t.base.arena.count(s.node, p, messages.Secondary)
	if *device == t.base.arena.nodes[s.node].n {
		*device -= s.hi - s.lo
		fillNowhere(locations)
		return
	}
	for i, l := range locations {
		switch {
		case l == protocol.Nowhere:
			panic(fmt.Sprintf("tree: block %d leaves pool %d, which does not hold it", t.base.arena.ids(s.node)[s.lo+int32(i)], p))
		case l < protocol.Nowhere:
			*host--
		default:
			*device--
		}
		locations[i] = protocol.Nowhere
	}
}

// expireDropped removes the attributes of those blocks of a segment that no pool
// holds now that p does not, and tells whether there are any.
func (t *holdings) expireDropped(s segment, p int) (gone bool) {
	// Counts decide for whole runs: with one pool the second test always answers.
	if t.base.arena.heldThroughout(s.node, p) {
		return false
	}
	ids := t.base.arena.ids(s.node)[s.lo:s.hi]
	if t.base.arena.heldNowhere(s.node, p) {
		t.base.expireAttributes(ids...)
		return true
	}
	for i := range ids {
		if !t.base.arena.held(s.node, s.lo+int32(i)) {
			t.base.expireAttributes(ids[i])
			gone = true
		}
	}
	return gone
}

// dropBlock is drop for one block.
func (t *holdings) dropBlock(b protocol.BlockID, p int) {
	x, i := t.base.arena.at(b)
	t.drop(segment{x, i, i + 1}, p)
}
