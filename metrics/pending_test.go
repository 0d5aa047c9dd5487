package metrics

import (
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// Observations that wait to be entered are in the next scrape, however many there are.
func TestAScrapeMissesNoObservation(t *testing.T) {
	c := New(Options{Model: "m", Aliases: AliasVLLM})
	c.Attach(counted(inspect.Stats{}), []windows.Pool{{Name: "first"}, {Name: "second"}})
	want := 0.0
	for _, n := range []int{1, pendingSize - 1, pendingSize, pendingSize + 1, 0, 3*pendingSize - 2} {
		for range n {
			c.Observe(t.Context(), &messages.Append{}, time.Now(), nil)
			c.ObserveStages(t.Context(), &messages.Append{},
				[]inspect.StageMark{{Stage: inspect.StageTake, Began: time.Now()}}, nil)
			c.ObservePage(inspect.PageTime{Pool: 1, Kind: inspect.PageIdle, Duration: time.Second})
		}
		want += float64(n)
		assert.InDelta(t, want, value(t, c, "kvactor_call_duration_seconds", "append"), 0)
		assert.InDelta(t, want, value(t, c, "kvactor_stage_duration_seconds", "take"), 0)
		assert.InDelta(t, want, value(t, c, "kvactor_page_idle_before_eviction_seconds", "second"), 0)
		assert.InDelta(t, want, value(t, c, "vllm:kv_block_idle_before_evict_seconds"), 0)
	}
}

// What waits when another engine is attached is of the pools of the one before.
func TestPageTimesStayWithTheirPools(t *testing.T) {
	c := New(Options{Model: "m"})
	for _, pool := range []string{"first", "second"} {
		c.ObservePage(inspect.PageTime{Kind: inspect.PageLifetime, Duration: time.Second})
		c.Attach(counted(inspect.Stats{}), []windows.Pool{{Name: pool}})
	}
	assert.InDelta(t, 1, value(t, c, "kvactor_page_lifetime_seconds", "first"), 0)
	assert.NotPanics(t, func() { c.ObservePage(inspect.PageTime{Kind: inspect.PageTimeKinds}) })
}

// Each of many goroutines' observations is entered once, also while others read.
func TestManyGoroutinesObserve(t *testing.T) {
	c := New(Options{Model: "m"})
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 500 {
				c.Observe(t.Context(), &messages.Commit{}, time.Now(), nil)
				if i%100 == 0 {
					_, err := registry.Gather()
					assert.NoError(t, err)
				}
			}
		})
	}
	all.Wait()
	assert.InDelta(t, 4000, value(t, c, "kvactor_call_duration_seconds", "commit"), 0)
}
