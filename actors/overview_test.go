package actors_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// states counts the states of sampled pages.
func states(samples []inspect.PageSample) map[inspect.PageState]int {
	n := map[inspect.PageState]int{}
	for _, s := range samples {
		n[s.State]++
	}
	return n
}

// An overview of all pages says of each state what the statistics say.
func TestOverview(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, twoPools())
	defer r.close()
	r.store(run(0, 17))
	r.store(run(100, 17)) // the first prompt goes to host memory
	s, err := r.start(run(200, 9))
	require.NoError(t, err)

	m := &inspect.ReadOverview{Limits: inspect.OverviewLimits{Pages: 100, Nodes: 100}}
	require.NoError(t, r.Do(ctx, m))
	require.NoError(t, m.Err)
	stats, err := r.Stats(ctx)
	require.NoError(t, err)
	require.Len(t, m.Overview.Pools, 2)
	for i, p := range m.Overview.Pools {
		want := stats.Pools[i]
		n := states(p.Primary)
		assert.Len(t, p.Primary, want.Primary.Total)
		assert.Equal(t, []int{want.Primary.Used, want.Primary.Cached},
			[]int{n[inspect.PageUsed], n[inspect.PageCached]}, "pool %d", i)
		n = states(p.Secondary)
		assert.Equal(t, want.Secondary.Cached, n[inspect.PageCached]+n[inspect.PageCopy], "pool %d", i)
		assert.Equal(t, want.Secondary.Free, n[inspect.PageFree], "pool %d: spare pages are not shown", i)
		for _, page := range p.Primary {
			if page.State == inspect.PageCached {
				assert.Equal(t, messages.DefaultPriority, page.Priority)
			}
		}
	}
	nodes := m.Overview.Nodes
	require.NotEmpty(t, nodes)
	assert.True(t, m.Overview.Complete)
	assert.Equal(t, -1, nodes[0].Parent)
	assert.GreaterOrEqual(t, nodes[0].Below, 2+4,
		"the blocks of both stored prompts that some pool holds")

	m.Limits = inspect.OverviewLimits{Pages: 2}
	require.NoError(t, r.Do(ctx, m))
	assert.Empty(t, m.Overview.Nodes)
	assert.Len(t, m.Overview.Pools[0].Primary, 2)
	m.Limits = inspect.OverviewLimits{Nodes: 1}
	require.NoError(t, r.Do(ctx, m))
	assert.Len(t, m.Overview.Nodes, 1)
	assert.Empty(t, m.Overview.Pools)
	for _, wrong := range []inspect.OverviewLimits{{Pages: -1}, {Nodes: inspect.MaxOverview + 1}} {
		m.Limits = wrong
		require.NoError(t, r.Do(ctx, m))
		require.ErrorIs(t, m.Err, messages.ErrBadRequest)
	}
	require.NoError(t, r.release(s))
}

// A lookup gives the reason that an admission gives.
func TestLookupSaysWhyItFoundNoMore(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, twoPools())
	defer r.close()
	r.store(run(0, 17))
	r.store(run(100, 17))
	seen := map[messages.MissReason]bool{}
	for _, prompt := range [][]messages.Token{run(100, 17), run(0, 17), run(500, 9),
		append(run(100, 8), run(0, 9)...), run(0, 9)} {
		m := &messages.Lookup{Prefix: messages.Prefix{Tokens: prompt}}
		require.NoError(t, r.Do(ctx, m))
		require.NoError(t, m.Err)
		a, err := r.Admit(ctx, messages.AdmitRequest{Tokens: prompt})
		require.NoError(t, err)
		assert.Equal(t, a.MissReason, m.MissReason)
		assert.Equal(t, a.ReusedTokens, m.Found.MatchedTokens)
		seen[m.MissReason] = true
		require.NoError(t, r.release(admitted(messages.AdmitRequest{Tokens: prompt}, &a)))
	}
	assert.Greater(t, len(seen), 1)
}
