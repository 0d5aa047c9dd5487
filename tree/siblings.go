package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// The blocks that follow one block, or begin the prefixes of a namespace, are siblings: a
// treap in the order of their tokens. Each sibling knows the latest stamp below it, so the
// best partial match among 100,000 is found in the time of a few dozen comparisons.

// unlinked are the sides of a sibling that has none below it.
var unlinked = [2]protocol.BlockID{protocol.NoBlock, protocol.NoBlock}

// place is where a block would be among the siblings behind a spot: on a side of another
// one or, if above is NoBlock, alone.
type place struct {
	spot
	above protocol.BlockID
	side  int
}

// The two questions that the treap of siblings answers.
const (
	// Every candidate is a holder, so latest[candidates] ≤ latest[holders].
	candidates = 0 // has a page in every pool: may be reused in part
	holders    = 1 // some pool holds it
)

// top returns the top of the treap of the blocks behind a spot, or NoBlock.
func (t *arena) top(s spot) protocol.BlockID {
	if s.block == protocol.NoBlock {
		return t.roots[s.root].children
	}
	return t.blocks[s.block].children
}

// setTop changes the top of the treap of the blocks behind a spot.
func (t *arena) setTop(s spot, b protocol.BlockID) {
	if s.block == protocol.NoBlock {
		t.roots[s.root].children = b
	} else {
		t.blocks[s.block].children = b
	}
}

// isLeaf tells whether no block follows b.
func (t *arena) isLeaf(b protocol.BlockID) bool { return t.blocks[b].children == protocol.NoBlock }

// weight is the random number that keeps the treap shallow: no sibling weighs more than the
// one above it. It decides the cost of a search, not its result.
func weight(b protocol.BlockID) uint64 {
	z := (uint64(b) + 1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// own returns the stamp of b if it counts as candidate, and as held, else 0.
func (t *arena) own(b protocol.BlockID) (stamps [2]uint64) {
	if stamp := t.blocks[b].stamp; stamp > 0 {
		stamps[holders] = stamp
		if t.heldByAll(b) {
			stamps[candidates] = stamp
		}
	}
	return stamps
}

// latestOf returns latest of a sibling that may be NoBlock.
func (t *arena) latestOf(b protocol.BlockID, what int) uint64 {
	if b == protocol.NoBlock {
		return 0
	}
	return t.blocks[b].latest[what]
}

// combine computes latest of b from b and the two siblings below it, and tells whether it
// has changed. It must be called from below upwards.
func (t *arena) combine(b protocol.BlockID) bool {
	r := &t.blocks[b]
	latest := t.own(b)
	for _, y := range r.side {
		if y != protocol.NoBlock {
			below := &t.blocks[y].latest
			latest[candidates] = max(latest[candidates], below[candidates])
			latest[holders] = max(latest[holders], below[holders])
		}
	}
	changed := latest != r.latest
	r.latest = latest
	return changed
}

// refreshUpwards computes latest of b, whose stamp or locations have changed, and of the
// siblings above it, as far up as it changes.
func (t *arena) refreshUpwards(b protocol.BlockID) {
	for b != protocol.NoBlock && t.combine(b) {
		b = t.blocks[b].above
	}
}

// replaceBelow makes x, which may be NoBlock, the sibling in the place of y.
func (t *arena) replaceBelow(x, y protocol.BlockID) {
	up := t.blocks[y].above
	switch {
	case up == protocol.NoBlock:
		t.setTop(t.before(y), x)
	case t.blocks[up].side[0] == y:
		t.blocks[up].side[0] = x
	default:
		t.blocks[up].side[1] = x
	}
	if x != protocol.NoBlock {
		t.blocks[x].above = up
	}
}

// rotate makes x the sibling above the one that is above it now, and keeps the order of
// tokens.
func (t *arena) rotate(x protocol.BlockID) {
	y := t.blocks[x].above
	s := 0
	if t.blocks[y].side[1] == x {
		s = 1
	}
	//	     y            x
	//	    / \          / \
	//	   x   c   ──▶  a   y        for x before y; else mirrored
	//	  / \              / \
	//	 a  inner       inner  c
	inner := t.blocks[x].side[1-s]
	t.replaceBelow(x, y)
	t.blocks[y].side[s] = inner
	if inner != protocol.NoBlock {
		t.blocks[inner].above = y
	}
	t.blocks[x].side[1-s] = y
	t.blocks[y].above = x
	// What is above x is not computed here: the siblings below the place are the same.
	t.combine(y)
	t.combine(x)
}

// insert adds b, a ghost, to its siblings, at a place that a search for its tokens has
// found. It begins at the bottom and is rotated up to its weight. A ghost changes no
// latest.
func (t *arena) insert(b protocol.BlockID, at place) {
	t.blocks[b].above, t.blocks[b].side = at.above, unlinked
	if at.above == protocol.NoBlock {
		t.setTop(at.spot, b)
		return
	}
	t.blocks[at.above].side[at.side] = b
	for up := at.above; up != protocol.NoBlock && weight(b) > weight(up); up = t.blocks[b].above {
		t.rotate(b)
	}
}

// remove removes b, a ghost, from its siblings: it is rotated down to where at most one is
// below it.
func (t *arena) remove(b protocol.BlockID) {
	for {
		side := t.blocks[b].side
		switch {
		case side[0] == protocol.NoBlock:
			t.replaceBelow(side[1], b)
			return
		case side[1] == protocol.NoBlock:
			t.replaceBelow(side[0], b)
			return
		case weight(side[0]) > weight(side[1]):
			t.rotate(side[0])
		default:
			t.rotate(side[1])
		}
	}
}

// appendChildren appends the blocks behind a spot to list, the last in order first: that is
// the order in which a stack is filled.
func (t *arena) appendChildren(list []protocol.BlockID, s spot) []protocol.BlockID {
	return t.appendSiblings(list, t.top(s), nil)
}

// appendSiblings appends the siblings from b down that begin with prefix to list, the last
// in order first. It recurses as deep as the treap, which is logarithmic.
func (t *arena) appendSiblings(
	list []protocol.BlockID, b protocol.BlockID, prefix []messages.Token,
) []protocol.BlockID {
	if b == protocol.NoBlock {
		return list
	}
	// Those that begin with prefix are a range. b is before it (c < 0), in it or behind it,
	// and only the sides that the range reaches are searched.
	c := t.against(b, prefix)
	if c <= 0 {
		list = t.appendSiblings(list, t.blocks[b].side[1], prefix)
	}
	if c == 0 {
		list = append(list, b)
	}
	if c >= 0 {
		list = t.appendSiblings(list, t.blocks[b].side[0], prefix)
	}
	return list
}
