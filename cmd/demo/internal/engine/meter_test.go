package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

func TestQuantiles(t *testing.T) {
	var timing Timing
	for i := 1000; i >= 1; i-- {
		timing.each = append(timing.each, time.Duration(i)*time.Microsecond)
	}
	assert.Equal(t, []time.Duration{500 * time.Microsecond, 990 * time.Microsecond, time.Millisecond},
		timing.Quantiles(0.5, 0.99, 1))
	assert.Equal(t, []time.Duration{0}, (&Timing{}).Quantiles(0.5))
}

func TestMeterCountsCallsAndItems(t *testing.T) {
	var m Meter
	for range 3 {
		m.Observe(t.Context(), &messages.Commit{Steps: make([]messages.CommitStep, 4)},
			time.Now().Add(-time.Millisecond), nil)
	}
	m.Observe(t.Context(), &messages.Reset{}, time.Now(), nil) // is not measured
	seen := 0
	m.Timings(func(name string, timing *Timing) {
		seen++
		assert.Equal(t, "commit", name)
		assert.EqualValues(t, 3, timing.Calls)
		assert.EqualValues(t, 12, timing.Items)
	})
	assert.Equal(t, 1, seen)
	assert.GreaterOrEqual(t, m.Total(), 3*time.Millisecond)
}

// TestMeterOfRig: the calls of hosts are measured, and what looks at the engine is not.
func TestMeterOfRig(t *testing.T) {
	p := Tiny()
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = 4
	rig, err := Open(Options{Model: p.Model, Cache: cache, Pages: windows.PageCounts{Primary: 8}})
	require.NoError(t, err)
	a, err := rig.Admit(t.Context(), messages.AdmitRequest{Tokens: []messages.Token{1, 2, 3}})
	require.NoError(t, err)
	_, err = rig.Release(t.Context(), []messages.ReleaseStep{{Sequence: a.Sequence}})
	require.NoError(t, err)
	require.NoError(t, rig.Check(t.Context()))
	seen := map[string]int64{}
	rig.Meter.Timings(func(name string, timing *Timing) { seen[name] += timing.Items })
	assert.Equal(t, map[string]int64{"admit": 1, "release": 1}, seen)
	_, err = rig.Shutdown(t.Context())
	require.NoError(t, err)
}
