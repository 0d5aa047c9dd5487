package tree

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// block is what the tree remembers of a block, but for its tokens and locations. Only a
// block that some pool holds has attributes: a ghost has stamp, priority and session 0, 0
// and none.
type block struct {
	root   int32            // index in roots; none: the id is free
	parent protocol.BlockID // the block before it; NoBlock: it begins its prefix
	depth  int32            // index in its prefix
	tokens int32            // fewer than those of a block if it is stored in part

	// The blocks that follow one block are siblings, in a treap of their own.
	children protocol.BlockID    // the top of the treap of the blocks that follow, or NoBlock
	side     [2]protocol.BlockID // the siblings below: before and behind, or NoBlock
	session  int32               // none: of no session
	// latest is the greatest stamp of this sibling and those below it that count as
	// candidate, and as held.
	latest [2]uint64

	generation uint64 // number of blocks that were made before it, and one
	stamp      uint64 // of the claim or store that used it last
	priority   messages.Priority
	worth      worth
}

// arena holds the blocks, and all that lies in arrays by block. A pointer into blocks is
// not valid after newBlock.
type arena struct {
	shape
	blocks    []block
	tokens    []messages.Token      // tokensPerBlock for each block
	locations [][]protocol.Location // [pool][block]
	// cached[p][page] is the block whose location in pool p is that device page, or NoBlock.
	cached    [][]protocol.BlockID
	free      []protocol.BlockID // the id that was freed last is used first
	roots     []root
	freeRoots []int32
	// byName[roots[i].rootName] is i for each root in use, and no other entry
	// exists. A root in use has children: prune removes the root with its last child.
	byName     map[rootName]int32
	generation uint64 // blocks that were made so far
	stamp      uint64 // of the last claim or store
	blocksHeld int    // blocks that some pool holds
	symbols    symbols
	sessions   numbers[string] // those that blocks belong to
	timers     timers
}

// spot is a place in a tree: behind a block or, if that is NoBlock, at the root.
type spot struct {
	root  int32
	block protocol.BlockID
}

// behind returns the place behind block b.
func (t *arena) behind(b protocol.BlockID) spot { return spot{t.blocks[b].root, b} }

// before returns the place before block b, which is behind its parent.
func (t *arena) before(b protocol.BlockID) spot {
	return spot{t.blocks[b].root, t.blocks[b].parent}
}

// depthAt returns the number of blocks before a place.
func (t *arena) depthAt(s spot) int32 {
	if s.block == protocol.NoBlock {
		return 0
	}
	return t.blocks[s.block].depth + 1
}

// reserve makes room for n blocks. Config.Blocks is a hint: the arrays grow beyond it.
func (t *arena) reserve(n int) {
	t.blocks, t.tokens = make([]block, 0, n), make([]messages.Token, 0, n*t.tpb)
	t.locations = make([][]protocol.Location, len(t.pools))
	t.cached = make([][]protocol.BlockID, len(t.pools))
	for p := range t.pools {
		t.locations[p] = make([]protocol.Location, 0, n)
	}
}

// place notes where pool p keeps block b from now on.
func (t *arena) place(p int, b protocol.BlockID, at protocol.Location) {
	// The page may have got another block in the same change.
	if page, tier, ok := t.locations[p][b].Page(); ok && tier == messages.Primary &&
		t.cached[p][page] == b {
		t.cached[p][page] = protocol.NoBlock
	}
	t.locations[p][b] = at
	if page, tier, ok := at.Page(); ok && tier == messages.Primary {
		for int(page) >= len(t.cached[p]) {
			t.cached[p] = append(t.cached[p], protocol.NoBlock)
		}
		t.cached[p][page] = b
	}
}

// newBlock makes a block with these tokens behind a spot, where there is none.
func (t *arena) newBlock(at spot, tokens []messages.Token) protocol.BlockID {
	b := protocol.BlockID(len(t.blocks))
	if n := len(t.free); n > 0 {
		b, t.free = t.free[n-1], t.free[:n-1]
	} else {
		t.blocks, t.tokens = lengthen(t.blocks, 1), lengthen(t.tokens, t.tpb)
		for p := range t.locations {
			t.locations[p] = lengthen(t.locations[p], 1)
		}
	}
	t.generation++
	r := &t.blocks[b]
	*r = block{}
	r.root, r.parent, r.depth, r.tokens = at.root, at.block, t.depthAt(at), int32(len(tokens))
	r.children, r.session, r.generation = protocol.NoBlock, none, t.generation
	r.side = unlinked
	copy(t.tokens[int(b)*t.tpb:], tokens)
	for p := range t.locations {
		t.locations[p][b] = protocol.Nowhere
	}
	if !t.symbols.none() {
		t.symbols.retain(tokens)
	}
	before, behind := t.split(t.top(at), tokens)
	t.setTop(at, t.merge(t.merge(before, b), behind))
	return b
}

// freeBlock frees the id of a ghost that nothing follows.
func (t *arena) freeBlock(b protocol.BlockID) {
	if !t.symbols.none() {
		t.symbols.release(t.tokensOf(b))
	}
	t.remove(b)
	t.blocks[b].root = none
	t.free = append(t.free, b)
}

// alive tells whether b is a block of the tree, perhaps a ghost. An id may be of
// another block than the caller knew: alive says only that it is in use.
func (t *arena) alive(b protocol.BlockID) bool {
	return b >= 0 && int(b) < len(t.blocks) && t.blocks[b].root != none
}

// cursor returns a Cursor that remembers block b.
func (t *arena) cursor(b protocol.BlockID) protocol.Cursor {
	return protocol.Cursor{Block: b, Generation: t.blocks[b].generation}
}

// follows tells whether a cursor leads to the block that it was made for. Another block
// that has got its id has another generation.
func (t *arena) follows(c protocol.Cursor) bool {
	return t.alive(c.Block) && t.blocks[c.Block].generation == c.Generation
}

// tokensOf returns the tokens of a block.
func (t *arena) tokensOf(b protocol.BlockID) []messages.Token {
	first := int(b) * t.tpb
	return t.tokens[first : first+int(t.blocks[b].tokens)]
}

// cross tells whether cross pools hold the block, and no self pool; else it is the other
// way round.
func (t *arena) cross(b protocol.BlockID) bool { return t.roots[t.blocks[b].root].cross }

// lacking returns how many of the pools [first, end) do not hold a block.
func (t *arena) lacking(b protocol.BlockID, first, end int) (n int) {
	for p := first; p < end; p++ {
		if t.locations[p][b] == protocol.Nowhere {
			n++
		}
	}
	return n
}

// held tells whether some pool holds a block.
func (t *arena) held(b protocol.BlockID) bool {
	return t.lacking(b, 0, len(t.pools)) < len(t.pools)
}

// heldByAll tells whether all pools of the block's kind hold it.
func (t *arena) heldByAll(b protocol.BlockID) bool {
	first, end := 0, t.tokenPools
	if t.selfPools < len(t.pools) {
		first, end = t.poolsOf(t.cross(b))
	}
	return t.lacking(b, first, end) == 0
}

// checkpointed tells whether every state pool has the checkpoint of a block.
func (t *arena) checkpointed(b protocol.BlockID) bool {
	return t.lacking(b, t.tokenPools, t.selfPools) == 0
}

// lackedInFull tells whether a full-attention pool of [first, end) does not hold a block.
func (t *arena) lackedInFull(b protocol.BlockID, first, end int) bool {
	for p := first; p < end; p++ {
		if t.pools[p].full() && t.locations[p][b] == protocol.Nowhere {
			return true
		}
	}
	return false
}

// devicePage returns the device page that pool p keeps a block in, or NoPage.
func (t *arena) devicePage(p int, b protocol.BlockID) messages.PageID {
	if page, tier, ok := t.locations[p][b].Page(); ok && tier == messages.Primary {
		return page
	}
	return messages.NoPage
}

// nextStamp returns a stamp that is later than all before it. A stamp that is given is
// never 0, since 0 means that a block does not count. Only blocks of one claim or one
// store share a stamp.
func (t *arena) nextStamp() uint64 {
	t.stamp++
	return t.stamp
}

// expireAttributes removes the attributes of a block whose last page has gone.
func (t *arena) expireAttributes(b protocol.BlockID) {
	t.blocksHeld--
	t.timers.stop(b)
	t.leaveSession(b)
	t.blocks[b].stamp, t.blocks[b].priority = 0, 0
}

// shareSession applies the rule of sessions to a block that a sequence of the named
// session, or of none, reuses whole or stores too: if that is another session the
// block belongs to none from now on. A block of two sessions would be lost to the
// second when the first is forgotten, so it belongs to neither and is forgotten by
// prefix, salt or eviction only.
func (t *arena) shareSession(b protocol.BlockID, session string) {
	if s := t.blocks[b].session; s != none && t.sessions.values[s] != session {
		t.leaveSession(b)
	}
}

// leaveSession makes a block belong to no session.
func (t *arena) leaveSession(b protocol.BlockID) {
	if s := t.blocks[b].session; s != none {
		t.sessions.release(s)
		t.blocks[b].session = none
	}
}

// appendRun appends to list block b and those behind it up to where the prefix branches
// or ends, or goes on with a block stored in part.
func (t *arena) appendRun(list []protocol.BlockID, b protocol.BlockID) []protocol.BlockID {
	for ; b != protocol.NoBlock; b = t.onlyWholeChild(b) {
		list = append(list, b)
	}
	return list
}

// onlyWholeChild returns the block behind b if there is exactly one, and whole; else
// NoBlock.
func (t *arena) onlyWholeChild(b protocol.BlockID) protocol.BlockID {
	c := t.blocks[b].children
	if c == protocol.NoBlock || t.blocks[c].side != unlinked || int(t.blocks[c].tokens) < t.tpb {
		return protocol.NoBlock
	}
	return c
}

// resize returns a slice of n elements in the array of s, if that is large enough.
// The elements are whatever was there. It is for slices of answers and scratch, which
// are overwritten in full.
func resize[E any](s []E, n int) []E {
	return slices.Grow(s[:0], n)[:n]
}

// lengthen adds n elements to an array by block. An array that is moved gets an
// eighth more: append would give a quarter, which is much where there are millions.
func lengthen[E any](s []E, n int) []E {
	if len(s)+n > cap(s) {
		longer := make([]E, len(s), len(s)+max(n, len(s)/8, 64))
		copy(longer, s)
		s = longer
	}
	return s[:len(s)+n]
}
