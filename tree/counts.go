package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// countsOf returns how many blocks of node x each pool holds in each tier,
// [pool][tier].
func (t *arena) countsOf(x int32) []int32 {
	w := 2 * len(t.pools)
	return t.counts[int(x)*w : int(x+1)*w]
}

// count returns the number of blocks of node x that pool p keeps in a tier. The
// counts of a node lie side by side: pool 0 primary, pool 0 secondary, pool 1
// primary, …
func (t *arena) count(x int32, p int, tier messages.Tier) *int32 {
	return &t.counts[(int(x)*len(t.pools)+p)*2+int(tier)]
}

// setLocation changes where a pool keeps block i of node x, and the counts with it.
// The caller refreshes the treap if i is 0. It is the only way to change one
// location; loops over runs change counts in one step.
func (t *arena) setLocation(x, i int32, p int, to protocol.Location) {
	l := &t.locations(x, p)[i]
	if _, tier, ok := l.Page(); ok {
		*t.count(x, p, tier)--
	}
	if _, tier, ok := to.Page(); ok {
		*t.count(x, p, tier)++
	}
	*l = to
}

// holdsAll tells whether pool p holds all blocks of node x.
func (t *arena) holdsAll(x int32, p int) bool {
	i := (int(x)*len(t.pools) + p) * 2
	return t.counts[i]+t.counts[i+1] == t.nodes[x].n
}

// held tells whether some pool holds block i of node x. It costs a look at each pool.
// Where whole runs are asked for, heldThroughout and heldNowhere answer by counts.
func (t *arena) held(x, i int32) bool {
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
func (t *arena) heldThroughout(x int32, p int) bool {
	for q := range t.pools {
		if q != p && t.holdsAll(x, q) {
			return true
		}
	}
	return false
}

// heldNowhere tells whether no pool but p holds any block of node x; p may be −1.
func (t *arena) heldNowhere(x int32, p int) bool {
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
func (t *arena) heldEnd(x int32) int32 {
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
func (t *arena) heldByAll(x, i int32) bool {
	first, end := t.poolsOf(t.nodes[x].cross)
	for p := first; p < end; p++ {
		if t.locations(x, p)[i] == protocol.Nowhere {
			return false
		}
	}
	return true
}

// hasCheckpoints tells whether every state pool has a checkpoint of some block of a
// node. It may say yes where no single block has one in every pool; checkpointed
// decides that.
func (t *arena) hasCheckpoints(x int32) bool {
	for p := t.tokenPools; p < t.selfPools; p++ {
		if *t.count(x, p, messages.Primary)+*t.count(x, p, messages.Secondary) == 0 {
			return false
		}
	}
	return true
}

// checkpointed tells whether every state pool has the checkpoint of block i of a node.
func (t *arena) checkpointed(x, i int32) bool {
	for p := t.tokenPools; p < t.selfPools; p++ {
		if t.locations(x, p)[i] == protocol.Nowhere {
			return false
		}
	}
	return true
}

// inHostMemory tells whether some pool keeps a block in host memory only.
func (t *arena) inHostMemory(b protocol.BlockID) bool {
	x, i := t.at(b)
	for p := range t.pools {
		if _, tier, ok := t.locations(x, p)[i].Page(); ok && tier == messages.Secondary {
			return true
		}
	}
	return false
}
