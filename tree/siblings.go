package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// The blocks that follow one block, or begin the prefixes of a namespace, are siblings: a
// treap in the order of their tokens. Each sibling knows the latest stamp below it, so the
// best partial match among 100,000 takes some microseconds.

// unlinked are the sides of a sibling that has none below it.
var unlinked = [2]protocol.BlockID{protocol.NoBlock, protocol.NoBlock}

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
	return z ^ z>>31
}

// counting returns the stamp of b, which may be NoBlock, if it counts, else 0.
func (t *arena) counting(b protocol.BlockID, what int) uint64 {
	if b == protocol.NoBlock || what == candidates && !t.heldByAll(b) {
		return 0
	}
	return t.blocks[b].stamp // 0 of a ghost
}

// latestOf returns latest of a sibling that may be NoBlock.
func (t *arena) latestOf(b protocol.BlockID, what int) uint64 {
	if b == protocol.NoBlock {
		return 0
	}
	return t.blocks[b].latest[what]
}

// combine computes latest of b from b and the two siblings below it. It must be called from
// below upwards.
func (t *arena) combine(b protocol.BlockID) {
	r := &t.blocks[b]
	for what := range r.latest {
		r.latest[what] = max(t.counting(b, what), t.latestOf(r.side[0], what),
			t.latestOf(r.side[1], what))
	}
}

// refresh computes latest of b, whose stamp or locations have changed, and of the siblings above
// it.
func (t *arena) refresh(b protocol.BlockID) { t.refreshFrom(t.top(t.before(b)), b) }

// refreshFrom is refresh from sibling x down.
func (t *arena) refreshFrom(x, b protocol.BlockID) {
	if x != b {
		t.refreshFrom(t.blocks[x].side[t.sideOf(x, t.tokensOf(b))], b)
	}
	t.combine(x)
}

// split parts the siblings from x down into those before tokens and the others.
func (t *arena) split(
	x protocol.BlockID, tokens []messages.Token,
) (before, behind protocol.BlockID) {
	if x == protocol.NoBlock {
		return x, x
	}
	side := &t.blocks[x].side
	if compareTokens(t.tokensOf(x), tokens) < 0 {
		before = x
		side[1], behind = t.split(side[1], tokens)
	} else {
		behind = x
		before, side[0] = t.split(side[0], tokens)
	}
	t.combine(x)
	return before, behind
}

// merge joins the siblings from x down with those from y down, which all come behind.
func (t *arena) merge(x, y protocol.BlockID) protocol.BlockID {
	switch {
	case x == protocol.NoBlock:
		return y
	case y == protocol.NoBlock:
		return x
	case weight(x) > weight(y):
		t.blocks[x].side[1] = t.merge(t.blocks[x].side[1], y)
		t.combine(x)
		return x
	default:
		t.blocks[y].side[0] = t.merge(x, t.blocks[y].side[0])
		t.combine(y)
		return y
	}
}

// remove removes b, a ghost, from its siblings.
func (t *arena) remove(b protocol.BlockID) {
	at := t.before(b)
	t.setTop(at, t.without(t.top(at), b))
}

// without returns the siblings from x down but for b, which is among them.
func (t *arena) without(x, b protocol.BlockID) protocol.BlockID {
	side := &t.blocks[x].side
	if x == b {
		return t.merge(side[0], side[1])
	}
	s := t.sideOf(x, t.tokensOf(b))
	side[s] = t.without(side[s], b)
	t.combine(x)
	return x
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
