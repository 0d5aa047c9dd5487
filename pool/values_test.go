package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// manyEnding is a full pool with more leaves than a front has.
func manyEnding(t *testing.T) (*atomicCache, *pieces) {
	const docs = 3 * frontSize
	p := NewForecast("ends", 6*docs, Forecast{Seed: 1, Span: 1})
	c := &atomicCache{pool: p, clock: realTime}
	for d := range docs {
		c.request(&traceRequest{Timestamp: float64(1000 * d), IDs: document(uint64(d), 6)})
	}
	require.NoError(t, p.Check())
	return c, p.cache.pieces
}

// working returns a function that gives operations to a pool at one moment.
func working(t *testing.T, p *Pool, now time.Duration) func(...protocol.PoolOp) *protocol.PoolWork {
	return func(ops ...protocol.PoolOp) *protocol.PoolWork {
		w := &protocol.PoolWork{Ops: ops, Now: now}
		p.Do(w)
		require.NoError(t, p.Check())
		return w
	}
}

// pagesOf lists the pages of blocks.
func (c *atomicCache) pagesOf(ids []uint64) (pages []messages.PageID) {
	for _, id := range ids {
		pages = append(pages, c.pageOf[id])
	}
	return pages
}

// TestValueAfterChange: a piece that is evicted next gets other features while it is in no level, and is worth more then.
func TestValueAfterChange(t *testing.T) {
	claim := func(pages []messages.PageID, awaited bool) []protocol.PoolOp {
		return []protocol.PoolOp{{Kind: protocol.Claim, Pages: pages}, {Kind: protocol.Unclaim, Pages: pages, Awaited: awaited}}
	}
	for name, change := range map[string]func(do func(...protocol.PoolOp) *protocol.PoolWork, pages []messages.PageID, use protocol.Use){
		"a claim is given back, after which the last block is one of the others": func(do func(...protocol.PoolOp) *protocol.PoolWork, pages []messages.PageID, _ protocol.Use) {
			do(claim(pages, false)...)
		},
		"it is awaited while a pin holds it": func(do func(...protocol.PoolOp) *protocol.PoolWork, pages []messages.PageID, use protocol.Use) {
			do(protocol.PoolOp{Kind: protocol.AddPins, N: 1, Pages: pages})
			do(claim(pages, true)...)
			do(protocol.PoolOp{Kind: protocol.EndPin, Pages: pages, Use: use})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := manyEnding(t)
			do := working(t, c.pool, c.work.Now)
			w := do(protocol.PoolOp{Kind: protocol.Take, N: 1})
			for _, v := range w.Victims {
				c.pageOf[v.Block] = messages.NoPage
			}
			f := s.orders.whole.level(messages.DefaultPriority).front
			require.NotNil(t, f)
			least := &s.all[f.list[f.n-1].piece]
			require.True(t, least.marks.has(withEnd))
			doc := uint64(c.pool.pages[least.head].block) / 32
			change(do, c.pagesOf(document(doc, 6)), c.use)
			require.False(t, least.marks.has(withEnd))
			w = do(protocol.PoolOp{Kind: protocol.Take, N: 1})
			assert.NotEqual(t, doc, uint64(w.Victims[0].Block)/32)
		})
	}
}

// TestLastBlockHeldByAnother: a fork holds pages of a prompt while the sequence that it was copied from is released.
func TestLastBlockHeldByAnother(t *testing.T) {
	p := NewForecast("w", 24, Forecast{Seed: 1, Span: 1})
	do := working(t, p, 0)
	pages := append([]messages.PageID(nil), do(protocol.PoolOp{Kind: protocol.Take, N: 4}).Ops[0].Pages...)
	do(protocol.PoolOp{Kind: protocol.AttachPages, Pages: pages, Blocks: []protocol.BlockID{0, 1, 2, 3}, Priority: 35},
		protocol.PoolOp{Kind: protocol.Claim, Pages: pages})
	facts := protocol.RequestFacts{Signatures: []uint64{1, 3, 5, 7}, Blocks: 4, Prompt: 4, Tokens: 64}
	do(protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Use: 2, Request: &facts})
	// Block 0 leaves the window of the other.
	do(protocol.PoolOp{Kind: protocol.Drop, Pages: pages[:1], Use: 4})
	s := p.cache.pieces
	q := &s.all[s.of(int32(pages[0]))]
	assert.Equal(t, int32(pages[0]), q.head)
	assert.False(t, q.marks.has(withEnd), "the first page in the list is not the last block")
	path := []messages.PageID{messages.NoPage, pages[1], pages[2], pages[3]}
	do(protocol.PoolOp{Kind: protocol.Drop, Pages: path, Use: 6, Request: &facts})
	assert.False(t, s.all[s.of(int32(pages[0]))].marks.has(promptEnd), "block 0 became the last block of a prompt")
}

// TestValueOfAwaitedInnerPiece: prompts at priority 35 whose answers have priority 80: the lowest level has inner pieces only, which await does not compare again.
func TestValueOfAwaitedInnerPiece(t *testing.T) {
	const docs = 3 * frontSize
	p := NewForecast("inner", 6*docs, Forecast{Seed: 1, Span: 1})
	s := p.cache.pieces
	do := func(ops ...protocol.PoolOp) *protocol.PoolWork {
		w := &protocol.PoolWork{Ops: ops, Now: realTime(1000 * float64(len(s.all)))}
		p.Do(w)
		require.NoError(t, p.Check())
		return w
	}
	var all [docs][]messages.PageID
	for d := range docs {
		pages := append([]messages.PageID(nil), do(protocol.PoolOp{Kind: protocol.Take, N: 6}).Ops[0].Pages...)
		b := protocol.BlockID(6 * d)
		do(protocol.PoolOp{Kind: protocol.AttachPages, Pages: pages[:4], Blocks: []protocol.BlockID{b, b + 1, b + 2, b + 3}, Priority: 35},
			protocol.PoolOp{Kind: protocol.AttachPages, Pages: pages[4:], Blocks: []protocol.BlockID{b + 4, b + 5}, Depth: 4, Priority: 80})
		x := uint64(d+1) << 32
		do(protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Use: protocol.Use(2 * d), Request: &protocol.RequestFacts{
			Signatures: []uint64{x, x + 1, x + 2, x + 3, x + 4, x + 5}, Blocks: 6, Prompt: 4, Tokens: 64, Answer: 32}})
		all[d] = pages
	}
	do(protocol.PoolOp{Kind: protocol.Take, N: 4})
	f := s.orders.whole.level(35).front
	k := f.n - 1
	for !s.all[f.list[k].piece].cached() {
		k--
	}
	least := &s.all[f.list[k].piece]
	require.Positive(t, least.children)
	d := int(p.pages[least.head].block) / 6
	x := all[d][:4]
	do(protocol.PoolOp{Kind: protocol.Claim, Pages: x}, protocol.PoolOp{Kind: protocol.Unclaim, Pages: x, Awaited: true})
	w := do(protocol.PoolOp{Kind: protocol.Take, N: 1})
	assert.NotEqual(t, d, int(w.Victims[0].Block)/6, "the piece is awaited")
}

// TestPriorityOfReusedNumbers: the piece that moveToPriority has noted last is gone, and its number is another prompt's.
func TestPriorityOfReusedNumbers(t *testing.T) {
	p := NewForecast("m", 24, Forecast{Seed: 1, Span: 1})
	s := p.cache.pieces
	do := working(t, p, 0)
	next := protocol.BlockID(0)
	prompt := func(n int, priority messages.Priority) []messages.PageID {
		pages := append([]messages.PageID(nil), do(protocol.PoolOp{Kind: protocol.Take, N: n}).Ops[0].Pages...)
		var blocks []protocol.BlockID
		var signs []uint64
		for range n {
			blocks, signs, next = append(blocks, next), append(signs, uint64(next)*977+1), next+1
		}
		do(protocol.PoolOp{Kind: protocol.AttachPages, Pages: pages, Blocks: blocks, Priority: priority})
		do(protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Use: 2, Request: &protocol.RequestFacts{Signatures: signs, Blocks: n, Prompt: n, Tokens: 64}})
		return pages
	}
	x := prompt(4, 35)
	do(protocol.PoolOp{Kind: protocol.SetPriority, Pages: x[3:], Priority: 80})
	from, to := s.moved.from, s.moved.to
	require.NotEqual(t, from, to)
	do(protocol.PoolOp{Kind: protocol.DetachPages, Pages: x, Blocks: []protocol.BlockID{0, 1, 2, 3}})
	// The numbers come again, the one that was freed last first.
	var y, z []messages.PageID
	if s.free == from {
		y, z = prompt(4, 35), prompt(4, 80)
	} else {
		z, y = prompt(4, 80), prompt(4, 35)
	}
	require.Equal(t, from, s.of(int32(y[0])))
	require.Equal(t, to, s.of(int32(z[0])))
	do(protocol.PoolOp{Kind: protocol.SetPriority, Pages: y[3:], Priority: 80})
	assert.NotEqual(t, s.of(int32(z[0])), s.of(int32(y[3])), "a page of another prompt is in the piece")
}

// TestEpochMovesTimesOfValues: a value has the moment that it had before.
func TestEpochMovesTimesOfValues(t *testing.T) {
	_, s := manyEnding(t)
	l := s.orders.whole.level(35)
	s.victimOf(l, 4)
	before := make([]int64, l.front.n)
	for k, c := range l.front.list[:l.front.n] {
		before[k] = s.lastOf(c.at)
	}
	s.moveEpoch(s.epoch + 500)
	for k, c := range l.front.list[:l.front.n] {
		assert.Equal(t, before[k], s.lastOf(c.at), "candidate %d", k)
	}
}
