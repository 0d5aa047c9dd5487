package bench

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// BenchmarkPartial looks up prompts that end inside a block, behind a node with
// many children: the child that shares the most tokens has to be found. The
// floor is a binary search in the sorted first blocks of the children.
func BenchmarkPartial(b *testing.B) {
	const prefix, shared, queries = 4 * tokensPerBlock, tokensPerBlock / 2, 1 << 10
	for _, children := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(children), func(b *testing.B) {
			r := dice(9)
			engine := full(prefix + children).actors(b)
			begin := random(r, prefix)
			blocks := make([][]messages.Token, children)
			calls := newCalls(nil)
			for i := range blocks {
				blocks[i] = random(r, tokensPerBlock)
				calls.admit.Requests[0].Tokens = slices.Concat(begin, blocks[i])
				calls.store(engine)
			}
			asks := make([][]messages.Token, queries)
			for i := range asks {
				asks[i] = slices.Concat(begin, blocks[r.IntN(children)][:shared], random(r, tokensPerBlock))
			}
			slices.SortFunc(blocks, slices.Compare)
			lookup := &messages.Lookup{}
			i, j, found := 0, 0, 0
			c := versus(b, batched(64, func() {
				lookup.Prefix.Tokens = asks[i%queries]
				engine(lookup)
				i++
			}), batched(64, func() {
				at, _ := slices.BinarySearchFunc(blocks, asks[j%queries][prefix:prefix+tokensPerBlock],
					slices.Compare)
				found += at
				j++
			}))
			require.NoError(b, lookup.Err)
			require.Equal(b, prefix+shared, lookup.Found.MatchedTokens)
			c.tail(b)
		})
	}
}
