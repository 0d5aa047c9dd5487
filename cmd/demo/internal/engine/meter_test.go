package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

func TestBucketsHoldTheirDurations(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 15, 16, 17, 31, 32, 1000, 123456, time.Second, time.Hour} {
		i := bucket(d)
		assert.GreaterOrEqual(t, upper(i), d)
		assert.LessOrEqual(t, float64(upper(i)), float64(d)*(1+1.0/stepsPerDoubling)+1)
		if i > 0 {
			assert.Less(t, upper(i-1), d)
		}
	}
	assert.Equal(t, buckets-1, bucket(1<<62))
}

func TestQuantile(t *testing.T) {
	var timing Timing
	for i := 1; i <= 1000; i++ {
		d := time.Duration(i) * time.Microsecond
		timing.Calls++
		timing.Max = d
		timing.count[bucket(d)]++
	}
	assert.InEpsilon(t, 500*time.Microsecond, timing.Quantile(0.5), 0.07)
	assert.InEpsilon(t, 990*time.Microsecond, timing.Quantile(0.99), 0.07)
	assert.Equal(t, time.Millisecond, timing.Quantile(1))
	assert.Zero(t, (&Timing{}).Quantile(0.5))
}

func TestMeterCountsCallsAndItems(t *testing.T) {
	var m Meter
	for range 3 {
		m.Observe(t.Context(), &messages.Commit{Steps: make([]messages.CommitStep, 4)},
			time.Now().Add(-time.Millisecond), nil)
	}
	m.Observe(t.Context(), &messages.Reset{}, time.Now(), nil) // is not measured
	seen := 0
	m.Timings(func(o Operation, timing *Timing) {
		seen++
		assert.Equal(t, "commit", o.String())
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
	rig, err := Open(Options{Model: p.Model, Cache: cache, Pages: []windows.PageCounts{{Primary: 8}}})
	require.NoError(t, err)
	a, err := rig.Admit(t.Context(), messages.AdmitRequest{Tokens: []messages.Token{1, 2, 3}})
	require.NoError(t, err)
	_, err = rig.Release(t.Context(), []messages.ReleaseStep{{Sequence: a.Sequence}})
	require.NoError(t, err)
	require.NoError(t, rig.Check(t.Context()))
	assert.EqualValues(t, 1, rig.Meter.Timing(OpAdmit).Calls)
	assert.EqualValues(t, 1, rig.Meter.Timing(OpRelease).Items)
	assert.Zero(t, rig.Meter.Timing(OpOther).Calls)
	_, err = rig.Shutdown(t.Context())
	require.NoError(t, err)
}
