package radix_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/gpu/internal/radix"
)

// By agrees with a stable sort.
func TestOrder(t *testing.T) {
	var o radix.Order
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]uint64{3, 1 << 12, 1 << 40, ^uint64(0)}).Draw(t, "limit")
		keys := rapid.SliceOf(rapid.Uint64Range(0, limit)).Draw(t, "keys")
		want := make([]int32, len(keys))
		for i := range want {
			want[i] = int32(i)
		}
		slices.SortStableFunc(want, func(a, b int32) int { return cmp.Compare(keys[a], keys[b]) })
		require.Equal(t, want, append([]int32{}, o.By(keys)...)) // no keys have an empty order or none
	})
}

func TestOrderAllocatesNothingOnceWarm(t *testing.T) {
	var o radix.Order
	keys := make([]uint64, 1000)
	for i := range keys {
		keys[i] = uint64(i*7919%1000) << 20
	}
	o.By(keys)
	require.Zero(t, testing.AllocsPerRun(100, func() { o.By(keys) }))
}
