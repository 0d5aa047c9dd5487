package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/devicetest"
	"github.com/kvactor/kvactor/gpu/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, c sim.Config) *sim.Device {
	t.Helper()
	if c.MemoryBytes == 0 {
		c.MemoryBytes = 64 << 20
	}
	d, err := sim.New(c)
	require.NoError(t, err)
	return d
}

func TestConformance(t *testing.T) {
	for _, seed := range []int64{0, 1, 2} {
		devicetest.Run(t, func(t *testing.T) gpu.Device { return open(t, sim.Config{Seed: seed}) })
	}
	t.Run("no poison", func(t *testing.T) {
		devicetest.Run(t, func(t *testing.T) gpu.Device { return open(t, sim.Config{Poison: sim.PoisonOff}) })
	})
}

func TestOpenByName(t *testing.T) {
	d, err := gpu.Open("sim", gpu.Spec{Profile: "b200-pcie5"})
	require.NoError(t, err)
	require.Equal(t, gpu.Info{Name: "simulated b200-pcie5", Backend: "sim", Link: "b200-pcie5", Copies: "simulated", Completion: "simulated"}, d.Info())
	_, err = gpu.Open("sim", gpu.Spec{Profile: "abacus"})
	require.ErrorContains(t, err, "abacus")
	_, err = sim.New(sim.Config{MemoryBytes: 1, Measured: &sim.Profile{}})
	require.ErrorContains(t, err, "no name")
}
