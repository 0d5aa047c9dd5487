package devicetest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu/sim"
)

// A simulated device, measured on its own clock, yields the profile that it
// has, and a device of the measured profile measures the same.
func TestMeasureFindsTheProfile(t *testing.T) {
	open := func(c sim.Config) *sim.Device {
		c.MemoryBytes, c.Poison = 1<<30, sim.PoisonOff
		d, err := sim.New(c)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		return d
	}
	d := open(sim.Config{Profile: "h100-pcie5"})
	found, err := Measure(d, Measurement{Clock: d.Now, Budget: 16 << 20})
	require.NoError(t, err)
	two := map[string]int{}
	for _, r := range found.Rows {
		if r.InFlight == 2 {
			two[r.Direction]++
			assert.Positive(t, r.Share, "%s of %d bytes", r.Direction, r.Bytes)
		}
	}
	for _, direction := range directions {
		assert.Len(t, sizes, two[direction], "two batches in flight, %s", direction)
	}
	want, got := d.Profile(), found.Profile
	assert.InEpsilon(t, want.Offload.GBps, got.Offload.GBps, 0.1)
	assert.InEpsilon(t, want.Onboard.GBps, got.Onboard.GBps, 0.1)
	assert.InEpsilon(t, want.BothGBps, got.BothGBps, 0.1)
	assert.InEpsilon(t, want.HBMGBps, got.HBMGBps, 0.3)
	// What a descriptor costs; that the processor takes time, too, the clock does not show.
	assert.InEpsilon(t, want.Onboard.Small.Nanos+want.DescriptorNanos, got.Onboard.Small.Nanos, 0.1)
	assert.InEpsilon(t, want.Onboard.Large.Nanos+want.DescriptorNanos, got.Onboard.Large.Nanos, 0.1)
	assert.InEpsilon(t, want.Offload.Large.Nanos+want.DescriptorNanos, got.Offload.Large.Nanos, 0.1)
	assert.InEpsilon(t, want.Onboard.Small.GBps, got.Onboard.Small.GBps, 0.1)

	again := open(sim.Config{Measured: &found.Profile})
	second, err := Measure(again, Measurement{Clock: again.Now, Budget: 16 << 20})
	require.NoError(t, err)
	assert.InEpsilon(t, got.Onboard.GBps, second.Profile.Onboard.GBps, 0.1)
}
