package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// path is a way downwards in a tree: segments that follow one another without a gap.
// It is valid until one of its nodes is split, merged or freed. Matches, stores and
// invalidations each have one, and keep it only for its memory.
type path struct {
	*siblings
	segments []segment
}

// follow makes t the path from a root that has tokens, as far as whole blocks match,
// and returns its length in blocks.
func (t *path) follow(x int32, tokens []messages.Token) (depth int32) {
	t.segments = t.segments[:0]
	for len(tokens) >= t.arena.tpb {
		// Whole blocks only: a block that is stored in part has fewer tokens than the
		// key that is searched for, so child never returns it.
		x = t.child(x, tokens[:t.arena.tpb])
		if x == none {
			break
		}
		// The search has compared the first block.
		n := 1 + int32(firstDifference(t.arena.tokens(x)[t.arena.tpb:], tokens[t.arena.tpb:])/t.arena.tpb)
		t.segments = append(t.segments, segment{x, 0, n})
		depth += n
		// The prompt leaves the run inside it. It is not split: a match changes
		// nothing.
		if n < t.arena.nodes[x].n {
			break
		}
		tokens = tokens[int(n)*t.arena.tpb:]
	}
	return depth
}

// segmentAt returns the index in t.segments of the segment that block i lies in. It is a
// binary search over the depths of nodes: a prompt may have as many nodes as blocks.
// The path must have block i.
func (t *path) segmentAt(i int32) int {
	lo, hi := 0, len(t.segments)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; t.arena.nodes[t.segments[mid].node].depth <= i {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// firstHole returns the first block of the path before end that pool p lacks, else
// end. Nodes that the pool holds in full are left out by their counts, so without
// evictions it costs a step for each node.
func (t *path) firstHole(p int, end int32) int32 {
	for _, s := range t.segments {
		depth := t.arena.nodes[s.node].depth
		if depth >= end {
			break
		}
		if t.arena.holdsAll(s.node, p) {
			continue
		}
		// A count is of the whole run, and the hole may lie behind the segment or the
		// end.
		for i, l := range t.arena.locations(s.node, p)[:min(s.hi, end-depth)] {
			if l == protocol.Nowhere {
				return depth + int32(i)
			}
		}
	}
	return end
}

// lastHole returns the last block of the path in [lo, hi) that pool p lacks, or −1.
// It goes backwards, because the hole nearest to the end is the one that decides how
// far a window allows a match; those before it may lie outside the next window.
func (t *path) lastHole(p int, lo, hi int32) int32 {
	if lo >= hi {
		return -1
	}
	for k := t.segmentAt(hi - 1); k >= 0; k-- {
		s := t.segments[k]
		depth := t.arena.nodes[s.node].depth
		if !t.arena.holdsAll(s.node, p) {
			l := t.arena.locations(s.node, p)
			for i := min(s.hi, hi-depth) - 1; i >= max(0, lo-depth); i-- {
				if l[i] == protocol.Nowhere {
					return depth + i
				}
			}
		}
		if depth <= lo {
			break
		}
	}
	return -1
}

// countHoles counts the blocks of the path in [lo, hi) that pool p lacks.
func (t *path) countHoles(p int, lo, hi int32) (n int) {
	if lo >= hi {
		return 0
	}
	for _, s := range t.segments[t.segmentAt(lo):] {
		depth := t.arena.nodes[s.node].depth
		if depth >= hi {
			break
		}
		if t.arena.holdsAll(s.node, p) {
			continue
		}
		for _, l := range t.arena.locations(s.node, p)[max(0, lo-depth):min(s.hi, hi-depth)] {
			if l == protocol.Nowhere {
				n++
			}
		}
	}
	return n
}

// copyLocations copies where pool p keeps the blocks [lo, hi) of the path. A path of
// few nodes is a few copies of memory, however many blocks it has.
func (t *path) copyLocations(to []protocol.Location, p int, lo, hi int32) {
	if lo >= hi {
		return
	}
	for _, s := range t.segments[t.segmentAt(lo):] {
		depth := t.arena.nodes[s.node].depth
		if depth >= hi {
			break
		}
		from := max(0, lo-depth)
		copy(to[depth+from:hi], t.arena.locations(s.node, p)[from:s.hi])
	}
}

// retrace makes t the path from block first to a position. It is found
// upwards, so that a store that began at a cursor costs nothing for the blocks
// before it.
func (t *path) retrace(at position, first int32) {
	t.segments = t.segments[:0]
	for x, hi := at.node, at.i; t.arena.nodes[x].depth+hi > first; hi = t.arena.nodes[x].n {
		lo := max(0, first-t.arena.nodes[x].depth)
		t.segments = append(t.segments, segment{x, lo, hi})
		// first lies inside this node, or this node begins the prefix. Going on would
		// only add segments of blocks that the offer leaves out.
		if lo > 0 || t.arena.nodes[x].depth == 0 {
			break
		}
		x = t.parentOf(x)
	}
	// Upwards is the only way that is known; attributes, effects and events are in
	// the order of the prefix.
	for i, j := 0, len(t.segments)-1; i < j; i, j = i+1, j-1 {
		t.segments[i], t.segments[j] = t.segments[j], t.segments[i]
	}
}
