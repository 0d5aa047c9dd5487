package actors_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// forecasting is a rig with the policy forecast and host memory, both much smaller than what is
// asked for.
func forecasting(t *testing.T, device, host int, options ...actors.Option) *rig {
	return byWork(t, device, host, 0, options...)
}

// byWork is forecasting with a depth at which computing a token takes twice as long.
func byWork(t *testing.T, device, host, doublesAt int, options ...actors.Option) *rig {
	return newRig(t, setup{
		windows: []int{full}, pages: []windows.PageCounts{{Primary: device, Secondary: host}},
		change: func(c *windows.Config) {
			c.EvictionPolicy, c.PrefillDoublesAt = windows.Forecast, doublesAt
		},
	}, options...)
}

// visited serves a prompt of so many tokens, and is how many of them were reused.
func (r *rig) visited(t *testing.T, w *host.Writer, first, tokens int) int {
	request := messages.AdmitRequest{Tokens: run(first, tokens)}
	a, err := r.Admit(context.Background(), request)
	require.NoError(t, err)
	s := admitted(request, &a)
	require.NoError(t, r.compute(w, s, tokens))
	require.NoError(t, r.release(s))
	return a.ReusedTokens
}

// How much the policy forecast compares for an eviction depends on the tokens of a block.
func TestPoolsKnowTheTokensOfABlock(t *testing.T) {
	for _, policy := range []string{windows.PriorityLRU, windows.Forecast} {
		r := newRig(t, setup{
			windows: []int{full}, pages: []windows.PageCounts{{Primary: 7}},
			change: func(c *windows.Config) { c.EvictionPolicy = policy },
		})
		assert.Contains(t, r.DrawPool(0), ": 7 pages of 4 tokens, 0 used")
		r.close()
	}
}

// Prompts of 9 and of 81 tokens come at random. Where a token at depth 8 takes twice as long as the
// first one, the engine keeps fewer of the short ones and more of the long ones.
func TestForecastCountsWork(t *testing.T) {
	var reused [2][2]int // without and with the work, of short and long prompts
	for seed := range uint64(6) {
		for k, doublesAt := range []int{0, 8} {
			var visits atomic.Int64
			r := byWork(t, 60, 0, doublesAt,
				actors.WithClock(func() time.Duration { return time.Duration(visits.Load()) * time.Second }))
			w, dice := r.newWriter("host"), rand.New(rand.NewPCG(seed, 2))
			for range 1200 {
				visits.Add(1)
				d := dice.IntN(24)
				reused[k][d%2] += r.visited(t, w, 1000*d, 9+d%2*72)
			}
			r.close()
		}
	}
	t.Logf("tokens of short and long prompts reused: %d, by work %d", reused[0], reused[1])
	assert.Less(t, reused[1][0], reused[0][0])
	assert.Greater(t, reused[1][1], reused[0][1])
}

// Prompts that come again, with twice as many between them that never do, are more than both tiers
// have pages for, so that LRU has dropped each when it comes again. The policy forecast keeps them
// in both tiers; without it in host memory it reuses a third of them.
func TestForecastInBothTiers(t *testing.T) {
	const again, rounds, tokens = 6, 100, 33
	r := forecasting(t, 24, 48)
	w, reused, next := r.newWriter("host"), 0, 1000
	for round := range rounds {
		for i := range again {
			if n := r.visited(t, w, 100*i, tokens); round >= rounds/2 {
				reused += n
			}
			for range 2 {
				r.visited(t, w, next, tokens)
				next += 100
			}
		}
	}
	assert.Greater(t, reused, again*rounds/2*(tokens-1)*9/10)
	r.close()
}

// Hosts at once, more than there are pages for: the offloader ranks what it has while other calls
// wait for the pool.
func TestForecastWithManyHosts(t *testing.T) {
	manyHosts(t, forecasting(t, 32, 16))
}

// The same with too few pages for all hosts, so that admissions wait whose blocks are in host
// memory.
func TestForecastWithWaitingHosts(t *testing.T) {
	manyHosts(t, forecasting(t, 7, 48, actors.WithWaitingRoom(8)))
}

// manyHosts serves four hosts at once, each of which repeats some prompts.
func manyHosts(t *testing.T, r *rig) {
	var running sync.WaitGroup
	for h := range 4 {
		w := r.newWriter(fmt.Sprintf("host %d", h))
		running.Go(func() {
			for i := range 60 {
				assert.NoError(t, runSequence(r, w, run(1000*h+7*(i%9), 4+i%17)))
			}
		})
	}
	running.Wait()
	r.close()
}
