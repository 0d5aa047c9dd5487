package survival_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/internal/direct"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/pool"
	"github.com/kvactor/kvactor/tree"
	"github.com/kvactor/kvactor/windows"
)

// bare is an engine of one pool without actors, so that nothing but the work
// itself is measured.
type bare struct {
	*direct.Engine
	t testing.TB
}

func newBare(t testing.TB, count windows.PageCounts, copyOnPartial bool) *bare {
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = tpb
	pools, err := windows.Pools(modelOf(1), cache)
	require.NoError(t, err)
	config := coordinator.Config{
		Pools: pools, Counts: []windows.PageCounts{count}, TokensPerBlock: tpb, MaxSeqLen: long,
		Reuse: true, Partial: true, CopyOnPartial: copyOnPartial,
	}
	p := pools[0]
	return &bare{t: t, Engine: direct.New(config, direct.Cores{
		Pools: []*pool.Pool{pool.New(p.Name, count.Primary)},
		Tree: tree.New(tree.Config{TokensPerBlock: tpb, Pools: make([]tree.PoolShape, 1),
			Host: count.Secondary > 0}),
		Offloader: offloader.New(offloader.Config{Passed: func(messages.Ticket) bool { return true },
			Pools: []offloader.PoolConfig{{
				Name: p.Name, HostPages: count.Secondary, PageBytes: p.PageBytes(),
				Regions: []windows.Region{{Runs: 2, TokenBytes: 1}}, TokensPerBlock: tpb,
			}}}),
	})}
}

// admit takes a batch in; all of it must fit.
func (b *bare) admit(prompts ...[]messages.Token) *messages.Admit {
	b.t.Helper()
	m := &messages.Admit{}
	for _, tokens := range prompts {
		m.Requests = append(m.Requests, messages.AdmitRequest{Tokens: tokens})
	}
	b.Do(m)
	for i := range m.Results {
		require.NoError(b.t, m.Results[i].Err)
	}
	return m
}

// end computes a batch and releases it.
func (b *bare) end(m *messages.Admit, discard bool) {
	b.t.Helper()
	commit, release := &messages.Commit{}, &messages.Release{}
	for i := range m.Results {
		commit.Steps = append(commit.Steps, messages.CommitStep{Sequence: m.Results[i].Sequence,
			Computed: len(m.Requests[i].Tokens)})
		release.Steps = append(release.Steps, messages.ReleaseStep{Sequence: m.Results[i].Sequence,
			Discard: discard})
	}
	if !discard {
		b.Do(commit)
	}
	b.Do(release)
	for i := range release.Results {
		require.NoError(b.t, release.Results[i].Err)
	}
}

// crowdOf gives n prompts of so many blocks that have nothing in common, each
// but for its last token the beginning of one that was stored.
func crowdOf(n, blocks, tail int) (list [][]messages.Token) {
	for i := range n {
		tokens := run(1000*i, blocks*tpb)
		tokens[len(tokens)-1] += messages.Token(tail)
		list = append(list, tokens)
	}
	return list
}

// halfFits is a batch of which the first half fits and the second does not.
func halfFits(n int) (list [][]messages.Token) {
	list = crowdOf(n/2, 2, 1)
	for i := range n / 2 {
		list = append(list, append(run(1000*i, tpb), run(1000*i+500, 3*tpb)...))
	}
	return list
}

// repeated gives one prompt n times.
func repeated(n int, tokens []messages.Token) (list [][]messages.Token) {
	for range n {
		list = append(list, tokens)
	}
	return list
}

// batchCost is a batch over what is stored.
type batchCost struct {
	takeover bool // no copies
	hosted   bool // what is stored lies in host memory
	tight    bool // there are pages for a half of it
	stored   func(n int) [][]messages.Token
	batch    func(n int) [][]messages.Token
}

// once measures a batch of n.
func (c *batchCost) once(t testing.TB, n int) time.Duration {
	count := windows.PageCounts{Primary: 5*n + 10}
	if c.hosted {
		count.Secondary = 5 * n
	}
	if c.tight {
		count.Primary = 3*(n/2) + 2
	}
	b := newBare(t, count, !c.takeover)
	b.end(b.admit(c.stored(n)...), false)
	if c.hosted {
		b.end(b.admit(run(1<<19, (count.Primary-1)*tpb)), true)
	}
	fits := n
	if c.tight {
		b.admit(run(1<<19, n/2*tpb))
		fits = n / 2
	}
	m := &messages.Admit{}
	for _, tokens := range c.batch(n) {
		m.Requests = append(m.Requests, messages.AdmitRequest{Tokens: tokens})
	}
	runtime.GC()
	start := time.Now()
	b.Do(m)
	took := time.Since(start)
	for i := range m.Results {
		require.Equal(t, i < fits, m.Results[i].Err == nil, "item %d of %d: %v", i, n, m.Results[i].Err)
	}
	require.NoError(t, b.Check())
	return took
}

// batchCosts are batches that share something.
func batchCosts() map[string]batchCost {
	stored := func(n int) [][]messages.Token { return crowdOf(n, 2, 0) }
	parts := func(n int) [][]messages.Token { return crowdOf(n, 2, 1) }
	one := func(int) [][]messages.Token { return crowdOf(1, 2, 0) }
	same := func(n int) [][]messages.Token { return repeated(n, append(run(0, 2*tpb-1), 1<<20)) }
	whole := func(n int) [][]messages.Token { return repeated(n, run(0, 2*tpb)) }
	return map[string]batchCost{
		"a part of one block each":  {stored: stored, batch: parts},
		"each takes one over":       {takeover: true, stored: stored, batch: parts},
		"a part of the same block":  {stored: one, batch: same},
		"only one may take it over": {takeover: true, stored: one, batch: same},
		"whole blocks of host memory": {hosted: true,
			stored: func(n int) [][]messages.Token { return crowdOf(n, 3, 0) },
			batch:  func(n int) [][]messages.Token { return crowdOf(n, 3, 1) }},
		"the same ones of host memory": {hosted: true, stored: one, batch: whole},
		"half of them do not fit": {tight: true,
			stored: func(n int) [][]messages.Token { return crowdOf(n/2, 2, 0) }, batch: halfFits},
	}
}

// Batches that share something are served, all that fits of them. What they
// cost is BenchmarkBatchGrowth's.
func TestBatchesThatShare(t *testing.T) {
	for name, c := range batchCosts() {
		t.Run(name, func(t *testing.T) { c.once(t, 400) })
	}
}

// A batch costs what its items cost one by one, also when each reuses a part of
// a block, when all want the same block, when none may have it, when all come
// from host memory, and when many are refused: with 16 times the items an item
// should cost the same. What it costs more is memory that no longer fits the
// processor's caches: x/item is 1 to 2.5.
func BenchmarkBatchGrowth(b *testing.B) {
	const few, factor = 400, 16
	for name, c := range batchCosts() {
		b.Run(name, func(b *testing.B) {
			small, large := time.Duration(0), time.Duration(0)
			for range b.N {
				small += c.once(b, few)
				large += c.once(b, factor*few)
			}
			b.ReportMetric(0, "ns/op") // most of it is making worlds
			b.ReportMetric(float64(large)/float64(b.N*factor*few), "ns/item")
			b.ReportMetric(float64(large)/float64(small)/factor, "x/item")
		})
	}
}
