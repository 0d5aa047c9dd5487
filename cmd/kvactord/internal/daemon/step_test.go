package daemon

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// BenchmarkMatch measures round trips of a step that matches stored prompts and releases what the
// step before has claimed.
func BenchmarkMatch(b *testing.B) {
	for _, shape := range []struct{ prompts, tokens int }{{1, 8000}, {64, 64}, {64, 1000}} {
		b.Run(fmt.Sprintf("prompts=%d/tokens=%d", shape.prompts, shape.tokens), func(b *testing.B) {
			s := serve(b, func(c *Config) { c.MemoryBytes = 64 << 20 })
			o := opening()
			o.BlockTokens, o.MaxTokens = 128, 16384
			o.Groups = []*wire.Group{{Name: "full", LayerBytes: []uint64{1024, 1024}}}
			c := s.open(o)
			step := &wire.Step{}
			for i := range shape.prompts {
				tokens := tokensFrom(int32(i*20000), shape.tokens)
				if whole := shape.tokens / 128 * 128; whole > 0 {
					r := c.reserve(&wire.Reserve{Prompt: prompt(tokens[:whole])})
					c.step(&wire.Step{Written: []*wire.Written{{Handle: r.Handle, Tokens: uint32(whole)}},
						Releases: []uint64{r.Handle}})
				}
				step.Matches = append(step.Matches, &wire.Match{Prompt: prompt(tokens), Fetch: true})
			}
			for b.Loop() {
				out := c.step(step)
				step.Releases = step.Releases[:0]
				for _, m := range out.Matches {
					if m.Handle > 0 {
						step.Releases = append(step.Releases, m.Handle)
					}
					require.Equal(b, uint32((shape.tokens-1)/128*128), m.Tokens)
				}
			}
		})
	}
}
