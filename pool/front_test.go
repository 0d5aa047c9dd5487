package pool

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// TestFrontKeepsTheLeast: a front has each piece at most once, the least last, and no candidate
// that was offered and refused is worth less than one that is kept.
func TestFrontKeepsTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, kept := &front{}, map[int32]candidate{}
		for range rapid.IntRange(1, 4*frontSize).Draw(t, "steps") {
			c := candidate{
				piece: rapid.Int32Range(1, 2*frontSize).Draw(t, "piece"), rank: rapid.Int32Range(-5, 5).Draw(t, "rank"),
				last: rapid.Uint32Range(0, 3).Draw(t, "last"),
			}
			if f.n > 0 && rapid.IntRange(0, 4).Draw(t, "step") == 0 {
				// A candidate gets another value, also one above all others.
				k := rapid.IntRange(0, f.n-1).Draw(t, "changed")
				c.piece = f.list[k].piece
				require.Equal(t, c, f.list[f.put(k, c)])
				kept[c.piece] = c
			} else {
				full, most := f.n == frontSize, f.list[0]
				f.add(c)
				at := slices.Index(f.list[:f.n], c)
				require.True(t, at >= 0 || full && !c.before(most))
				if _, ok := kept[c.piece]; at >= 0 && !ok && full {
					delete(kept, most.piece)
				}
				if at >= 0 {
					kept[c.piece] = c
				}
			}
			require.Len(t, kept, f.n)
			for k, c := range f.list[:f.n] {
				require.Equal(t, kept[c.piece], c)
				require.False(t, k > 0 && f.list[k-1].before(c), "%v", f.list[:f.n])
			}
		}
		require.True(t, slices.IsSortedFunc(f.list[:f.n], func(a, b candidate) int {
			switch {
			case b.before(a):
				return -1
			case a.before(b):
				return 1
			}
			return 0
		}))
	})
}

// TestFirstChoiceComparesAll: the first choice among many pieces finds the one of least value.
func TestFirstChoiceComparesAll(t *testing.T) {
	p := NewForecast("first", 200, Forecast{Seed: 1, Span: 1})
	c := &atomicCache{pool: p, answers: true, clock: realTime}
	for i := range 210 {
		// The first ten are used again, so that the least value is not among the first of the set.
		c.request(&traceRequest{Timestamp: 700 * float64(i), IDs: document(uint64(i%200), 1), Answer: 10 * i})
	}
	s, set := p.cache.pieces, p.cache.whole.level(messages.DefaultPriority).candidates()
	require.Len(t, set, 200)
	least := s.candidate(set[0])
	for k := range set {
		if c := s.candidate(set[k]); c.before(least) {
			least = c
		}
	}
	require.NotContains(t, []int32{set[0], set[1], set[2], set[3], set[199]}, least.piece)
	require.Equal(t, least.piece, s.first(1))
}

// TestComparisonsWaitForTheEndOfARequest: what choices leave to compare is compared when a request releases its pages, or when
// there is too much of it or too few candidates.
func TestComparisonsWaitForTheEndOfARequest(t *testing.T) {
	const docs = 8 * frontSize
	p := NewForecast("due", 4*docs, Forecast{Seed: 1, Span: 1})
	c := &atomicCache{pool: p, clock: realTime}
	for d := range docs {
		c.request(&traceRequest{Timestamp: float64(1000 * d), IDs: document(uint64(d), 4)})
	}
	var held []messages.PageID
	take := func(n int) {
		w := protocol.PoolWork{Now: c.work.Now, Ops: []protocol.PoolOp{{Kind: protocol.Take, N: n}}}
		p.Do(&w)
		for _, v := range w.Victims {
			c.pageOf[v.Block] = messages.NoPage
		}
		held = append(held, w.Ops[0].Pages...)
		require.NoError(t, p.Check())
	}
	take(1)
	f := p.cache.whole.level(messages.DefaultPriority).front
	require.NotNil(t, f)
	sweep := f.sweep
	take(4)
	require.Positive(t, f.due)
	require.Equal(t, sweep, f.sweep, "a choice compares nothing")
	c.request(&traceRequest{Timestamp: 1000 * docs, IDs: document(docs, 1)})
	require.Zero(t, f.due)
	require.Greater(t, f.sweep, sweep)
	for p.Counts().Cached > docs {
		take(2)
		require.LessOrEqual(t, f.due, surveyLimit)
		require.Positive(t, f.n)
	}
	p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Drop, Pages: held}}})
	require.Equal(t, len(held), p.Counts().Free)
}

// TestComparisonsByTokens: what is worth more to find, because more tokens are evicted, is searched for longer.
func TestComparisonsByTokens(t *testing.T) {
	for _, c := range []struct{ pages, tokens, want int }{
		{1, 0, 1}, {3, 0, 3}, {500, 0, 4}, // a pool that was not told
		{1, 16, 1}, {16, 16, 4}, {64, 16, 8}, {128, 16, 16}, {4096, 16, 64},
		{1, 512, 4}, {4, 512, 16}, {16, 512, 64}, {100, 512, 64},
	} {
		require.Equal(t, c.want, swept(c.pages, c.tokens), "%d pages of %d tokens", c.pages, c.tokens)
	}
}

// TestFrontsHaveNoPieceTwice: not even where sets are so small that choices compare them as a whole, and let the front be.
func TestFrontsHaveNoPieceTwice(t *testing.T) {
	for _, pages := range []int{40, 60, 150} {
		p := NewForecast("twice", pages, Forecast{Seed: 1, Span: 1})
		c := &atomicCache{pool: p, answers: true, clock: realTime}
		for i, r := range conversations(1200) {
			r.IDs = r.IDs[:min(len(r.IDs), 6+i%20)]
			c.request(&r)
			f := p.cache.whole.level(messages.DefaultPriority).front
			if f == nil {
				continue
			}
			seen := map[int32]bool{}
			for _, c := range f.list[:f.n] {
				require.False(t, seen[c.piece], "%d pages, request %d: piece %d", pages, i, c.piece)
				seen[c.piece] = true
			}
		}
	}
}

// TestComparisonsForPages: where pages are evicted one by one, a choice compares as much as for a piece of one page, and more for a
// checkpoint. With quotas it does not wait for the end of a request.
func TestComparisonsForPages(t *testing.T) {
	p := NewForecast("pages", 60, Forecast{Seed: 1, Span: 1})
	require.Equal(t, 1, p.cache.pieces.duePage())
	p.SetBlockTokens(512)
	require.Equal(t, 4, p.cache.pieces.duePage())
	require.Equal(t, sweptCheckpoints, statePool(60).cache.pieces.duePage())

	const docs = 60
	p = NewForecast("quotas", docs, Forecast{Seed: 1, Span: 1}, windows.NoQuota)
	p.SetBlockTokens(512)
	c := &atomicCache{pool: p, clock: realTime}
	for d := range docs {
		c.request(&traceRequest{Timestamp: float64(1000 * d), IDs: document(uint64(d), 1)})
	}
	take := protocol.PoolWork{Now: c.work.Now, Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 1}}}
	p.Do(&take)
	var f *front
	for k := range p.cache.accounts.list {
		if o := &p.cache.accounts.list[k].order; o.n > 0 {
			f = o.level(messages.DefaultPriority).front
		}
	}
	require.NotNil(t, f)
	sweep := f.sweep
	take.Ops[0].N = 3
	p.Do(&take)
	require.NoError(t, p.Check())
	require.Zero(t, f.due)
	require.Equal(t, sweep+3*p.cache.pieces.duePage(), f.sweep)
}

// TestComparisonsWithoutRequests: where no request ends, as if a host only cancelled, choices make the comparisons that are due in the end.
func TestComparisonsWithoutRequests(t *testing.T) {
	c, s := manyEnding(t)
	do := working(t, c.pool, c.work.Now)
	do(protocol.PoolOp{Kind: protocol.Take, N: 1})
	f := s.orders.whole.level(messages.DefaultPriority).front
	require.NotNil(t, f)
	f.due = surveyLimit - 1
	sweep := f.sweep
	do(protocol.PoolOp{Kind: protocol.Take, N: 1})
	require.Less(t, f.due, surveyLimit)
	require.NotEqual(t, sweep, f.sweep)
}

// TestCandidatesAreRankedByTheirNextVictim: the depth that counts is that of the page that the piece would lose.
func TestCandidatesAreRankedByTheirNextVictim(t *testing.T) {
	p := NewForecast("depths", 24, Forecast{Seed: 1, Span: 1, DoublesAt: 2})
	c := &atomicCache{pool: p, clock: realTime}
	for d := range uint64(4) {
		c.request(&traceRequest{IDs: document(d, 6)})
	}
	s, q := p.cache.pieces, c.pieceOf(document(1, 6)[0])
	for _, depth := range []int32{5, 4} {
		n := c.numberOf(document(1, 6)[0])
		u := s.uses[n]
		require.Equal(t, depth, p.pages[q.head].depth)
		require.Equal(t, s.policy.RankAt(u.features(), s.lastOf(u.time), depth), s.candidate(n).rank)
		require.NotEqual(t, s.policy.Rank(u.features(), s.lastOf(u.time)), s.candidate(n).rank)
		p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 4}}}) // all last blocks
	}
}
