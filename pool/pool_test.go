package pool

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

func TestEmptyPool(t *testing.T) {
	p := New("none", 0)
	w := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take}, {Kind: protocol.HeldBlocks}}}
	p.Do(&w)
	assert.Zero(t, w.Counts)
	assert.Empty(t, w.Victims)
	assert.Equal(t, "none", p.Name())
	assert.Equal(t, "pool none: 0 pages, 0 used, 0 cached, 0 free, 0 held\n", p.String())
	assert.Panics(t, func() { New("none", -1) })
	assert.Panics(t, func() { New("none", math.MaxInt32+1) })
}

// TestDoKeepsNothing: a record that is sent again carries no old answers.
func TestDoKeepsNothing(t *testing.T) {
	p := full(t, 4)
	w := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 2}}}
	p.Do(&w)
	require.Len(t, w.Victims, 2)
	w.Ops[0] = protocol.PoolOp{Kind: protocol.Inspect, Pages: []messages.PageID{0},
		Shares: make([]protocol.Share, 3)}
	w.Ops = append(w.Ops, protocol.PoolOp{Kind: protocol.HeldBlocks, Blocks: []protocol.BlockID{9, 9}})
	p.Do(&w)
	assert.Empty(t, w.Victims)
	assert.Equal(t, []protocol.Share{{Stored: true, Priority: messages.DefaultPriority, Use: 1}},
		w.Ops[0].Shares)
	assert.Empty(t, w.Ops[1].Blocks)
	assert.Equal(t, protocol.PoolPages{TierPages: inspect.TierPages{Total: 4, Used: 2, Cached: 2},
		Held: 2}, w.Counts)
}

// TestAttached lists used and cached pages alike.
func TestAttached(t *testing.T) {
	p := full(t, 4)
	p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{
		{Kind: protocol.Take, N: 1}, // page 3
		{Kind: protocol.Claim, Pages: []messages.PageID{1}},
		{Kind: protocol.DetachPages, Pages: []messages.PageID{2}},
	}})
	assert.Equal(t, []protocol.PageBlock{{Page: 0, Block: 0, Front: messages.NoPage},
		{Page: 1, Block: 1, Front: messages.NoPage}}, p.Attached())
}

// full makes a pool whose pages are all cached, page n−1 to be evicted first.
func full(t testing.TB, pages int) *Pool {
	t.Helper()
	p := New("wfullh8", pages)
	ids, blocks := make([]messages.PageID, pages), make([]protocol.BlockID, pages)
	for i := range pages {
		ids[i], blocks[i] = messages.PageID(i), protocol.BlockID(i)
	}
	p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{
		{Kind: protocol.Take, N: pages},
		{Kind: protocol.AttachPages, Pages: ids, Blocks: blocks, Priority: messages.DefaultPriority},
		{Kind: protocol.Drop, Pages: ids, Use: 1},
	}})
	require.Equal(t, pages, p.Counts().Cached)
	return p
}

// TestTakeChangesNothingWhenItCannot: the fault leaves a whole pool behind.
func TestTakeChangesNothingWhenItCannot(t *testing.T) {
	p := full(t, 3)
	before := p.String()
	assert.PanicsWithValue(t, "pool wfullh8: take of 4 pages, 0 are free and 3 cached", func() {
		p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 4}}})
	})
	assert.Equal(t, before, p.String())
	require.NoError(t, p.Check())
}

func TestFaultsOfCountsAndKinds(t *testing.T) {
	p := full(t, 2)
	do := func(op protocol.PoolOp) func() {
		return func() { p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{op}}) }
	}
	assert.PanicsWithValue(t, "pool wfullh8: operation 200 is unknown", do(protocol.PoolOp{Kind: 200}))
}

func TestRebuildFaults(t *testing.T) {
	cases := map[string][]protocol.KeptPage{
		"pool p: rebuild of page 2, there are 2":  {{Page: 2}},
		"pool p: rebuild of page -1, there are 2": {{Page: -1}},
		"pool p: rebuild of page 1 twice": {{Page: 1,
			Block: 3}, {Page: 1, Block: 4}},
		"pool p: rebuilt from facts that contradict each other: " +
			"page 1 with block -1 has 1 references, 2 of them covered, and 0 pins": {{Page: 1,
			References: 1, CoveredReferences: 2, Block: protocol.NoBlock}},
		"pool p: rebuilt from facts that contradict each other: " +
			"page 0 of tenant 0 has priority 101, is stored: true, may be evicted: true\n" +
			"tenant 0, level 203: 1 pages in the order, counted 0": {{Page: 0,
			Priority: 101}},
		"pool p: rebuilt from facts that contradict each other: pages 0 and 1 cache block 3": {{Page: 0,
			Block: 3}, {Page: 1, Block: 3}},
	}
	for want, kept := range cases {
		assert.PanicsWithValue(t, want, func() { Rebuild("p", 2, kept) })
	}
}

// TestCheckSees: one spoiled fact each, one problem at least.
func TestCheckSees(t *testing.T) {
	spoil := map[string]func(*Pool){
		"held":                 func(p *Pool) { p.held++ },
		"listed as free 0":     func(p *Pool) { p.free = p.free[1:] },
		"listed as free 2":     func(p *Pool) { p.free = append(p.free, p.free[0]) },
		"page 99 of 8":         func(p *Pool) { p.free = append(p.free, 99) },
		"of them covered":      func(p *Pool) { p.pages[0].covered = 9 },
		"1 pins":               func(p *Pool) { p.pages[7].pins = 1 },
		"-1 references":        func(p *Pool) { p.pages[7].references = -1 },
		"cache block":          func(p *Pool) { p.pages[3].block = 2 },
		"may be evicted":       func(p *Pool) { p.order.Remove(3) },
		"0 references, 0 pins": func(p *Pool) { p.pages[0].references = 0 },
	}
	for want, change := range spoil {
		t.Run(want, func(t *testing.T) {
			p := full(t, 8)
			p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{
				{Kind: protocol.Take, N: 1}, // page 7
				{Kind: protocol.Claim, Pages: []messages.PageID{0, 4, 5}},
				{Kind: protocol.Unclaim, Pages: []messages.PageID{4, 5}}, // to the heap
				{Kind: protocol.DetachPages, Pages: []messages.PageID{1, 6}},
			}})
			require.NoError(t, p.Check())
			change(p)
			assert.ErrorContains(t, p.Check(), want)
		})
	}
}

// TestWarmDoAllocatesNothing, evictions, heaps and answers included.
func TestWarmDoAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a check allocates")
	}
	c := newChurn(t, 256)
	inspect := protocol.PoolOp{Kind: protocol.Inspect, Pages: c.window}
	held := protocol.PoolOp{Kind: protocol.HeldBlocks}
	others := protocol.PoolWork{Ops: []protocol.PoolOp{
		{Kind: protocol.Claim, Pages: c.window}, {Kind: protocol.Unclaim, Pages: c.window},
		{Kind: protocol.SetPriority, Pages: c.window, Priority: 60},
		{Kind: protocol.SetPriority, Pages: c.window, Priority: 35},
		{Kind: protocol.AddPins, Pages: c.window, N: 1}, inspect, held,
		{Kind: protocol.EndPin, Pages: c.window, Use: 1},
	}}
	step := func() {
		c.step()
		c.pool.Do(&others)
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(100, step))
}

// churn is a cache that is always full: every step takes 32 pages from their
// contents, attaches them to new blocks and drops them.
type churn struct {
	pool   *Pool
	take   protocol.PoolWork
	keep   protocol.PoolWork
	blocks []protocol.BlockID
	window []messages.PageID // the pages of the last step
	use    protocol.Use
}

const churnPages = 32

func newChurn(t testing.TB, pages int) *churn {
	c := &churn{
		pool: full(t, pages), use: 1,
		blocks: make([]protocol.BlockID, churnPages), window: make([]messages.PageID, 0, churnPages),
	}
	c.take.Ops = make([]protocol.PoolOp, 1)
	c.keep.Ops = make([]protocol.PoolOp, 2)
	c.step()
	return c
}

func (c *churn) step() {
	c.use++
	c.take.Ops[0] = protocol.PoolOp{Kind: protocol.Take, N: churnPages, Pages: c.window[:0]}
	c.pool.Do(&c.take)
	c.window = c.take.Ops[0].Pages
	for i, v := range c.take.Victims {
		c.blocks[i] = v.Block // the tree reuses the ids of what it has forgotten
	}
	c.keep.Ops[0] = protocol.PoolOp{Kind: protocol.AttachPages, Pages: c.window, Blocks: c.blocks,
		Priority: messages.DefaultPriority}
	c.keep.Ops[1] = protocol.PoolOp{Kind: protocol.Drop, Pages: c.window, Use: c.use}
	c.pool.Do(&c.keep)
}

// BenchmarkTakeWithEviction is the steady state of a full cache, per page taken,
// attached and dropped. It must not depend on the size of the pool, but for the
// processor's caches.
func BenchmarkTakeWithEviction(b *testing.B) {
	for _, size := range sizes {
		b.Run(size.name, func(b *testing.B) {
			c := newChurn(b, size.pages)
			b.ReportAllocs()
			for b.Loop() {
				c.step()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/churnPages, "ns/page")
		})
	}
}

// BenchmarkHits claims and drops cached prefixes of 32 pages at random places, as
// a well warmed cache does.
func BenchmarkHits(b *testing.B) {
	for _, size := range sizes {
		b.Run(size.name, func(b *testing.B) {
			p := full(b, size.pages)
			r := rand.New(rand.NewPCG(1, 2))
			run := make([]messages.PageID, churnPages)
			w := protocol.PoolWork{Ops: make([]protocol.PoolOp, 2)}
			use := protocol.Use(1)
			for b.Loop() {
				use++
				first := r.IntN(size.pages - churnPages)
				for i := range run {
					run[i] = messages.PageID(first + i)
				}
				w.Ops[0] = protocol.PoolOp{Kind: protocol.Claim, Pages: run}
				w.Ops[1] = protocol.PoolOp{Kind: protocol.Drop, Pages: run, Use: use}
				p.Do(&w)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/churnPages, "ns/page")
		})
	}
}

// BenchmarkOutOfOrder is the worst that the order of eviction is asked for: the
// cached pages change their priority at random and are evicted.
func BenchmarkOutOfOrder(b *testing.B) {
	for _, size := range sizes {
		b.Run(size.name, func(b *testing.B) {
			c := newChurn(b, size.pages)
			r := rand.New(rand.NewPCG(1, 2))
			run := make([]messages.PageID, churnPages)
			w := protocol.PoolWork{Ops: make([]protocol.PoolOp, 2)}
			for b.Loop() {
				for i := range run {
					run[i] = messages.PageID(r.IntN(size.pages))
				}
				w.Ops[0] = protocol.PoolOp{Kind: protocol.SetPriority, Pages: run, Priority: 80}
				w.Ops[1] = protocol.PoolOp{Kind: protocol.SetPriority, Pages: run,
					Priority: messages.DefaultPriority}
				c.pool.Do(&w)
				c.step()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/churnPages, "ns/page")
		})
	}
}

var sizes = []struct {
	name  string
	pages int
}{{"10k", 10_000}, {"100k", 100_000}, {"1M", 1_000_000}}
