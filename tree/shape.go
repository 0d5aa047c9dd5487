package tree

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/windows"
)

// PoolShape is what the tree must know of a pool: what a position attends to. The
// fields are those of windows.Reach, which answers for them.
type PoolShape struct {
	Window int // tokens; 0: no window
	Sink   int // tokens at the start that stay attended to; 0 without a window
	Chunk  int // tokens of a chunk of attention; 0: none
	// Cross marks a cross pool: its pages are matched by the input of the encoder,
	// those of all other pools by the tokens of the decoder. Cross pools come last.
	Cross bool
	// State marks a state pool: its pages hold the states of recurrent layers after
	// the last token of a block, its checkpoint. State pools come after the attention
	// pools and before cross pools.
	State bool
}

// reach says which tokens a position attends to.
func (s *PoolShape) reach() windows.Reach {
	return windows.Reach{Window: s.Window, Sink: s.Sink, Chunk: s.Chunk}
}

// full reports whether a position attends to everything before it.
func (s *PoolShape) full() bool { return s.reach().Full() }

// shape is what all parts of the tree know of blocks and pools. It never changes. The
// kinds of pools are contiguous, so that "the pools of a kind" is a range of indices
// everywhere:
//
//	0 … tokenPools          selfPools            len(pools)
//	│ self, hold tokens │ self, hold states │ cross │
type shape struct {
	tpb   int // tokens of a block
	pools []PoolShape
	// pools before it are self pools that hold tokens, those up to selfPools hold states
	tokenPools int
	selfPools  int // pools before it are self pools, the others cross pools
}

// newShape returns the shape of a configuration.
func newShape(c *Config) shape {
	if c.TokensPerBlock < 1 || len(c.Pools) == 0 {
		// A wrong shape is an error of the engine, not of the host, whose
		// configuration has been checked before the engine makes a tree. So there is a
		// panic and no error.
		panic("tree: a tree needs a block size and a pool")
	}
	t := shape{tpb: c.TokensPerBlock, pools: slices.Clone(c.Pools)}
	for t.selfPools < len(c.Pools) && !c.Pools[t.selfPools].Cross {
		t.selfPools++
		if !c.Pools[t.selfPools-1].State {
			t.tokenPools = t.selfPools
		}
	}
	for p := range t.tokenPools {
		if c.Pools[p].State {
			panic(fmt.Sprintf("tree: pool %d holds states and comes before pool %d, which holds tokens", p,
				t.tokenPools-1))
		}
	}
	for p := range c.Pools[t.selfPools:] {
		if !c.Pools[t.selfPools+p].Cross {
			panic(fmt.Sprintf("tree: pool %d, a self pool, comes after the cross pool %d", t.selfPools+p,
				t.selfPools))
		}
	}
	return t
}

// poolsOf returns the range [first, end) of the pools whose pages hold tokens: of the
// self pools, or of the cross pools. State pools are in neither range: most blocks
// have no checkpoint, so a candidate that needed one would hardly ever be found.
func (t *shape) poolsOf(cross bool) (first, end int) {
	if cross {
		return t.selfPools, len(t.pools)
	}
	return 0, t.tokenPools
}

// recurrent tells whether there are state pools.
func (t *shape) recurrent() bool { return t.tokenPools < t.selfPools }

// firstNeeded is the first block, sinks apart, that position attends to in pool p.
// The block is rounded down: a window that begins inside a block needs the block.
func (t *shape) firstNeeded(p int, position int32) int32 {
	return int32(t.pools[p].reach().First(int(position)) / t.tpb)
}

// sinkBlocks is the number of blocks that hold the sink of pool p. It is rounded up,
// for the same reason.
func (t *shape) sinkBlocks(p int) int32 {
	return int32((t.pools[p].Sink + t.tpb - 1) / t.tpb)
}
