package simgroup_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/devicetest"
	"github.com/kvactor/kvactor/gpu/group/simgroup"
	"github.com/kvactor/kvactor/gpu/sim"
)

func TestConformance(t *testing.T) {
	devicetest.Run(t, func(t *testing.T) gpu.Device {
		d, err := simgroup.New(simgroup.Config{Config: sim.Config{MemoryBytes: 1 << 24, Seed: 3},
			Ranks: 2, Profiles: []string{"h100-pcie5", "a100-pcie4"}})
		require.NoError(t, err)
		return d
	})
}

// Faults go to one rank after the other.
func TestFaultsGoRound(t *testing.T) {
	d, err := simgroup.New(simgroup.Config{Config: sim.Config{MemoryBytes: 1 << 20}, Ranks: 3})
	require.NoError(t, err)
	s, err := d.NewStream("s")
	require.NoError(t, err)
	for r := range 3 {
		require.NoError(t, d.Stall(s, time.Hour))
		ticket, err := d.Launch(s, gpu.Kernel{Nanos: 1000})
		require.NoError(t, err)
		d.Advance(time.Minute)
		assert.False(t, d.Done(ticket))
		for other := range 3 {
			part, err := d.Group().TicketOf(other, ticket)
			require.NoError(t, err)
			assert.Equal(t, other != r, d.Sim(other).Done(part), "round %d, rank %d", r, other)
		}
		assert.Equal(t, 1, d.Pending())
		assert.Equal(t, 1, simgroup.Sims(d)[r].Pending())
		d.Drain()
		assert.True(t, d.Done(ticket))
		assert.EqualValues(t, 3*(r+1), d.Counters().Kernels, "on every rank")
	}
	assert.GreaterOrEqual(t, d.Now(), time.Hour)
	assert.Error(t, d.Stall(s+9, time.Second))
	d.Lose()
	_, err = d.Launch(s, gpu.Kernel{})
	require.ErrorIs(t, err, gpu.ErrDeviceLost)
	require.NoError(t, d.Close())
	_, err = simgroup.New(simgroup.Config{Ranks: 2})
	require.Error(t, err, "no memory")
	_, err = simgroup.New(simgroup.Config{})
	require.Error(t, err, "no ranks")
}
