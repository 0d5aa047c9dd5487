package actors_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Pages of every shape go through partial reuse by copy, eviction to host memory
// and back, and all their bytes are right afterwards.
func TestPagesOfEveryShape(t *testing.T) {
	shapes := map[string]func(*windows.Model){
		"one latent vector":      func(m *windows.Model) { m.KVFactor = 1 },
		"keys and values differ": func(m *windows.Model) { m.ValueDim = 8 },
		"tokens before heads":    func(m *windows.Model) { m.KVHeads, m.Layout = []int{2}, windows.NHD },
		"nvfp4 with scales":      func(m *windows.Model) { m.HeadDim, m.DType = 32, windows.NVFP4 },
		"side bytes":             func(m *windows.Model) { m.SideBytes = 5 },
		"a shape for each layer": func(m *windows.Model) {
			m.Shapes = []windows.Shape{{HeadDim: 4, DType: windows.Float32},
				{HeadDim: 8, ValueDim: 4, DType: windows.FP8}}
		},
		"a layer that shares another": func(m *windows.Model) { m.SharedKV = []int{0, 0} },
		"a layer that keeps nothing": func(m *windows.Model) {
			m.KVHeads, m.NoCache = []int{0, 2}, []int{0}
		},
		"chunks of attention": func(m *windows.Model) { m.AttentionChunk = []int{8, 0} },
	}
	for name, set := range shapes {
		t.Run(name, func(t *testing.T) {
			pools := 1
			if name == "chunks of attention" || name == "a shape for each layer" {
				pools = 2
			}
			counts := make([]windows.PageCounts, pools)
			for i := range counts {
				counts[i] = windows.PageCounts{Primary: 8, Secondary: 16}
			}
			r := newRig(t, setup{windows: []int{full, full}, pages: counts, model: set})
			defer r.close()
			r.store(run(0, 11))
			// The first ten tokens again, then others: two whole blocks and half of one.
			s, err := r.start(append(run(0, 10), run(100, 6)...))
			require.NoError(t, err)
			r.verify(s)
			require.NoError(t, r.release(s))
			// Others push both out to host memory; the first comes back.
			r.store(run(1000, 27))
			r.verify()
			s, err = r.start(run(0, 10))
			require.NoError(t, err)
			r.verify(s)
			for token := range 9 {
				require.NoError(t, r.decode(r.writer, s, messages.Token(200+token)))
			}
			r.verify(s)
			require.NoError(t, r.release(s))
			stats, err := r.Stats(t.Context())
			require.NoError(t, err)
			for _, p := range stats.Pools {
				assert.Positive(t, p.ReusedPartial, p.Name)
				assert.Positive(t, p.Offloaded, p.Name)
				if p.Name != "c8h1" { // position 9 needs the source block only
					assert.Positive(t, p.Onboarded, p.Name)
				}
			}
		})
	}
}

// A pool with chunks of 8 tokens holds a chunk of a long prompt at a time. A match
// needs the chunk that it ends in and none of those before.
func TestChunksOfAttention(t *testing.T) {
	r := newRig(t, setup{
		windows: []int{full, full}, pages: []windows.PageCounts{{Primary: 4}, {Primary: 16}},
		model: func(m *windows.Model) { m.AttentionChunk = []int{8, 0} },
	})
	defer r.close()
	start := func(tokens []messages.Token) (*sequence, int) {
		request := messages.AdmitRequest{Tokens: tokens, ChunkTokens: tpb}
		a, err := r.Admit(t.Context(), request)
		require.NoError(t, err)
		s := admitted(request, &a)
		for n := a.ReusedTokens/tpb*tpb + tpb; s.computed < len(tokens); n += tpb {
			require.NoError(t, r.compute(r.writer, s, min(n, len(tokens))))
		}
		r.verify(s)
		return s, a.ReusedTokens
	}
	s, _ := start(run(0, 26))
	tables, err := r.TablesOf(t.Context(), s.id)
	require.NoError(t, err)
	table := host.Beam(tables, 0)[0]
	for i, page := range table {
		assert.Equal(t, i >= 6, page >= 0,
			"block %d: only those of the chunk from token 24 on are held", i)
	}
	require.NoError(t, r.release(s))
	// Four pages cache the last four blocks, [12, 26). At 24 a new chunk begins.
	for _, c := range []struct{ prompt, reused int }{{25, 24}, {26, 25}, {21, 20}, {13, 8}, {9, 8}} {
		got, err := r.Lookup(t.Context(), messages.Prefix{Tokens: run(0, c.prompt)})
		require.NoError(t, err)
		assert.Equal(t, c.reused, got.MatchedTokens, "a prompt of %d", c.prompt)
	}
	s, reused := start(append(run(0, 24), 99, 98, 97))
	assert.Equal(t, 24, reused)
	for token := range 12 {
		require.NoError(t, r.decode(r.writer, s, messages.Token(50+token)))
	}
	r.verify(s)
	require.NoError(t, r.release(s))
}

// A split that holds few sequences is logged when the engine starts; one that the host
// has chosen is not.
func TestWarningsOfTheSplitAreLogged(t *testing.T) {
	var log bytes.Buffer
	logger := actors.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
	d, err := sim.New(sim.Config{MemoryBytes: 1 << 20, Poison: sim.PoisonOff})
	require.NoError(t, err)
	s := setup{windows: []int{8, full}}
	config := s.config(d)
	config.Model.MaxSeqLen, config.Cache.MaxAttentionWindow = 1<<16, []int{8, 1 << 16}
	system := newSystem()
	defer shutdown(system)
	for _, pages := range [][]windows.PageCounts{{{Primary: 4}, {Primary: 4}}, nil} {
		assert.NotContains(t, log.String(), "level=WARN")
		config.Pages = pages
		engine, err := actors.Spawn(system.Root, config, logger)
		require.NoError(t, err)
		_, err = engine.Close(t.Context())
		require.NoError(t, err)
	}
	assert.Contains(t, log.String(), "level=WARN msg=\"pool w8h1 holds")
	require.NoError(t, d.Close())
}

// A model with recurrent layers: what one sequence has computed another goes on from,
// and memory moves between the attention pool and the state pool meanwhile.
func TestRecurrentModels(t *testing.T) {
	r := newRig(t, setup{
		windows: []int{full, full}, pages: []windows.PageCounts{{Primary: 16}, {Primary: 4}},
		model: func(m *windows.Model) {
			m.KVHeads, m.States = []int{1, 0}, []windows.State{{Layers: []int{1}, Bytes: 64}}
		},
	})
	defer r.close()
	ctx := t.Context()
	prompt := messages.AdmitRequest{Tokens: []messages.Token{1, 2, 3, 4, 5, 6, 7, 8, 9}}
	first, err := r.Admit(ctx, prompt)
	require.NoError(t, err)
	assert.Equal(t, []int{8}, first.Checkpoints)
	for _, computed := range []int{8, 9} {
		steps, err := r.Commit(ctx, []messages.CommitStep{{Sequence: first.Sequence, Computed: computed}})
		require.NoError(t, err)
		require.NoError(t, steps[0].Err)
	}
	forks, err := r.Fork(ctx, []messages.ForkStep{{Sequence: first.Sequence, Count: 1}})
	require.NoError(t, err)
	require.NoError(t, forks[0].Err)
	tables, err := r.TablesOf(ctx, forks[0].Forks[0])
	require.NoError(t, err)
	assert.Equal(t, forks[0].Working[0][1], tables[1][0][0])
	_, err = r.Release(ctx, []messages.ReleaseStep{{Sequence: forks[0].Forks[0], Discard: true}})
	require.NoError(t, err)

	_, err = r.Rebalance(ctx, map[string]float64{r.Pools()[0].Name: 0.5, "state": 0.5})
	require.NoError(t, err)
	second, err := r.Admit(ctx, prompt)
	require.NoError(t, err)
	assert.Equal(t, 8, second.ReusedTokens)
	assert.Equal(t, messages.ReasonHit, second.MissReason)
	require.NoError(t, r.Check(ctx))
}

// TestForecastOfCheckpoints: with the policy forecast a checkpoint is worth the blocks from the
// next shorter one of its prefix to it. Of three that are used alike the one that saves a single
// block goes, not the oldest one, also if the pool has failed in between.
func TestForecastOfCheckpoints(t *testing.T) {
	for _, c := range []struct {
		policy string
		fails  bool
		want   [2]int
	}{{windows.PriorityLRU, false, [2]int{20, 0}}, {windows.Forecast, false, [2]int{16, 8}},
		{windows.Forecast, true, [2]int{16, 8}}} {
		r := newRig(t, setup{
			windows: []int{full, full}, pages: []windows.PageCounts{{Primary: 32}, {Primary: 4}},
			model: func(m *windows.Model) {
				m.KVHeads, m.States = []int{1, 0}, []windows.State{{Layers: []int{1}, Bytes: 64}}
			},
			change: func(config *windows.Config) { config.EvictionPolicy = c.policy },
		})
		// checkpoint computes a prompt up to the last boundary in front of its end.
		checkpoint := func(prompt []messages.Token) {
			s, err := enginetest.Again(func() (messages.Admitted, error) {
				return r.Admit(t.Context(), messages.AdmitRequest{Tokens: prompt})
			})
			require.NoError(t, err)
			steps, err := r.Commit(t.Context(),
				[]messages.CommitStep{{Sequence: s.Sequence, Computed: len(prompt) - 1}})
			require.NoError(t, err)
			require.NoError(t, steps[0].Err)
			_, err = r.Release(t.Context(), []messages.ReleaseStep{{Sequence: s.Sequence, Discard: true}})
			require.NoError(t, err)
		}
		checkpoint(run(100, 9)) // saves 2 blocks
		checkpoint(run(0, 17))  // saves 4 blocks
		checkpoint(run(0, 21))  // saves 1 block, behind 16 tokens
		if c.fails {
			require.NoError(t, r.points.Arm("pool:state"))
			_, err := r.Lookup(t.Context(), messages.Prefix{Tokens: run(0, 9)})
			require.NoError(t, err)
		}
		checkpoint(run(200, 9)) // takes the page of another
		for i, prompt := range [][]messages.Token{run(0, 21), run(100, 9)} {
			found, err := r.Lookup(t.Context(), messages.Prefix{Tokens: prompt})
			require.NoError(t, err)
			assert.Equal(t, c.want[i], found.MatchedTokens, "%+v, prompt %d", c, i)
		}
		stats, err := r.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, c.fails, stats.Restarts == 1)
		require.NoError(t, r.Check(t.Context()))
		r.close()
	}
}

// TestResize: the pools grow beyond the memory that they began with and shrink
// again; running sequences go on, and what is cached stays.
func TestResize(t *testing.T) {
	r := newRig(t,
		setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 8},
			{Primary: 8, Secondary: 4}}})
	defer r.close()
	s, err := r.start(run(0, 10))
	require.NoError(t, err)
	r.store(run(100, 16))
	grown, err := r.Resize(t.Context(), []int{30, 40})
	require.NoError(t, err)
	assert.Equal(t, []int{30, 40}, []int{grown.Pools[0].PrimaryPages, grown.Pools[1].PrimaryPages})
	r.verify(s)
	r.store(run(200, 80))
	found, err := r.Lookup(t.Context(), messages.Prefix{Tokens: run(100, 17)})
	require.NoError(t, err)
	assert.Equal(t, 16, found.MatchedTokens, "eighty more tokens have found room")
	require.NoError(t, r.decode(r.writer, s, 50))
	r.verify(s)
	_, err = r.Resize(t.Context(), []int{6, 6})
	require.NoError(t, err)
	r.verify(s)
	require.NoError(t, r.decode(r.writer, s, 51))
	r.verify(s)

	_, err = r.Resize(t.Context(), []int{6, 1})
	assert.ErrorIs(t, err, messages.ErrOutOfPages, "a sequence holds three")
	_, err = r.Resize(t.Context(), []int{6})
	assert.EqualError(t, err, "pages has 1 counts for 2 pools")
	_, err = r.Resize(t.Context(), nil)
	assert.EqualError(t, err, "pages has 0 counts for 2 pools")
	_, err = r.Resize(t.Context(), []int{0, 6})
	assert.ErrorIs(t, err, messages.ErrBadRequest)
	_, err = r.Resize(t.Context(), []int{6, 1 << 20})
	assert.ErrorIs(t, err, messages.ErrInternal, "the device has not so much")
	r.verify(s)
	require.NoError(t, r.release(s))
}
