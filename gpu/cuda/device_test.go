//go:build linux && (amd64 || arm64)

package cuda

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/devicetest"
)

// TestDevice runs on machines that have a driver, or the imitation of ctest: the
// conformance suite, also under the checker, what a device must do beside a host
// that uses the same driver, the bandwidth of the link as JSON. If KVACTOR_PROFILE
// names a file, the profile of the link goes there, for sim.ReadProfile.
//
//	CGO_ENABLED=0 go test -c -o cuda.test ./gpu/cuda
//	KVACTOR_PROFILE=profile.json ./cuda.test -test.v -test.run TestDevice
//
// KVACTOR_KERNEL_BELOW is Options.KernelBelow. KVACTOR_BUDGET bounds the bytes of a measured batch.
// With KVACTOR_DRIVER set to anything a machine without a driver is a failure.
func TestDevice(t *testing.T) {
	needDriver(t)
	devicetest.Run(t, openDevice)
	t.Run("checked", func(t *testing.T) {
		devicetest.Run(t, func(t *testing.T) gpu.Device {
			c := check.Wrap(openDevice(t), check.Options{})
			t.Cleanup(func() { assert.Empty(t, c.Problems()) })
			return c
		})
	})
	t.Run("host", func(t *testing.T) {
		for _, c := range hostCases {
			t.Run(c.name, func(t *testing.T) {
				d := openDriver(t)
				c.run(t, newHost(t, d))
				require.NoError(t, d.Close())
			})
		}
	})
	t.Run("batches are taken", batchesAreTaken)
	t.Run("copies are measured", copiesAreMeasured)
	onDevice := func(name string, f func(*testing.T, *Device)) {
		t.Run(name, func(t *testing.T) {
			d := openDriver(t)
			f(t, d)
			require.NoError(t, d.Close())
		})
	}
	t.Run("small pieces beside large ones", func(t *testing.T) {
		for _, o := range []Options{{}, {KernelBelow: 64 << 10}, {NoKernel: true}} {
			d, err := Open(o)
			require.NoError(t, err)
			kernelBeside(t, d.(*Device))
			require.NoError(t, d.Close())
		}
	})
	onDevice("runs over chunks", overChunks)
	t.Run("bytes before counters", func(t *testing.T) {
		for _, o := range []Options{{}, {KernelBelow: 64 << 10}} {
			d, err := Open(o)
			require.NoError(t, err)
			bytesBeforeCounters(t, d.(*Device))
			require.NoError(t, d.Close())
		}
	})
	onDevice("times of pools", func(t *testing.T, d *Device) { timesOfPools(t, d, budget(t)) })
	t.Run("times of batches", timesOfBatches)
	t.Run("engine beside simulation", engineAndSimulation)
	onDevice("profile",
		func(t *testing.T, d *Device) { measure(t, d, budget(t), os.Getenv("KVACTOR_PROFILE")) })
}

func needDriver(t *testing.T) {
	t.Helper()
	d, err := Open(Options{})
	if err == nil {
		require.NoError(t, d.Close())
		return
	}
	require.ErrorIs(t, err, gpu.ErrNoDriver)
	require.Empty(t, os.Getenv("KVACTOR_DRIVER"), "%v", err)
	t.Skip(err)
}

func openDriver(t *testing.T) *Device {
	t.Helper()
	o := Options{}
	if below := os.Getenv("KVACTOR_KERNEL_BELOW"); below != "" {
		var err error
		o.KernelBelow, err = strconv.ParseInt(below, 10, 64)
		require.NoError(t, err)
	}
	d, err := Open(o)
	require.NoError(t, err)
	return d.(*Device)
}

// openDevice opens a device of the driver. The imitation fails copies on demand.
func openDevice(t *testing.T) gpu.Device {
	d := openDriver(t)
	lib, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_LOCAL)
	require.NoError(t, err)
	fail, err := purego.Dlsym(lib, "kvactor_imitation_fail_copies")
	if err != nil {
		return d
	}
	return imitation{d, fail}
}

// imitation is a device on the imitation of ctest.
type imitation struct {
	*Device
	fail uintptr
}

// Fail makes the next n copies of a direction fail.
func (i imitation) Fail(way gpu.Direction, n int) {
	purego.SyscallN(i.fail, uintptr(way), uintptr(n))
}

// batchesAreTaken: a driver that has the batch call takes it as this package
// makes it; a wrong form of it is refused and would only cost speed.
func batchesAreTaken(t *testing.T) {
	d := openDriver(t)
	defer func() { require.NoError(t, d.Close()) }()
	if !d.driver.has(fnMemcpyBatchAsync) {
		t.Skip("the driver is older than 12.8")
	}
	h := &host{t: t, d: d}
	r := h.rig(t)
	for range 2 * maxRefusals {
		require.NoError(t, d.Sync(context.Background(), r.submit(r.a, r.onboard(1, 3, 5))))
		require.Zero(t, d.copies.batches.refusals)
	}
	assert.Equal(t, "batch", d.Info().Copies)
	if d.driver.has(fnLaunchKernel) {
		assert.Equal(t, "kernel", d.Info().Local, "the driver takes the kernel's text")
	}
	t.Log(d.Info())
}

// copiesAreMeasured: the device tells of each batch with times that follow each other, and
// which add up to no more than the time that has passed.
func copiesAreMeasured(t *testing.T) {
	var told []gpu.Transfer
	began := time.Now()
	opened, err := gpu.Open("cuda", gpu.Spec{Trace: func(x gpu.Transfer) { told = append(told, x) }})
	require.NoError(t, err)
	d := opened.(*Device)
	r := (&host{t: t, d: d}).rig(t)
	for range 20 {
		require.NoError(t, d.Sync(context.Background(), r.submit(r.a, r.onboard(1, 3, 5))))
	}
	require.NoError(t, d.Close())
	passed := time.Since(began)
	require.Len(t, told, 20)
	at, busy := time.Duration(0), time.Duration(0)
	for _, x := range told {
		assert.GreaterOrEqual(t, x.Start, at-time.Microsecond, "after the one before it")
		assert.Greater(t, x.End, x.Start)
		assert.Equal(t, 3, x.Copies)
		at, busy = x.End, busy+x.End-x.Start
	}
	assert.LessOrEqual(t, max(at, busy), passed)
}

// budget is the bytes of a measured batch.
func budget(t *testing.T) int64 {
	text := os.Getenv("KVACTOR_BUDGET")
	if text == "" {
		return 1 << 30
	}
	bytes, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return bytes
}
