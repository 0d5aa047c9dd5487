package pool

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// ending is a pool with prompts of 6 blocks, each of which is one piece with its last block.
func ending(t *testing.T, prompts ...uint64) *atomicCache {
	p := NewForecast("ends", 24, Forecast{Seed: 1, Span: 1})
	c := &atomicCache{pool: p, clock: realTime}
	for _, d := range prompts {
		c.request(&traceRequest{IDs: document(d, 6)})
		require.NoError(t, p.Check())
	}
	return c
}

// pieceOf is the piece of a block.
func (c *atomicCache) pieceOf(block uint64) *piece {
	return &c.pool.cache.pieces.all[c.numberOf(block)]
}

// lastUseOf is the last use of the piece of a block.
func (c *atomicCache) lastUseOf(block uint64) *lastUse {
	return &c.pool.cache.pieces.uses[c.numberOf(block)]
}

// numberOf is the number of the piece of a block.
func (c *atomicCache) numberOf(block uint64) int32 {
	return c.pool.cache.pieces.of(int32(c.pageOf[block]))
}

// TestLastBlockIsInThePieceInFront: the last block of a prompt has no piece of its own, but the features of one, and its piece those
// of the other blocks once it is evicted, which it is before them, alone.
func TestLastBlockIsInThePieceInFront(t *testing.T) {
	c := ending(t, 1, 2, 3, 4)
	ids := document(1, 6)
	q := c.pieceOf(ids[0])
	require.Equal(t, int32(6), q.pages)
	assert.True(t, q.marks.has(withEnd))
	assert.True(t, c.lastUseOf(ids[0]).features().HasLast())
	take := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 4}}}
	c.pool.Do(&take)
	require.NoError(t, c.pool.Check())
	for k, v := range take.Victims {
		assert.Equal(t, int32(5), v.Depth, "the last blocks of all prompts go first: victim %d", k)
	}
	require.Len(t, take.Pieces, 4)
	assert.Equal(t, int32(5), q.pages)
	assert.False(t, q.marks.has(withEnd))
	assert.False(t, c.lastUseOf(ids[0]).features().HasLast())
}

// TestSinglePagesAreLast: the operation has pages that were taken one by one behind those of other victims, each page once, in the order in
// which they were taken.
func TestSinglePagesAreLast(t *testing.T) {
	c := ending(t, 1, 2, 3, 4)
	take := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 24}}}
	c.pool.Do(&take)
	require.NoError(t, c.pool.Check())
	require.Len(t, take.Victims, 24)
	var single, others []messages.PageID
	for _, v := range take.Victims {
		if v.Depth == 5 {
			single = append(single, v.Page)
		} else {
			others = append(others, v.Page)
		}
	}
	require.Len(t, single, 4)
	assert.Equal(t, append(others, single...), take.Ops[0].Pages)
}

// TestLastBlockIsDetached: a prompt that goes on from the block in front of the last one supersedes the last one, which is then a piece
// behind the others. One that ends there leaves it as it is.
func TestLastBlockIsDetached(t *testing.T) {
	for name, goesOn := range map[string]bool{"goes on": true, "ends there": false} {
		t.Run(name, func(t *testing.T) {
			c := ending(t, 1)
			ids := document(1, 6)
			next := ids[:5:5]
			if goesOn {
				next = append(next, document(2, 3)...)
			}
			c.request(&traceRequest{Timestamp: 1000, IDs: next})
			require.NoError(t, c.pool.Check())
			front, last := c.pieceOf(ids[0]), c.pieceOf(ids[5])
			require.NotSame(t, front, last)
			assert.Equal(t, int32(5), front.pages)
			assert.Equal(t, 2, front.marks.uses())
			assert.Equal(t, int32(1), last.pages)
			assert.Equal(t, front, &c.pool.cache.pieces.all[last.parent])
			assert.Equal(t, goesOn, last.marks.has(superseded))
			assert.True(t, c.lastUseOf(ids[5]).features().HasLast())
			assert.Less(t, c.lastUseOf(ids[5]).time, c.lastUseOf(ids[0]).time, "it was not used again")
			assert.False(t, front.marks.has(withEnd), "blocks hang on it")
			// Later requests supersede it as well.
			c.request(&traceRequest{Timestamp: 2000, IDs: append(ids[:5:5], document(3, 3)...)})
			require.NoError(t, c.pool.Check())
			assert.True(t, c.pieceOf(ids[5]).marks.has(superseded))
		})
	}
}

// TestLastBlockIsUsedAgain: a prompt that goes on behind the last block makes it one of the others; one that is repeated keeps it.
func TestLastBlockIsUsedAgain(t *testing.T) {
	c := ending(t, 1, 1)
	ids := document(1, 6)
	q := c.pieceOf(ids[0])
	assert.Equal(t, int32(6), q.pages)
	assert.Equal(t, 2, q.marks.uses())
	assert.True(t, q.marks.has(withEnd))
	c.request(&traceRequest{Timestamp: 1000, IDs: append(ids, document(2, 3)...)})
	require.NoError(t, c.pool.Check())
	q = c.pieceOf(ids[0])
	assert.Equal(t, int32(6), q.pages)
	assert.Equal(t, 3, q.marks.uses())
	assert.False(t, q.marks.has(withEnd))
	assert.False(t, c.lastUseOf(ids[0]).features().HasLast())
	assert.True(t, c.pieceOf(document(2, 3)[0]).marks.has(withEnd))
}

// TestClaimedLastBlock: a claim that is given back leaves the last block among the others.
func TestClaimedLastBlock(t *testing.T) {
	c := ending(t, 1)
	var pages []messages.PageID
	for _, id := range document(1, 6) {
		pages = append(pages, c.pageOf[id])
	}
	c.pool.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Claim, Pages: pages}, {Kind: protocol.Unclaim, Pages: pages}}})
	require.NoError(t, c.pool.Check())
	q := c.pieceOf(document(1, 1)[0])
	assert.Equal(t, int32(6), q.pages)
	assert.False(t, q.marks.has(withEnd))
	assert.False(t, c.lastUseOf(document(1, 1)[0]).features().HasLast())
	take := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 24}}}
	c.pool.Do(&take)
	require.NoError(t, c.pool.Check())
	require.Len(t, take.Victims, 6)
	assert.Len(t, take.Pieces, 1)
}

// TestPromptOfNoValueGoesAsAWhole: where the other blocks of a prompt are worth the least as well as its last one, one choice takes
// both, so that pages that adjoin stay together. Host memory is told of both.
func TestPromptOfNoValueGoesAsAWhole(t *testing.T) {
	const docs = 2 * frontSize
	p := NewForecast("whole", 6*docs, Forecast{Seed: 1, Span: 1})
	c := &atomicCache{pool: p, clock: realTime}
	for d := range uint64(docs) {
		c.request(&traceRequest{Timestamp: float64(1000 * d), IDs: document(d, 6)})
	}
	s, l := p.cache.pieces, p.cache.whole.level(messages.DefaultPriority)
	s.victimOf(l, 0)
	// The prompt that was used least recently gets less value than all others, whatever the block.
	for k := range l.front.n {
		l.front.list[k].rank += 1 << 20
	}
	first := c.pieceOf(document(0, 6)[0])
	l.front.add(s.candidate(c.numberOf(document(0, 1)[0])))
	require.True(t, first.marks.has(withEnd))
	take := protocol.PoolWork{Now: c.work.Now, Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 4}}}
	p.Do(&take)
	require.NoError(t, p.Check())
	for k, v := range take.Victims {
		assert.EqualValues(t, 5-k, v.Block)
		assert.Equal(t, v.Page, take.Ops[0].Pages[k])
	}
	require.Len(t, take.Pieces, 2)
	assert.Equal(t, []int{1, 4}, []int{take.Pieces[0].End, take.Pieces[1].End})
	assert.False(t, first.marks.has(withEnd))
	assert.EqualValues(t, 2, first.pages)
}
