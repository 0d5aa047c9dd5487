package coordinator_test

import (
	"math"
	"slices"
	gotesting "testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/internal/direct"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/pool"
	"github.com/kvactor/kvactor/tree"
	"github.com/kvactor/kvactor/windows"
)

// scaled is a coordinator that keeps the scales of layers 1 and 3, and of the
// cross attention of layer 1.
func scaled() *direct.Engine {
	pools := []windows.Pool{
		{Name: "a", DType: windows.FP8, Layers: []int{3}, TokensPerBlock: tpb},
		{Name: "b", DType: windows.Float16, Layers: []int{0, 2}, TokensPerBlock: tpb},
		{Name: "c", DType: windows.Int8, Layers: []int{1}, TokensPerBlock: tpb},
	}
	return keeping(pools, append(coordinator.Scaled(pools),
		messages.LayerScale{Layer: 1, Cross: true, K: 1, V: 1}))
}

// keeping is a coordinator with scales, over cores with a page in each pool.
func keeping(pools []windows.Pool, scales []messages.LayerScale) *direct.Engine {
	cores := direct.Cores{Tree: tree.New(tree.Config{TokensPerBlock: tpb,
		Pools: make([]tree.PoolShape, len(pools))})}
	var host offloader.Config
	for _, p := range pools {
		cores.Pools = append(cores.Pools, pool.New(p.Name, 1))
		host.Pools = append(host.Pools, offloader.PoolConfig{Name: p.Name,
			PageBytes: 2 * tpb, Regions: []windows.Region{{Runs: 2, TokenBytes: 1}}, TokensPerBlock: tpb})
	}
	cores.Offloader = offloader.New(host)
	counts := slices.Repeat([]windows.PageCounts{{Primary: 1}}, len(pools))
	return direct.New(coordinator.Config{Pools: pools, Counts: counts, Scales: scales}, cores)
}

func scalesOf(e *direct.Engine) []messages.LayerScale {
	r := &messages.ReadScales{}
	e.Do(r)
	return r.Scales
}

func TestScales(t *gotesting.T) {
	e := scaled()
	before := []messages.LayerScale{{Layer: 1, K: 1, V: 1}, {Layer: 3, K: 1, V: 1},
		{Layer: 1, Cross: true, K: 1, V: 1}}
	assert.Equal(t, before, scalesOf(e))
	for _, c := range []struct {
		scales []messages.LayerScale
		want   messages.Code
		text   string
	}{
		{[]messages.LayerScale{{Layer: 0, K: 1, V: 1}}, messages.ErrNotSupported,
			"layer 0 has no elements of 8 bits, so it has no scales"},
		{[]messages.LayerScale{{Layer: 9, K: 1, V: 1}}, messages.ErrNotSupported,
			"layer 9 has no elements of 8 bits, so it has no scales"},
		{[]messages.LayerScale{{Layer: 3, Cross: true, K: 1, V: 1}}, messages.ErrNotSupported,
			"the cross attention of layer 3 has no elements of 8 bits, so it has no scales"},
		{[]messages.LayerScale{{Layer: 1, K: 2, V: 2}, {Layer: 1, K: 3, V: 3}}, messages.ErrBadRequest,
			"layer 1 is given twice"},
		{[]messages.LayerScale{{Layer: 1, K: 2, V: 0}}, messages.ErrBadRequest,
			"scales 2 and 0 of layer 1 are not finite and greater than 0"},
		{[]messages.LayerScale{{Layer: 1, K: -1, V: 1}}, messages.ErrBadRequest,
			"scales -1 and 1 of layer 1 are not finite and greater than 0"},
		{[]messages.LayerScale{{Layer: 1, K: float32(math.NaN()), V: 1}}, messages.ErrBadRequest,
			"scales NaN and 1 of layer 1 are not finite and greater than 0"},
		{[]messages.LayerScale{{Layer: 1, K: 1, V: float32(math.Inf(1))}}, messages.ErrBadRequest,
			"scales 1 and +Inf of layer 1 are not finite and greater than 0"},
	} {
		// A right one before it is not set either.
		w := &messages.WriteScales{Scales: append([]messages.LayerScale{{Layer: 3, K: 7, V: 7}},
			c.scales...)}
		e.Do(w)
		require.ErrorIs(t, w.Err, c.want)
		assert.EqualError(t, w.Err, c.text)
		assert.Equal(t, before, scalesOf(e))
	}
	w := &messages.WriteScales{Scales: []messages.LayerScale{{Layer: 3, K: 0.25, V: 8},
		{Layer: 1, Cross: true, K: math.SmallestNonzeroFloat32, V: math.MaxFloat32}}}
	e.Do(w)
	require.NoError(t, w.Err)
	after := []messages.LayerScale{before[0], w.Scales[0], w.Scales[1]}
	assert.Equal(t, after, scalesOf(e))
	scalesOf(e)[0].K = 5
	assert.Equal(t, after, scalesOf(e), "a host gets a copy")
	e.Do(&messages.WriteScales{})
	assert.Equal(t, after, scalesOf(e))
}

// Engines do not share what they started with.
func TestScalesAreTheEnginesOwn(t *gotesting.T) {
	pools := []windows.Pool{{Name: "a", DType: windows.FP8, Layers: []int{0}, TokensPerBlock: tpb}}
	scales := []messages.LayerScale{{K: 1, V: 1}}
	a, b := keeping(pools, scales), keeping(pools, scales)
	a.Do(&messages.WriteScales{Scales: []messages.LayerScale{{K: 2, V: 2}}})
	assert.Equal(t, []messages.LayerScale{{K: 1, V: 1}}, scalesOf(b))
}
