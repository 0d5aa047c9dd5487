package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// blocks are the attributes of all blocks, each in an array of its own, by BlockID. A
// block that no pool holds (a ghost) has no attributes but its node and depth. node,
// low, stamp and priority have one length; ids from 0 up to it are in use or in free.
// Arrays by attribute and not one array of structs: most loops need one attribute,
// and a struct would be padded.
type blocks struct {
	node []int32 // none: the id is free
	// Not the index in the run: split and merge change that for all blocks behind,
	// the depth for none. The low half is enough, since the node knows where its
	// depths begin.
	low     []uint16 // of the depth, which is the index in the prefix
	stamp   []uint32 // when it was last stored or claimed
	session []int32  // as far as one was ever of a session; none: of no session
	// While timers.ended is true of a block this is the priority before the end: see
	// expireNow.
	priority []messages.Priority
	free     []protocol.BlockID
}

// newBlocks gives ids to consecutive blocks of node x, the first at depth. The id
// that was freed last is used first, so that a run which left as a whole comes back
// with consecutive ids, and its attributes are neighbours in memory.
func (t *Tree) newBlocks(ids []protocol.BlockID, x, depth int32) {
	t.generation++
	t.nodes[x].bump(t.generation, depth)
	s := &t.blocks
	// Free ids are a stack, and freeBlocks puts the last block in first.
	used := min(len(ids), len(s.free))
	for i := range used {
		ids[i] = s.free[len(s.free)-1-i]
	}
	s.free = s.free[:len(s.free)-used]
	if used < len(ids) {
		t.makeBlocks(ids[used:])
	}
	for i, b := range ids {
		s.node[b], s.low[b], s.stamp[b] = x, uint16(depth+int32(i)), 0
	}
}

// reserve makes room for n blocks. Config.Blocks is a hint: the arrays grow beyond
// it.
func (s *blocks) reserve(n int) {
	s.node, s.low = make([]int32, 0, n), make([]uint16, 0, n)
	s.stamp, s.priority = make([]uint32, 0, n), make([]messages.Priority, 0, n)
}

// makeBlocks makes ids that were never used.
func (t *Tree) makeBlocks(ids []protocol.BlockID) {
	s := &t.blocks
	n := len(ids)
	first := len(s.node)
	s.node, s.low = lengthen(s.node, n), lengthen(s.low, n)
	s.stamp, s.priority = lengthen(s.stamp, n), lengthen(s.priority, n)
	for i := range ids {
		ids[i] = protocol.BlockID(first + i)
		s.node[first+i] = none
	}
}

// lengthen adds n zero elements to an array by block. An array that is moved gets an
// eighth more: append would give a quarter, which is much where there are millions.
// The arrays are never cut, so what lies behind their length is still zero.
func lengthen[E any](s []E, n int) []E {
	if len(s)+n > cap(s) {
		longer := make([]E, len(s), len(s)+max(n, len(s)/8, 64))
		copy(longer, s)
		s = longer
	}
	return s[:len(s)+n]
}

// freeBlocks frees the ids of consecutive ghosts, the last one first.
func (t *Tree) freeBlocks(ids []protocol.BlockID) {
	t.recordLeft(ids)
	s := &t.blocks
	for i := len(ids) - 1; i >= 0; i-- {
		b := ids[i]
		s.node[b] = none
		s.free = append(s.free, b)
	}
}

// sessionOf returns the number of the session that b belongs to, or none.
func (s *blocks) sessionOf(b protocol.BlockID) int32 {
	if int(b) >= len(s.session) {
		return none
	}
	return s.session[b]
}

// setSession makes b a block of session n, or of none. The array is as long as the
// largest id that was ever of a session, so an engine without sessions pays nothing
// for it.
func (s *blocks) setSession(b protocol.BlockID, n int32) {
	if n == none && int(b) >= len(s.session) {
		return
	}
	for int(b) >= len(s.session) {
		s.session = append(s.session, none)
	}
	s.session[b] = n
}

// alive tells whether b is a block of the tree, perhaps a ghost. An id may be of
// another block than the caller knew: alive says only that it is in use.
func (t *Tree) alive(b protocol.BlockID) bool {
	return b >= 0 && int(b) < len(t.blocks.node) && t.blocks.node[b] != none
}

// lows is the number of depths that have different low halves.
const lows = 1 << 16

// at returns the node of a block and its index in the run of the node. It costs a
// step for each lows blocks of the run.
func (t *Tree) at(b protocol.BlockID) (x, i int32) {
	x = t.blocks.node[b]
	nd := &t.nodes[x]
	// The difference is taken in 16 bits, so it wraps around as the low halves do. In
	// a longer run the blocks with the same low half lie lows apart.
	i = int32(t.blocks.low[b] - uint16(nd.depth))
	if nd.n > lows {
		for t.ids(x)[i] != b {
			i += lows
		}
	}
	return x, i
}

// depth returns the index of a block in its prefix.
func (t *Tree) depth(b protocol.BlockID) int32 {
	x, i := t.at(b)
	return t.nodes[x].depth + i
}

// before returns the block before b in its prefix, or NoBlock.
func (t *Tree) before(b protocol.BlockID) protocol.BlockID {
	x, i := t.at(b)
	if i > 0 {
		return t.ids(x)[i-1]
	}
	return t.tail(t.parentOf(x))
}

// tail returns the last block of a node, or NoBlock for a root.
func (t *Tree) tail(x int32) protocol.BlockID {
	ids := t.ids(x)
	if len(ids) == 0 {
		return protocol.NoBlock
	}
	return ids[len(ids)-1]
}

// held tells whether some pool holds block i of node x. It costs a look at each pool.
// Where whole runs are asked for, heldThroughout and heldNowhere answer by counts.
func (t *Tree) held(x, i int32) bool {
	for p := range t.pools {
		if t.locations(x, p)[i] != protocol.Nowhere {
			return true
		}
	}
	return false
}

// heldThroughout tells whether some pool but p holds all blocks of node x; p may be
// −1. It decides by counts, so that work on a long run can be left out as a whole. It
// may be false although each block is held by some pool or other; the callers then
// look at each block.
func (t *Tree) heldThroughout(x int32, p int) bool {
	for q := range t.pools {
		if q != p && t.holdsAll(x, q) {
			return true
		}
	}
	return false
}

// heldNowhere tells whether no pool but p holds any block of node x; p may be −1.
func (t *Tree) heldNowhere(x int32, p int) bool {
	for q := range t.pools {
		if q != p && *t.count(x, q, messages.Primary)+*t.count(x, q, messages.Secondary) > 0 {
			return false
		}
	}
	return true
}

// heldEnd returns the index behind the last block of node x that some pool holds.
// Each pool is searched from the end down to what the pools before have found, so no
// block is looked at twice for one pool, and none before the result.
func (t *Tree) heldEnd(x int32) int32 {
	end := int32(0)
	for p := range t.pools {
		if *t.count(x, p, messages.Primary)+*t.count(x, p, messages.Secondary) == 0 {
			continue
		}
		locations := t.locations(x, p)
		for i := t.nodes[x].n; i > end; i-- {
			if locations[i-1] != protocol.Nowhere {
				end = i
			}
		}
	}
	return end
}

// heldByAll tells whether all pools of the node's kind hold block i of node x.
func (t *Tree) heldByAll(x, i int32) bool {
	first, end := t.poolsOf(t.nodes[x].cross)
	for p := first; p < end; p++ {
		if t.locations(x, p)[i] == protocol.Nowhere {
			return false
		}
	}
	return true
}

// setLocation changes where a pool keeps block i of node x, and the counts with it.
// The caller refreshes the treap if i is 0. It is the only way to change one
// location; loops over runs change counts in one step.
func (t *Tree) setLocation(x, i int32, p int, to protocol.Location) {
	l := &t.locations(x, p)[i]
	if _, tier, ok := l.Page(); ok {
		*t.count(x, p, tier)--
	}
	if _, tier, ok := to.Page(); ok {
		*t.count(x, p, tier)++
	}
	*l = to
}

// count returns the number of blocks of node x that pool p keeps in a tier. The
// counts of a node lie side by side: pool 0 primary, pool 0 secondary, pool 1
// primary, …
func (t *Tree) count(x int32, p int, tier messages.Tier) *int32 {
	return &t.counts[(int(x)*len(t.pools)+p)*2+int(tier)]
}

// holdsAll tells whether pool p holds all blocks of node x.
func (t *Tree) holdsAll(x int32, p int) bool {
	i := (int(x)*len(t.pools) + p) * 2
	return t.counts[i]+t.counts[i+1] == t.nodes[x].n
}

// expireAttributes removes priority, timer and session of blocks whose last pages
// have gone. Without it an id's next block would begin with the attributes of the one
// before. The stamp stays; newBlocks sets it to 0.
func (t *Tree) expireAttributes(ids ...protocol.BlockID) {
	t.blocksHeld -= len(ids)
	if t.timers.none() && t.sessions.none() {
		for _, b := range ids {
			t.blocks.priority[b] = 0
		}
		return
	}
	for _, b := range ids {
		t.timers.stop(b)
		if s := t.blocks.sessionOf(b); s != none {
			t.sessions.remove(s)
			t.blocks.setSession(b, none)
		}
		t.blocks.priority[b] = 0
	}
}
