package oracle_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// variant is one way to hold the same requests.
type variant struct {
	windows []int // of the layers; none: full attention
	pages   windows.PageCounts
}

// replay admits, computes and releases prompts one after the other; it answers
// what was reused of each.
func replay(t *testing.T, v variant, prompts [][]messages.Token) []int {
	model := windows.Model{Layers: 2, KVHeads: []int{1}, HeadDim: 2, DType: windows.Float16,
		MaxSeqLen: 64}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.MaxAttentionWindow = 4, v.windows
	pools, err := windows.Pools(model, cache)
	require.NoError(t, err)
	config := actors.Config{Model: model, Cache: cache}
	memory := int64(0)
	for _, p := range pools {
		config.Pages = append(config.Pages, v.pages)
		memory += p.PageBytes() * int64(v.pages.Primary)
	}
	device, err := sim.New(sim.Config{MemoryBytes: memory})
	require.NoError(t, err)
	config.Device = device
	e, err := actors.Spawn(system().Root, config)
	require.NoError(t, err)
	ctx := context.Background()
	var reused []int
	for _, tokens := range prompts {
		in, err := e.Admit(ctx, messages.AdmitRequest{Tokens: tokens})
		require.NoError(t, err)
		reused = append(reused, in.ReusedTokens)
		_, err = e.Commit(ctx, []messages.CommitStep{{Sequence: in.Sequence, Computed: len(tokens)}})
		require.NoError(t, err)
		_, err = e.Release(ctx, []messages.ReleaseStep{{Sequence: in.Sequence}})
		require.NoError(t, err)
	}
	require.NoError(t, e.Check(ctx))
	leaked, err := e.Close(ctx)
	require.NoError(t, err)
	require.Zero(t, leaked)
	require.NoError(t, device.Close())
	return reused
}

// longest is what could be reused of prompt i at best: the longest beginning
// that it shares with an earlier one, but for its last token.
func longest(prompts [][]messages.Token, i int) int {
	best := 0
	for _, earlier := range prompts[:i] {
		n := 0
		for n < len(earlier) && n < len(prompts[i])-1 && earlier[n] == prompts[i][n] {
			n++
		}
		best = max(best, n)
	}
	return best
}

// With room for everything a match is as long as it can be, whatever the pools
// and with host memory or without; with less room it is never longer.
func TestLessRoomNeverMatchesMore(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var prompts [][]messages.Token
		for range 60 {
			tokens := make([]messages.Token, 1+rng.IntN(40))
			for i := range tokens {
				tokens[i] = messages.Token(rng.IntN(3) / 2)
			}
			prompts = append(prompts, tokens)
		}
		shapes := [][]int{nil, {1 << 20, 8}, {1 << 20, 3, 17}, {6, 6}}
		for _, shape := range shapes {
			for _, host := range []int{0, 700} {
				all := replay(t, variant{shape, windows.PageCounts{Primary: 700, Secondary: host}}, prompts)
				for i := range prompts {
					require.Equal(t, longest(prompts, i), all[i], "seed %d, windows %v, host %d, prompt %d", seed,
						shape, host, i)
				}
				for _, primary := range []int{11, 23, 60} {
					less := replay(t, variant{shape, windows.PageCounts{Primary: primary, Secondary: host / 20}},
						prompts)
					for i := range prompts {
						require.LessOrEqual(t, less[i], all[i], "seed %d, windows %v, %d pages, prompt %d", seed,
							shape, primary, i)
					}
				}
			}
		}
	}
}
