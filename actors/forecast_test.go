package actors_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// forecasting is a rig with the policy forecast and host memory, both much smaller than what is asked for.
func forecasting(t *testing.T, device, host int, options ...actors.Option) *rig {
	return newRig(t, setup{
		windows: []int{full}, pages: []windows.PageCounts{{Primary: device, Secondary: host}},
		change: func(c *windows.Config) { c.EvictionPolicy = windows.Forecast },
	}, options...)
}

// Prompts that come again, with twice as many between them that never do, are more than both tiers have pages for, so that LRU has
// dropped each when it comes again. The policy forecast keeps them in both tiers; without it in host memory it reuses a third of them.
func TestForecastInBothTiers(t *testing.T) {
	const again, rounds, tokens = 6, 100, 33
	r := forecasting(t, 24, 48)
	w, reused, next := r.newWriter("host"), 0, 1000
	visit := func(first int) int {
		request := messages.AdmitRequest{Tokens: run(first, tokens)}
		a, err := r.Admit(context.Background(), request)
		require.NoError(t, err)
		s := admitted(request, &a)
		require.NoError(t, r.compute(w, s, tokens))
		require.NoError(t, r.release(s))
		return a.ReusedTokens
	}
	for round := range rounds {
		for i := range again {
			if n := visit(100 * i); round >= rounds/2 {
				reused += n
			}
			for range 2 {
				visit(next)
				next += 100
			}
		}
	}
	assert.Greater(t, reused, again*rounds/2*(tokens-1)*9/10)
	r.close()
}

// Hosts at once, more than there are pages for: the offloader ranks what it has while other calls wait for the pool.
func TestForecastWithManyHosts(t *testing.T) {
	manyHosts(t, forecasting(t, 32, 16))
}

// The same with too few pages for all hosts, so that admissions wait whose blocks are in host memory.
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
