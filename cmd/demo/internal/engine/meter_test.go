package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
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

// quick answers every step at once.
type quick struct{ Engine }

func (quick) Commit(_ context.Context, s []messages.CommitStep) ([]messages.StepResult, error) {
	time.Sleep(time.Millisecond)
	return make([]messages.StepResult, len(s)), nil
}

func TestMeterCountsCallsAndItems(t *testing.T) {
	m := NewMeter(quick{})
	for range 3 {
		_, err := m.Commit(context.Background(), make([]messages.CommitStep, 4))
		require.NoError(t, err)
	}
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

// recorded is an engine that serves records.
type recorded struct {
	quick
	served []messages.Request
}

func (r *recorded) Do(_ context.Context, request messages.Request) error {
	r.served = append(r.served, request)
	return nil
}

// TestMeterDo: a record goes to the engine, or to the method of its kind if the engine has no Do.
func TestMeterDo(t *testing.T) {
	commit := &messages.Commit{Steps: make([]messages.CommitStep, 4)}
	e := &recorded{}
	m := NewMeter(e)
	require.NoError(t, m.Do(t.Context(), commit))
	require.Equal(t, []messages.Request{commit}, e.served)
	require.Empty(t, commit.Results)

	m.Engine = quick{}
	require.NoError(t, m.Do(t.Context(), commit))
	require.Len(t, commit.Results, 4)
	timing := m.Timing(OpCommit)
	require.EqualValues(t, 2, timing.Calls)
	require.EqualValues(t, 8, timing.Items)
	require.ErrorContains(t, m.Do(t.Context(), &messages.Reset{}), "no method for *messages.Reset")
}
