package pool

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
)

// made is a trace that is made up, and the pages to replay it with.
type made struct {
	pages    int
	requests []traceRequest
	least    float64 // hit rate that the forecast must reach; 0: that of LRU − 0.005
}

// document lists the blocks of a document.
func document(d uint64, blocks int) []uint64 {
	ids := make([]uint64, blocks)
	for k := range ids {
		ids[k] = d*32 + uint64(k)
	}
	return ids
}

// madeTraces are traces on which a policy that forecasts could fail.
func madeTraces() map[string]made {
	r := rand.New(rand.NewPCG(1, 2))
	cyclic, zipf, stack, once := made{pages: 1000, least: 0.45}, made{pages: 500}, made{pages: 500},
		made{pages: 600}
	for i := range 4000 {
		cyclic.requests = append(cyclic.requests, traceRequest{Timestamp: 1000 * float64(i),
			IDs: document(uint64(i%100), 20)})
	}
	popular := rand.NewZipf(r, 1.1, 4, 999)
	for i := range 8000 {
		d := popular.Uint64()
		zipf.requests = append(zipf.requests, traceRequest{Timestamp: 200 * float64(i),
			IDs: document(d, 1+int(d*7%13)), Answer: 100})
	}
	var recent []uint64 // LRU is the right policy where the stack distance is exponential
	for i := range 8000 {
		d, at := uint64(i), int(r.ExpFloat64()*60)
		if at < len(recent) {
			at = len(recent) - 1 - at
			d = recent[at]
			recent = append(recent[:at], recent[at+1:]...)
		}
		recent = append(recent, d)
		stack.requests = append(stack.requests, traceRequest{Timestamp: 300 * float64(i),
			IDs: document(d, 8)})
	}
	for i := range 5000 { // half of the documents come only once
		d := uint64(r.IntN(50))
		if i%2 == 0 {
			d = uint64(1000 + i)
		}
		once.requests = append(once.requests, traceRequest{Timestamp: 500 * float64(i),
			IDs: document(d, 10), Answer: 50})
	}
	return map[string]made{"cyclic": cyclic, "Zipf": zipf, "stack distances": stack, "half once": once}
}

// replayed is the hit rate of a trace.
func replayed(
	t testing.TB, p *Pool, trace []traceRequest, clock func(float64) time.Duration,
) float64 {
	c := &atomicCache{pool: p, answers: true, clock: clock}
	for i := range trace {
		c.request(&trace[i])
	}
	require.NoError(t, p.Check())
	return float64(c.hits) / float64(c.looked)
}

func realTime(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func standingTime(float64) time.Duration { return time.Second }

// TestForecastIsNotWorseThanLRU on made-up traces, also under a clock that stands still.
func TestForecastIsNotWorseThanLRU(t *testing.T) {
	if invariants.Enabled || testing.Short() {
		t.Skip("thousands of requests")
	}
	for name, m := range madeTraces() {
		t.Run(name, func(t *testing.T) {
			lru := replayed(t, New("lru", m.pages), m.requests, realTime)
			forecast := replayed(t,
				NewWith("forecast", m.pages, evict.Options{Name: evict.Forecast, Seed: 1, Span: 1}), m.requests,
				realTime)
			standing := replayed(t,
				NewWith("forecast", m.pages, evict.Options{Name: evict.Forecast, Seed: 1, Span: 1}), m.requests,
				standingTime)
			t.Logf("LRU %.4f, forecast %.4f, with a standing clock %.4f", lru, forecast, standing)
			assert.GreaterOrEqual(t, forecast, max(m.least, lru-0.005))
			assert.GreaterOrEqual(t, standing, max(m.least, lru-0.005))
		})
	}
}

// TestForecastOnTraces: what the policy gains over LRU on parts of real traces, with half
// of what it gains today as the bar.
func TestForecastOnTraces(t *testing.T) {
	if invariants.Enabled || testing.Short() {
		t.Skip("thousands of requests")
	}
	for _, c := range []struct {
		trace       string
		pages, upTo int
		gain        float64
	}{
		{"mooncake_conversation_h1", 2000, 5606, 0.025},
		{"mooncake_synthetic", 10000, 3993, 0.02},
		{"claude_code_agentic_dev", 8192, 1500, 0.03},
	} {
		t.Run(c.trace, func(t *testing.T) {
			trace := readTrace(t, c.trace)[:c.upTo]
			lru := replayed(t, New("lru", c.pages), trace, realTime)
			forecast := replayed(t,
				NewWith("forecast", c.pages, evict.Options{Name: evict.Forecast, Seed: 1, Span: 1}), trace,
				realTime)
			t.Logf("LRU %.4f, forecast %.4f", lru, forecast)
			assert.Greater(t, forecast, lru+c.gain)
			assert.Equal(t, forecast,
				replayed(t, NewWith("forecast", c.pages, evict.Options{Name: evict.Forecast, Seed: 1, Span: 1}),
					trace, realTime), "equal seeds decide alike")
		})
	}
}

// TestForecastWithOtherSamples: the guard samples blocks by their hash. One sample in some twenty
// misleads it, to return to LRU for a time: none of the first eight here, one of sixteen.
func TestForecastWithOtherSamples(t *testing.T) {
	if invariants.Enabled || testing.Short() {
		t.Skip("thousands of requests")
	}
	const name, pages = "claude_code_agentic_dev", 8192
	trace := readTrace(t, name)[:1500]
	lru := replayed(t, New("lru", pages), trace, realTime)
	misled := 0
	for start := range uint64(16) {
		p := NewWith("forecast", pages, evict.Options{Name: evict.Forecast, Seed: 1,
			Span: protocol.SpanOf(traceBlocks[name])})
		c := &atomicCache{pool: p, answers: true, start: start, clock: realTime}
		for i := range trace {
			c.request(&trace[i])
		}
		forecast := float64(c.hits) / float64(c.looked)
		t.Logf("start %d: LRU %.4f, forecast %.4f", start, lru, forecast)
		assert.Greater(t, forecast, lru+0.02, "start %d", start)
		if forecast <= lru+0.05 {
			misled++
			assert.GreaterOrEqual(t, start, uint64(8))
		}
	}
	assert.LessOrEqual(t, misled, 1)
}

// TestForecastAllocatesNothing once its sets have grown: a request costs as many
// allocations, those of the harness, as with LRU.
func TestForecastAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a check allocates")
	}
	allocations := func(p *Pool) float64 {
		c := &atomicCache{pool: p, clock: realTime}
		r, n := traceRequest{IDs: document(0, 20)}, 0
		step := func() {
			copy(r.IDs, document(uint64(n%40), 20))
			n++
			r.Timestamp += 100
			c.request(&r)
		}
		for range 3000 {
			step()
		}
		return testing.AllocsPerRun(200, step)
	}
	// A request has 20 blocks. Maps of the stand-in cache grow at random, which moves either
	// average by less than one.
	assert.LessOrEqual(t,
		allocations(NewWith("warm", 256, evict.Options{Name: evict.Forecast, Seed: 1, Span: 1})),
		allocations(New("warm", 256))+1)
}

// TestForecastKeepsPriorities: a page of a higher priority outlives all of a lower one,
// whatever is expected of it, and a priority that ends takes its pages down.
func TestForecastKeepsPriorities(t *testing.T) {
	p := NewWith("levels", 12, evict.Options{Name: evict.Forecast, Seed: 1, Span: 1})
	leave := func(priority messages.Priority, use protocol.Use) []messages.PageID {
		take := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 4}}}
		p.Do(&take)
		pages := take.Ops[0].Pages
		blocks := []protocol.BlockID{protocol.BlockID(use), protocol.BlockID(use + 1),
			protocol.BlockID(use + 2), protocol.BlockID(use + 3)}
		p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{
			{Kind: protocol.AttachPages, Pages: pages, Blocks: blocks, Priority: priority},
			{Kind: protocol.Drop, Pages: pages, Use: use},
		}})
		return pages
	}
	high := leave(80, 10)
	leave(35, 20)
	leave(20, 30)
	take := protocol.PoolWork{Now: time.Second, Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 6}}}
	p.Do(&take)
	for i, v := range take.Victims {
		assert.Equal(t, i < 4, v.Priority == 20, "victim %d", i)
	}
	take = protocol.PoolWork{Now: 10 * time.Second, Ops: []protocol.PoolOp{
		{Kind: protocol.SetPriority, Pages: high, Priority: messages.DefaultPriority},
		{Kind: protocol.PeekVictims, N: 12}, {Kind: protocol.Take, N: 6}}}
	p.Do(&take)
	require.NoError(t, p.Check())
	for _, v := range take.Victims {
		assert.Equal(t, messages.DefaultPriority, v.Priority)
	}
}

// TestForecastKeepsAwaitedPages: what a refused admission has matched, or a prefetch has found,
// outlives all else of its priority, until it is used or too many requests have come.
func TestForecastKeepsAwaitedPages(t *testing.T) {
	for name, c := range map[string]struct {
		then  func(c *atomicCache, awaited *traceRequest)
		stays bool
	}{
		"awaited":    {func(*atomicCache, *traceRequest) {}, true},
		"used since": {func(c *atomicCache, awaited *traceRequest) { c.request(awaited) }, false},
		"not since long": {func(c *atomicCache, _ *traceRequest) {
			for range 100 {
				c.request(&traceRequest{IDs: document(99, 1)})
			}
		}, false},
	} {
		for _, end := range []protocol.PoolOpKind{protocol.Unclaim, protocol.Drop} {
			t.Run(name+" "+opName(end), func(t *testing.T) {
				p := NewWith("awaited", 21, evict.Options{Name: evict.Forecast, Seed: 1, Span: 1})
				cached := &atomicCache{pool: p, clock: realTime}
				awaited := &traceRequest{IDs: document(1, 5)}
				cached.request(awaited)
				for d := uint64(2); d < 5; d++ {
					cached.request(&traceRequest{IDs: document(d, 5)})
				}
				var pages []messages.PageID
				for _, id := range awaited.IDs {
					pages = append(pages, cached.pageOf[id])
				}
				p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{
					{Kind: protocol.Claim, Pages: pages}, {Kind: end, Pages: pages, Awaited: true},
				}})
				require.NoError(t, p.Check())
				c.then(cached, awaited)
				// The others are used once more, so that what is awaited no longer is used least recently.
				for d := uint64(2); d < 5; d++ {
					cached.request(&traceRequest{IDs: document(d, 5)})
				}
				take := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 16}}}
				p.Do(&take)
				left := 0
				for _, id := range awaited.IDs {
					if !slices.ContainsFunc(take.Victims,
						func(v protocol.Victim) bool { return v.Block == protocol.BlockID(id) }) {
						left++
					}
				}
				if assert.NoError(t, p.Check()); c.stays {
					assert.Equal(t, len(awaited.IDs), left)
				} else {
					assert.Less(t, left, len(awaited.IDs))
				}
			})
		}
	}
}

// TestForecastEvictsAwaitedPagesInOrder: where all that is cached is awaited, what was prefetched
// first is evicted first. What one work awaits has one place in the order.
func TestForecastEvictsAwaitedPagesInOrder(t *testing.T) {
	p := NewWith("queue", 20, evict.Options{Name: evict.Forecast, Seed: 1, Span: 1})
	cached := &atomicCache{pool: p, clock: realTime}
	for d := range uint64(4) {
		cached.request(&traceRequest{IDs: document(d, 5)})
	}
	prefetch := func(documents ...uint64) {
		var w protocol.PoolWork
		for _, d := range documents {
			var pages []messages.PageID
			for _, id := range document(d, 5) {
				pages = append(pages, cached.pageOf[id])
			}
			w.Ops = append(w.Ops, protocol.PoolOp{Kind: protocol.Claim, Pages: pages},
				protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Awaited: true})
		}
		p.Do(&w)
	}
	prefetch(1)
	prefetch(2, 0) // equal: document 0 was used before
	prefetch(3)
	prefetch(1)
	for _, d := range []uint64{0, 2, 3, 1} {
		take := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 5}}}
		p.Do(&take)
		require.NoError(t, p.Check())
		for _, v := range take.Victims {
			assert.Equal(t, d, uint64(v.Block)/32, "victim %d", v.Block)
		}
	}
}

// BenchmarkForecastChurn is BenchmarkTakeWithEviction with requests of 256 pages that the
// policy is told about: 32 sessions that go on in turn, in a full pool.
func BenchmarkForecastChurn(b *testing.B) {
	policies := map[string]func() *Pool{
		"priority_lru": func() *Pool { return New("churn", 10_000) },
		"forecast": func() *Pool {
			return NewWith("churn", 10_000, evict.Options{Name: evict.Forecast, Seed: 1, Span: 1})
		},
	}
	for name, open := range policies {
		b.Run(name, func(b *testing.B) {
			c := &atomicCache{pool: open(), clock: realTime}
			r, n := traceRequest{}, 0
			step := func() {
				if n%4 == 0 {
					r.IDs = r.IDs[:0]
				}
				for k := range 64 {
					r.IDs = append(r.IDs, uint64(n/4%500)*256+uint64(n%4*64+k))
				}
				n++
				r.Timestamp += 100
				c.request(&r)
			}
			for range 3000 {
				step()
			}
			c.looked = 0
			for b.Loop() {
				step()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(c.looked), "ns/block")
		})
	}
}

// TestForecastSavesWork: documents of 8 and of 64 blocks come equally often. Where a block at depth
// 8 takes twice as long as the first one, more of the deep blocks are kept, and fewer of the
// others.
func TestForecastSavesWork(t *testing.T) {
	if invariants.Enabled || testing.Short() {
		t.Skip("thousands of requests")
	}
	run := func(doublesAt float64) (shallow, deep int64) {
		r := rand.New(rand.NewPCG(5, 6))
		c := &atomicCache{pool: NewWith("work", 1000, evict.Options{Name: evict.Forecast, Seed: 1,
			Span: 1, DoublesAt: doublesAt}), answers: true, clock: realTime}
		for i := range 6000 {
			d, before := uint64(r.IntN(60)), c.hits
			if d%2 == 0 {
				c.request(&traceRequest{Timestamp: 300 * float64(i), IDs: document(4*d, 8), Answer: 50})
				shallow += c.hits - before
			} else {
				c.request(&traceRequest{Timestamp: 300 * float64(i), IDs: document(4*d, 64), Answer: 50})
				deep += c.hits - before
			}
		}
		require.NoError(t, c.pool.Check())
		return shallow, deep
	}
	shallow, deep := run(0)
	otherShallow, otherDeep := run(8)
	t.Logf("hits of shallow and deep documents: %d and %d, by work %d and %d", shallow, deep,
		otherShallow, otherDeep)
	assert.Less(t, otherShallow, shallow)
	assert.Greater(t, otherDeep, deep)
}
