package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/devicetest"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
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
		devicetest.Run(t,
			func(t *testing.T) gpu.Device { return open(t, sim.Config{Poison: sim.PoisonOff}) })
	})
}

// gpu.Spec names who is told of copies that have ended, as of an NVIDIA device; what else
// passes on a stream is not told.
func TestCopiesAreTold(t *testing.T) {
	var told []gpu.Transfer
	d, err := gpu.Open("sim", gpu.Spec{Trace: func(x gpu.Transfer) { told = append(told, x) }})
	require.NoError(t, err)
	pool, err := d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: 4096, DevicePages: 2, HostPages: 2})
	require.NoError(t, err)
	in, err := d.NewStream("in")
	require.NoError(t, err)
	copied, err := d.Submit(in, &gpu.Batch{Label: "pages", Copies: []gpu.Copy{{
		Src: gpu.Slot{Pool: pool, Tier: messages.Secondary}, Dst: gpu.Slot{Pool: pool}, Bytes: 4096,
	}}})
	require.NoError(t, err)
	require.NoError(t, d.Wait(in, copied))
	over, err := d.Fence(in)
	require.NoError(t, err)
	require.NoError(t, d.Sync(t.Context(), over))
	require.Len(t, told, 1)
	require.Positive(t, told[0].End-told[0].Start)
	told[0].Submit, told[0].Start, told[0].End = 0, 0, 0
	require.Equal(t, gpu.Transfer{Stream: "in", Label: "pages", Copies: 1, Bytes: 4096}, told[0])
	require.NoError(t, d.Close())
}

func TestOpenByName(t *testing.T) {
	d, err := gpu.Open("sim", gpu.Spec{Profile: "b200-pcie5"})
	require.NoError(t, err)
	require.Equal(t, gpu.Info{Name: "simulated b200-pcie5", Backend: "sim", Link: "b200-pcie5",
		Copies: "simulated", Completion: "simulated"}, d.Info())
	_, err = gpu.Open("sim", gpu.Spec{Profile: "abacus"})
	require.ErrorContains(t, err, "abacus")
	_, err = sim.New(sim.Config{MemoryBytes: 1, Measured: &sim.Profile{}})
	require.ErrorContains(t, err, "no name")
}
