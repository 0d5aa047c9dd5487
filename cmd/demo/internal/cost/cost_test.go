package cost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The published figures for an 8B model on an H100 at half its peak.
func TestPrefillOfLlama8B(t *testing.T) {
	m, g := Llama8B(), H100()
	for _, c := range []struct {
		tokens int
		want   time.Duration
	}{
		{1 << 10, 34 * time.Millisecond}, {8 << 10, 300 * time.Millisecond},
		{32 << 10, 1600 * time.Millisecond}, {128 << 10, 13 * time.Second},
	} {
		assert.InEpsilon(t, c.want, Prefill(&m, &g, Span{To: c.tokens}), 0.1, c.tokens)
	}
}

func TestPrefillAddsUp(t *testing.T) {
	g := H100()
	for _, m := range []Model{Llama8B(), Gemma12B()} {
		whole := Prefill(&m, &g, Span{To: 5000})
		parts := Prefill(&m, &g, Span{To: 700}) + Prefill(&m, &g, Span{From: 700, To: 3000}) +
			Prefill(&m, &g, Span{From: 3000, To: 5000})
		assert.InDelta(t, whole, parts, float64(time.Microsecond), m.Name)
	}
	m := Llama8B()
	assert.Zero(t, Prefill(&m, &g, Span{From: 9, To: 9}))
}

func TestWindowsCostLess(t *testing.T) {
	g, limited := H100(), Gemma12B()
	full := limited
	full.Windows = make([]int, len(limited.Windows))
	long := Span{To: 32768}
	assert.Less(t, Prefill(&limited, &g, long), Prefill(&full, &g, long))
	assert.Less(t, Decode(&limited, &g, []int{32768}), Decode(&full, &g, []int{32768}))
	short := Span{To: 1000}
	assert.Equal(t, Prefill(&full, &g, short), Prefill(&limited, &g, short))
}

func TestDecodeReadsWeightsOnce(t *testing.T) {
	m, g := Llama8B(), H100()
	one := Decode(&m, &g, []int{1000})
	eight := Decode(&m, &g, []int{1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000})
	assert.Zero(t, Decode(&m, &g, nil))
	assert.InEpsilon(t, 6*time.Millisecond, one, 0.05)
	assert.Less(t, eight, 2*one)
	assert.Greater(t, eight, one)
}
