package bench

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// BenchmarkMatch finds stored prompts among a million blocks in three pools,
// through the actors. The floor compares the same tokens with slices.Equal.
// Warm is one prompt again and again, cold goes through all of them, many
// times what the processor's own caches hold.
func BenchmarkMatch(b *testing.B) {
	l := theLibrary()
	for _, x := range []struct {
		name   string
		tokens int
		texts  []text
	}{
		{"4k/warm", shortText, l.short[:1]}, {"4k/cold", shortText, l.short},
		{"100k/warm", longText, l.long[:1]}, {"100k/cold", longText, l.long},
	} {
		b.Run(x.name, func(b *testing.B) {
			lookup := &messages.Lookup{}
			i, j, same := 0, 0, true
			c := versus(b, timed(func() {
				lookup.Prefix.Tokens = x.texts[i].ask
				l.do(lookup)
				i = (i + 1) % len(x.texts)
			}), timed(func() {
				same = same && slices.Equal(x.texts[j].ask[:x.tokens], x.texts[j].stored)
				j = (j + 1) % len(x.texts)
			}))
			require.True(b, same)
			require.NoError(b, lookup.Err)
			require.Equal(b, x.tokens, lookup.Found.MatchedTokens)
			b.ReportMetric(c.engine.quantile(0.5)/float64(x.tokens), "ns/token")
		})
	}
}

// BenchmarkAdmitRelease admits a stored prompt and releases it, in three pools:
// match, claims, tables, release. The floor is the same coordinator and cores
// without actors.
func BenchmarkAdmitRelease(b *testing.B) {
	for _, blocks := range []int{100, 1000, 6000} {
		b.Run(fmt.Sprintf("blocks=%d", blocks), func(b *testing.B) {
			s := hybrid(2*blocks + 100)
			tokens := random(dice(2), blocks*tokensPerBlock)
			floor, engine := s.direct().Do, s.actors(b)
			newCalls(tokens).store(floor)
			newCalls(tokens).store(engine)
			ask := append(tokens, vocabulary)
			below, above := newCalls(ask), newCalls(ask)
			versus(b, timed(func() { above.visit(engine) }), timed(func() { below.visit(floor) }))
			require.Equal(b, blocks*tokensPerBlock, above.reused())
			require.Equal(b, blocks*tokensPerBlock, below.reused())
		})
	}
}
