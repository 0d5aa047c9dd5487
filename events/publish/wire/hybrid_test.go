package wire

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/events/publish"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// hybrids are models whose pools are not all of full attention, with the pools that decide
// what is published: those with full attention, or without any those of the largest window.
var hybrids = map[string]struct {
	layers  int
	windows []int
	states  []kvactor.State
	counts  []string
}{
	"windows": {2, []int{8, 64}, nil, []string{"wfullh1"}},
	"states": {2, []int{64}, []kvactor.State{{Layers: []int{1}, Bytes: 64}},
		[]string{"wfullh1"}},
	"windows and state": {3, []int{8, 64, 8}, []kvactor.State{{Layers: []int{2}, Bytes: 64}},
		[]string{"wfullh1"}},
	"windows alone": {2, []int{8, 16}, nil, []string{"w16h1"}},
}

// What is published of a hybrid engine is what a prompt reuses of it: prefixes that end where
// windows and recurrent layers have what the next token needs.
func TestHybridEnginesPublishWhatIsReused(t *testing.T) {
	for name, model := range hybrids {
		t.Run(name, func(t *testing.T) {
			m := kvactor.Model{Layers: model.layers, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
				States: model.states}
			for i := range model.layers {
				heads := 1
				for _, s := range model.states {
					if slices.Contains(s.Layers, i) {
						heads = 0
					}
				}
				m.KVHeads = append(m.KVHeads, heads)
			}
			h := newHybrid(t, m, model.windows)
			var counted []messages.PoolID
			for _, p := range h.engine.Pools() {
				if slices.Contains(model.counts, p.Name) {
					counted = append(counted, p.ID)
				}
			}
			require.Len(t, counted, len(model.counts))
			held := 0
			for range 120 {
				h.serve(messages.Namespace{})
				want := h.wanted(counted)
				require.Equal(t, len(want), h.p.Blocks())
				for name, tier := range want {
					got, is := h.p.Tier(name)
					require.True(t, is)
					require.Equal(t, tier, got)
				}
				held += len(want)
			}
			assert.Greater(t, held, 100)
			stats, err := h.engine.Stats(t.Context())
			require.NoError(t, err)
			for _, p := range stats.Pools {
				assert.Positive(t, p.Evicted, "pool %s is not under pressure", p.Name)
			}
		})
	}
}

// newHybrid is newHost for a model.
func newHybrid(t *testing.T, m kvactor.Model, limits []int) *host {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.EventBufferMaxSize, cache.HostCacheSize = 4, 1000, 1<<16
	cache.MaxAttentionWindow = limits
	pools, err := windows.Pools(m, cache)
	require.NoError(t, err)
	engine, err := kvactor.Open(kvactor.Config{
		Model: m, Cache: cache, Pages: slices.Repeat([]kvactor.PageCounts{{Primary: 20, Secondary: 10}},
			len(pools)), Device: device,
	})
	require.NoError(t, err)
	h := &host{t: t, engine: engine, random: rand.New(rand.NewPCG(5, 6))}
	h.p, err = Start(t.Context(), Options{Source: engine, View: publish.Config{Pools: engine.Pools()},
		Config: Default(), Interval: -1})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, h.p.Close(ctx))
		_, err := engine.Close(ctx)
		require.NoError(t, err)
	})
	return h
}

// wanted are the blocks that should be published, with their tiers, by the definition: whole
// blocks of prefixes that every counted pool holds and that a prompt reuses.
func (h *host) wanted(counted []messages.PoolID) map[kvevents.Hash]messages.Tier {
	blocks, err := h.engine.Actors().Contents(h.t.Context())
	require.NoError(h.t, err)
	prefix := make([][]messages.Token, len(blocks))
	public := make([]bool, len(blocks))
	tiers := make([]messages.Tier, len(blocks))
	reused := make([]bool, len(blocks))
	for i, b := range blocks {
		behind := b.Parent < 0 || public[b.Parent]
		if b.Parent >= 0 {
			prefix[i] = slices.Clone(prefix[b.Parent])
		}
		prefix[i] = append(prefix[i], b.Tokens...)
		tier := messages.Primary
		for _, p := range counted {
			_, at, holds := b.Pages[p].Page()
			behind = behind && holds
			tier = max(tier, at)
		}
		if public[i] = behind && len(b.Tokens) == 4; !public[i] {
			continue
		}
		tiers[i] = tier
		found, err := h.engine.Lookup(h.t.Context(),
			messages.Prefix{Tokens: append(slices.Clone(prefix[i]), messages.MaxToken)})
		require.NoError(h.t, err)
		if found.MatchedTokens == len(prefix[i]) {
			for k := i; k >= 0 && !reused[k]; k = blocks[k].Parent {
				reused[k] = true
			}
		}
	}
	want := map[kvevents.Hash]messages.Tier{}
	for i := range blocks {
		if !reused[i] {
			continue
		}
		names, err := events.Names(messages.Prefix{Tokens: prefix[i]}, 4)
		require.NoError(h.t, err)
		want[names[len(names)-1]] = tiers[i]
	}
	return want
}
