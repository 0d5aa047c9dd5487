package replay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sum adds up the intervals of a replay.
func sum(list []Interval) (total Interval) {
	for i := range list {
		total.add(&list[i], 1)
	}
	return total
}

// TestOverTimeAddsUp: the intervals of a replay, of each kind, are its totals.
func TestOverTimeAddsUp(t *testing.T) {
	c := config(generate(t, 200, 21), 30)
	c.HostPages, c.Intervals = 40, 12
	for name, run := range map[string]func(context.Context, Config) (*Result, error){
		"atomic": Atomic, "timed": Timed,
		"optimal": func(ctx context.Context, c Config) (*Result, error) {
			c.HostPages = 0
			return Optimal(ctx, c, nil)
		},
	} {
		r, err := run(t.Context(), c)
		require.NoError(t, err)
		require.Len(t, r.OverTime, 12, name)
		assert.Empty(t, r.Problems)
		total := sum(r.OverTime)
		assert.Equal(t, Interval{
			Requests: 200, Blocks: r.Blocks, DeviceHits: r.Hits - r.HostHits, HostHits: r.HostHits,
			BytesOffloaded: total.BytesOffloaded, BytesOnboarded: total.BytesOnboarded,
		}, total, name)
		last := 0.0
		for _, v := range r.OverTime {
			assert.Greater(t, v.EndSeconds, last)
			last = v.EndSeconds
			assert.GreaterOrEqual(t, min(v.Requests, v.DeviceHits, v.HostHits, v.BytesOffloaded,
				v.BytesOnboarded), int64(0), name)
		}
		if name == "optimal" {
			continue
		}
		assert.Positive(t, r.HostHits, name)
		assert.Positive(t, r.ComputeSeconds, name)
		assert.NotEmpty(t, r.Calls)
		require.Len(t, r.Copies, 3)
		assert.Equal(t, r.Copies[0].Bytes, total.BytesOffloaded, "every copy belongs to an interval")
		assert.Equal(t, r.Copies[1].Bytes, total.BytesOnboarded)
	}
}

// TestNoTimelineUnlessAsked, since it grows with the replay.
func TestNoTimelineUnlessAsked(t *testing.T) {
	r, err := Atomic(t.Context(), config(generate(t, 20, 1), 30))
	require.NoError(t, err)
	assert.Nil(t, r.OverTime)
}

// TestTimelineIsBounded: of a long replay it keeps fewer samples, and loses no count.
func TestTimelineIsBounded(t *testing.T) {
	var line timeline
	const requests = 5*maxSamples + 77
	for i := range requests {
		line.note(time.Duration(i)*time.Millisecond, Interval{Requests: int64(i + 1),
			Blocks: 3 * int64(i+1)})
		require.LessOrEqual(t, len(line.samples), maxSamples)
	}
	parts := line.intervals(7)
	require.Len(t, parts, 7)
	assert.EqualValues(t, requests, sum(parts).Requests)
	assert.EqualValues(t, 3*requests, sum(parts).Blocks)
	for _, v := range parts {
		assert.InDelta(t, requests/7, v.Requests, 2*8+1, "to within two strides")
	}
}

// TestTimelineOfAStandingClock: the parts are of the same number of requests.
func TestTimelineOfAStandingClock(t *testing.T) {
	var line timeline
	assert.Nil(t, line.intervals(3))
	for i := range 9 {
		line.note(0, Interval{Requests: int64(i + 1)})
	}
	counts := []int64{}
	for _, v := range line.intervals(3) {
		counts = append(counts, v.Requests)
	}
	assert.Equal(t, []int64{3, 3, 3}, counts)
}
