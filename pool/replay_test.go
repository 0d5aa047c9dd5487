package pool

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
)

// traceRequest is one line of a trace.
type traceRequest struct {
	Timestamp float64     `json:"timestamp"`
	Answer    int         `json:"output_length"`
	IDs       []uint64    `json:"hash_ids"`
	Runs      [][2]uint64 `json:"hash_runs"`
	Block     int         `json:"-"` // tokens of a block
}

// traceBlocks are the block sizes of the traces.
var traceBlocks = map[string]int{
	"mooncake_conversation_h1": 512, "mooncake_synthetic": 512, "claude_code_agentic_dev": 64,
	"agent_runs_lmcache": 16,
}

// readTrace reads a trace of ../shared/traces; the test is skipped where there is none.
func readTrace(t testing.TB, name string) (all []traceRequest) {
	file, err := os.Open(filepath.Join("..", "..", "shared", "traces", name+".jsonl.gz"))
	if os.IsNotExist(err) {
		t.Skip("no traces here")
	}
	require.NoError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	lines := bufio.NewReaderSize(unzipped, 1<<20)
	decoder := json.NewDecoder(lines)
	for decoder.More() {
		var r traceRequest
		require.NoError(t, decoder.Decode(&r))
		for _, run := range r.Runs {
			for k := range run[1] {
				r.IDs = append(r.IDs, run[0]+k)
			}
		}
		r.Runs, r.Block = nil, traceBlocks[name]
		all = append(all, r)
	}
	return all
}

// atomicCache replays a trace in the model of ../shared/traces/README.md: a request looks up its
// prompt, then all its blocks are cached.
type atomicCache struct {
	pool         *Pool
	pageOf       []messages.PageID // by block
	path, fresh  []messages.PageID
	blocks       []protocol.BlockID
	use          protocol.Use
	work         protocol.PoolWork
	facts        protocol.RequestFacts
	looked, hits int64
	answers      bool
	clock        func(float64) time.Duration
	start        uint64 // of the hash that signatures are
	// Where it is timed: how long evictions took, and how many pages they took. Pages are taken apart
	// from the claim then.
	timed    bool
	evicting time.Duration
	evicted  int
}

// take takes pages behind the operations of the current work, and returns them.
func (c *atomicCache) take(n int) []messages.PageID {
	if !c.timed {
		c.work.Ops = append(c.work.Ops, protocol.PoolOp{Kind: protocol.Take, N: n})
		c.pool.Do(&c.work)
		return c.work.Ops[len(c.work.Ops)-1].Pages
	}
	c.pool.Do(&c.work)
	c.work.Ops = append(c.work.Ops[:0], protocol.PoolOp{Kind: protocol.Take, N: n, Pages: c.fresh[:0]})
	start := time.Now()
	c.pool.Do(&c.work)
	// What takes longer was interrupted.
	if took := time.Since(start); len(c.work.Victims) > 0 && took < 100*time.Microsecond {
		c.evicting += took
		c.evicted += len(c.work.Victims)
	}
	c.fresh = c.work.Ops[0].Pages
	return c.fresh
}

func (c *atomicCache) request(r *traceRequest) {
	n := min(len(r.IDs), len(c.pool.pages))
	c.path, c.blocks = c.path[:0], c.blocks[:0]
	for _, id := range r.IDs {
		for int(id) >= len(c.pageOf) {
			c.pageOf = append(c.pageOf, messages.NoPage)
		}
	}
	for _, id := range r.IDs[:n] {
		if c.pageOf[id] == messages.NoPage {
			break
		}
		c.path = append(c.path, c.pageOf[id])
	}
	hits := len(c.path)
	c.looked += int64(len(r.IDs))
	c.hits += int64(hits)
	c.use += 2
	c.work.Now = c.clock(r.Timestamp)
	c.work.Ops = append(c.work.Ops[:0], protocol.PoolOp{Kind: protocol.Claim, Pages: c.path})
	fresh := c.take(n - hits)
	for _, v := range c.work.Victims {
		c.pageOf[v.Block] = messages.NoPage
	}
	var attach, blocks = []messages.PageID{}, []protocol.BlockID{}
	for i, page := range fresh {
		id := r.IDs[hits+i]
		c.path = append(c.path, page)
		if c.pageOf[id] == messages.NoPage {
			c.pageOf[id] = page
			attach, blocks = append(attach, page), append(blocks, protocol.BlockID(id))
		} else {
			attach, blocks = append(attach, messages.NoPage), append(blocks, protocol.NoBlock)
		}
	}
	drop := protocol.PoolOp{Kind: protocol.Drop, Pages: c.path, Use: c.use}
	c.work.Ops = append(c.work.Ops[:0], protocol.PoolOp{Kind: protocol.AttachPages, Pages: attach,
		Blocks: blocks, Depth: int32(hits), Priority: 35})
	c.pool.Do(&c.work)
	if c.pool.options.Name == evict.Forecast {
		c.facts.Signatures = c.facts.Signatures[:0]
		span := c.pool.options.Span
		for k := range span.Signatures(n) {
			c.facts.Signatures = append(c.facts.Signatures, signature(r.IDs[span.Block(k)], c.start))
		}
		c.facts.Arrived, c.facts.Blocks, c.facts.Prompt, c.facts.Tokens = c.work.Now, n, n, n*r.Block
		if c.facts.Answer = r.Answer; !c.answers {
			c.facts.Answer = 0
		}
		drop.Request = &c.facts
	}
	c.work.Ops = append(c.work.Ops[:0], drop)
	c.pool.Do(&c.work)
}

// signature is a hash of a block, which names all of its prefix. Other starts give other samples of
// the guard.
func signature(id, start uint64) uint64 {
	x := id + 1 + start*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31 | 1
}

type point struct {
	trace               string
	pages               int
	lru, notes, optimal float64
}

var points = []point{
	{"mooncake_conversation_h1", 1000, 0.0432, 0.0678, 0.1864},
	{"mooncake_conversation_h1", 2000, 0.0525, 0.0954, 0.2470},
	{"mooncake_conversation_h1", 5000, 0.1114, 0.1620, 0.3257},
	{"mooncake_conversation_h1", 10000, 0.2062, 0.2232, 0.3402},
	{"mooncake_conversation_h1", 30000, 0.3133, 0.3201, 0.3402},
	{"mooncake_synthetic", 500, 0.0451, 0.0536, 0.1992},
	{"mooncake_synthetic", 2000, 0.1464, 0.1566, 0.3795},
	{"mooncake_synthetic", 5000, 0.2793, 0.3050, 0.5263},
	{"mooncake_synthetic", 10000, 0.4239, 0.4696, 0.6180},
	{"claude_code_agentic_dev", 4096, 0.1509, 0.2689, 0.4528},
	{"claude_code_agentic_dev", 8192, 0.3675, 0.5208, 0.6726},
	{"claude_code_agentic_dev", 16384, 0.7272, 0.7735, 0.8624},
	{"claude_code_agentic_dev", 32768, 0.9197, 0.9206, 0.9490},
	{"agent_runs_lmcache", 500, 0.6539, 0.6551, 0.6912},
	{"agent_runs_lmcache", 1500, 0.8680, 0.8681, 0.8693},
	{"agent_runs_lmcache", 5000, 0.8991, 0.8994, 0.8996},
}

// optionsOf is the policy forecast for a trace.
func optionsOf(trace string, seed uint64) evict.Options {
	return evict.Options{Name: evict.Forecast, Seed: seed, Span: protocol.SpanOf(traceBlocks[trace]),
		BlockTokens: traceBlocks[trace]}
}

func TestForecastFigures(t *testing.T) {
	if os.Getenv("FIGURES") == "" {
		t.Skip("FIGURES is not set")
	}
	policies := []bool{true}
	if os.Getenv("FIGURES") == "lru" {
		policies = []bool{false}
	}
	seed := uint64(1)
	if s := os.Getenv("SEED"); s != "" {
		fmt.Sscan(s, &seed)
	}
	var trace []traceRequest
	sum, old := 0.0, ""
	for k, p := range points {
		if p.trace != old {
			trace, old = readTrace(t, p.trace), p.trace
		}
		for _, forecasting := range policies {
			c := &atomicCache{pool: New("trace", p.pages), answers: os.Getenv("NOANSWER") == "",
				clock: realTime}
			if os.Getenv("STANDING") != "" {
				c.clock = standingTime
			}
			if forecasting {
				c.pool = NewWith("trace", p.pages, optionsOf(p.trace, seed))
			}
			start := time.Now()
			for i := range trace {
				c.request(&trace[i])
			}
			took := time.Since(start)
			require.NoError(t, c.pool.Check())
			rate := float64(c.hits) / float64(c.looked)
			share := 100 * (rate - p.lru) / (p.optimal - p.lru)
			noted := 100 * (p.notes - p.lru) / (p.optimal - p.lru)
			if k < 13 {
				sum += share
			}
			fmt.Printf("%-26s %6d  lru %.4f  got %.4f  notes %.4f  share %5.1f (%5.1f)  %5.0f ns/block\n",
				p.trace, p.pages, p.lru, rate, p.notes, share, noted,
				float64(took.Nanoseconds())/float64(c.looked))
		}
	}
	fmt.Printf("mean share of the first 13: %.1f\n", sum/13)
}

// BenchmarkTraceEvictions replays whole traces, and is what the takes of pages alone cost, where
// pages lie as traffic leaves them.
func BenchmarkTraceEvictions(b *testing.B) {
	for _, p := range points {
		b.Run(fmt.Sprintf("%s/%d", p.trace, p.pages), func(b *testing.B) {
			trace := readTrace(b, p.trace)
			took, evicted := [2]time.Duration{}, [2]int{}
			for b.Loop() {
				for k, open := range []func() *Pool{
					func() *Pool { return New("lru", p.pages) },
					func() *Pool {
						return NewWith("forecast", p.pages, optionsOf(p.trace, 1))
					},
				} {
					c := &atomicCache{pool: open(), answers: true, clock: realTime, timed: true}
					for i := range trace {
						c.request(&trace[i])
					}
					took[k], evicted[k] = took[k]+c.evicting, evicted[k]+c.evicted
				}
			}
			lru, forecast := float64(took[0])/float64(max(1, evicted[0])),
				float64(took[1])/float64(max(1, evicted[1]))
			b.ReportMetric(lru, "lru-ns/page")
			b.ReportMetric(forecast, "forecast-ns/page")
			b.ReportMetric(forecast/lru, "x/lru")
		})
	}
}
