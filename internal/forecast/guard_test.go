package forecast

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
)

// TestGuardIsLRU: the guard's list is that of the blocks in the order of their use, of one request
// the deepest first, also of requests that are longer than the list.
func TestGuardIsLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGuard(1, 1)
		size := g.capacity
		var oracle []uint64 // the last used is the last
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			signatures := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 20), 0, size+3, rapid.ID).Draw(t,
				"blocks")
			useAll(&g, signatures)
			oracle = slices.DeleteFunc(oracle, func(s uint64) bool { return slices.Contains(signatures, s) })
			for _, s := range slices.Backward(signatures) {
				oracle = append(oracle, s)
			}
			oracle = oracle[max(0, len(oracle)-size):]
			require.Empty(t, g.check())
			require.ElementsMatch(t, oracle, listed(&g))
			require.True(t, slices.Equal(oracle, listed(&g)))
		}
	})
}

// listed is the blocks of a guard's list, the least recently used first.
func listed(g *guard) (signatures []uint64) {
	for at := g.lru.head; at != none; at = g.lru.entries[at].next {
		signatures = append(signatures, g.lru.entries[at].key)
	}
	return signatures
}

// useAll uses all blocks of a request in a guard.
func useAll(g *guard, signatures []uint64) {
	g.request(
		&Request{RequestFacts: protocol.RequestFacts{Signatures: signatures, Blocks: len(signatures),
			Prompt: len(signatures)}})
}

// TestGuardTakesBlocksTwice: two blocks of a request may have one tag.
func TestGuardTakesBlocksTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGuard(1, 1)
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			useAll(&g, rapid.SliceOfN(rapid.Uint64Range(1, 20), 0, 12).Draw(t, "blocks"))
			require.Empty(t, g.check())
		}
	})
}

// TestGuardHoldsWhatLRUHolds: the list reaches as far back as LRU's cache, whatever the hash of the
// blocks is: exactly on average, and with long runs of new blocks nearly so with each hash.
func TestGuardHoldsWhatLRUHolds(t *testing.T) {
	short := func(r *rand.Rand, _ int) []uint64 { return prefix(r.IntN(10_000), 2) }
	for name, c := range map[string]struct {
		capacity int
		span     protocol.Span
		requests int
		request  func(r *rand.Rand, n int) []uint64
		scatter  float64 // standard deviation of the ratio, at most
	}{
		"prompts that come once": {8192, 1, 100, func(_ *rand.Rand,
			n int) []uint64 {
			return prefix(n, 400)
		}, 0.025},
		"long sessions": {8192, 1, 1000, func(r *rand.Rand,
			n int) []uint64 {
			return prefix(r.IntN(60), 50+n/5+r.IntN(50))
		}, 0.04},
		"short prompts": {8192, 1, 12_000, short, 0.08},
		"short behind a long prefix": {8192, 1, 8000, func(r *rand.Rand, _ int) []uint64 {
			return append(prefix(0, 100), prefix(1+r.IntN(10_000), 3)...)
		}, 0.08},
		"short prompts of short blocks": {8192, 16, 12_000, short, 0.08},
		"prompts that end before a span": {8192, 16, 2000, func(r *rand.Rand,
			_ int) []uint64 {
			return prefix(r.IntN(1000), 25)
		}, 0.08},
		"prompts of any lengths": {8192, 16, 3000, func(_ *rand.Rand,
			n int) []uint64 {
			return prefix(n, 1+n*n%60)
		}, 0.08},
		"long sessions of short blocks": {8192, 16, 1000, func(r *rand.Rand,
			n int) []uint64 {
			return prefix(r.IntN(60), 50+n/5+r.IntN(50))
		}, 0.08},
		"a small cache of short blocks": {1000, 16, 3000, func(_ *rand.Rand,
			n int) []uint64 {
			return prefix(n, 1+n*n%60)
		}, 0.12},
		"long prompts of short blocks": {8192, 4, 100, func(_ *rand.Rand,
			n int) []uint64 {
			return prefix(n, 400)
		}, 0.04},
	} {
		t.Run(name, func(t *testing.T) {
			const starts = 24
			var sum, square float64
			for start := range uint64(starts) {
				ratio := float64(reach(t, start, c.capacity, c.span, c.requests, c.request)) / float64(
					c.capacity)
				sum += ratio
				square += (ratio - 1) * (ratio - 1)
			}
			t.Logf("mean %.4f, standard deviation from 1 %.4f", sum/starts, math.Sqrt(square/starts))
			assert.InDelta(t, 1, sum/starts, 0.025)
			assert.Less(t, math.Sqrt(square/starts), c.scatter)
		})
	}
}

// guardRequest uses a request of a document in a guard, whose policy had so many leading blocks.
func guardRequest(g *guard, document, blocks, prompt, cached int) {
	var signatures []uint64
	for k := range g.span.Signatures(blocks) {
		signatures = append(signatures, mixed(uint64(document)<<32+uint64(k)+1))
	}
	g.request(
		&Request{RequestFacts: protocol.RequestFacts{Signatures: signatures, Blocks: blocks,
			Prompt: prompt}, Cached: cached})
}

// TestGuardKnowsASystemPrompt: LRU hits a prefix that all prompts have, although nothing behind it
// has a signature.
func TestGuardKnowsASystemPrompt(t *testing.T) {
	g := newGuard(2000, 16)
	for range 6000 {
		guardRequest(&g, 1, 120, 120, 112)
	}
	assert.Positive(t, g.lookups)
	assert.InDelta(t, 0, g.lead/g.lookups, 0.01)
	assert.Empty(t, g.check())
}

// TestGuardCountsBlocks: of prompts that LRU has, those blocks up to a signature count, in blocks,
// and of answers none.
func TestGuardCountsBlocks(t *testing.T) {
	for _, capacity := range []int{1500, 20_000} {
		g := newGuard(capacity, 16)
		const documents, rounds = 25, 30
		for range 3 { // so that LRU has them
			for d := range documents {
				guardRequest(&g, d, 60, 40, 40)
			}
		}
		g.lookups, g.lead, g.square = 0, 0, 0
		for range rounds {
			for d := range documents {
				guardRequest(&g, d, 60, 40, 20)
			}
		}
		if capacity == 1500 {
			// Signatures of 8 and 16 blocks stand for themselves, so what is counted hardly depends on the
			// draw.
			assert.InEpsilon(t, 32, g.lookups*float64(g.every)/decayed(documents*rounds), 0.12)
		}
		assert.InEpsilon(t, 0.5, g.lead/g.lookups, 0.25, "of 32 blocks the policy has 16")
	}
}

// decayed is the sum of so many ones, of which each request decays those before.
func decayed(n int) (sum float64) {
	for range n {
		sum = sum*guardDecay + 1
	}
	return sum
}

// TestGuardCountsLeadingBlocks: LRU hits no block behind one that it lacks.
func TestGuardCountsLeadingBlocks(t *testing.T) {
	g := newGuard(100, 1)
	useAll(&g, []uint64{1, 2, 3})
	useAll(&g, []uint64{4, 2, 3})
	assert.Zero(t, g.lead)
	useAll(&g, []uint64{4, 2, 5})
	assert.InDelta(t, 2, g.lead, 0.01)
}

// TestTallyForgets: what prompts of today leave unsigned decides, not what those of long ago did.
func TestTallyForgets(t *testing.T) {
	var c tally
	assert.Equal(t, 100, c.signedOf(100))
	for range 20_000 {
		c.add(16, &Request{RequestFacts: protocol.RequestFacts{Blocks: 32}})
	}
	assert.Equal(t, 3100, c.signedOf(3100))
	for range 20_000 {
		c.add(16, &Request{RequestFacts: protocol.RequestFacts{Blocks: 31}})
	}
	assert.InDelta(t, 1600, c.signedOf(3100), 10)
}

// TestGuardIsSmall also where blocks are short.
func TestGuardIsSmall(t *testing.T) {
	for _, span := range []protocol.Span{1, 4, 16} {
		g := newGuard(1_000_000, span)
		assert.LessOrEqual(t, len(g.lru.entries), 28_700/int(span)+150)
	}
}

// prefix lists the first signatures of a document.
func prefix(document, n int) []uint64 {
	signatures := make([]uint64, n)
	for k := range signatures {
		signatures[k] = uint64(document)<<32 + uint64(k) + 1
	}
	return signatures
}

// reach is how many blocks were used since the oldest of the guard's list, and that one, after some
// requests.
func reach(
	t *testing.T, start uint64, capacity int, span protocol.Span, requests int,
	request func(r *rand.Rand, n int) []uint64,
) int {
	g, r := newGuard(capacity, span), rand.New(rand.NewPCG(start, 7))
	used := map[uint64]int{}
	for n := range requests {
		blocks := request(r, n)
		cached := len(blocks)
		for i := range blocks {
			random := generator{blocks[i] + start<<56}
			blocks[i] = random.next()
			if used[blocks[i]] == 0 {
				cached = min(cached, i)
			}
			used[blocks[i]] = (n+1)<<16 - i
		}
		var signatures []uint64
		for k := range span.Signatures(len(blocks)) {
			signatures = append(signatures, blocks[span.Block(k)])
		}
		g.request(
			&Request{RequestFacts: protocol.RequestFacts{Signatures: signatures, Blocks: len(blocks),
				Prompt: (len(blocks) + cached) / 2}, Cached: cached})
		require.Empty(t, g.check())
	}
	n, oldest := 0, used[listed(&g)[0]]
	for _, at := range used {
		if at >= oldest {
			n++
		}
	}
	return n
}

// TestGuardInAnyOrder: the list is whole after requests of any lengths, also with blocks that come
// twice.
func TestGuardInAnyOrder(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		g := newGuard([]int{1, 5, 100, 256, 700, 3000, 9300, 20000}[seed%8], protocol.Span(1<<(seed%5)))
		for range 400 {
			n := 1 + r.IntN(1+r.IntN(1500))
			sig := make([]uint64, n)
			base := uint64(r.IntN(40)) << 20
			for k := range sig {
				x := base + uint64(k)
				if r.IntN(50) == 0 {
					x = base + uint64(r.IntN(n)) // twice
				}
				x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
				x = (x ^ x>>27) * 0x94d049bb133111eb
				sig[k] = x ^ x>>31 | 1
			}
			g.request(&Request{RequestFacts: protocol.RequestFacts{Signatures: sig, Blocks: n, Prompt: n},
				Cached: r.IntN(n + 1)})
			require.Empty(t, g.check())
		}
	}
}
