//go:build linux && (amd64 || arm64)

package cuda

import (
	"context"
	"maps"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

func TestPoolFailuresLeaveNothing(t *testing.T) {
	for _, at := range []fn{fnMemGetAllocationGranularity, fnMemAddressReserve, fnMemCreate, fnMemMap,
		fnMemSetAccess, fnMemsetD8Async, fnMemHostRegister} {
		d, k := openFake(t)
		k.fail[at] = invalidValue
		_, err := d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: 4096, DevicePages: 16, HostPages: 16})
		require.ErrorContains(t, err, at.String())
		require.ErrorContains(t, err, "pool kv")
		assert.Zero(t, k.used)
		assert.Empty(t, k.reserved)
		assert.Empty(t, k.mapped)
		delete(k.fail, at)
		require.NoError(t, d.Close())
	}
}

func TestPoolsGrowAndShrinkByChunks(t *testing.T) {
	d, k := openFake(t)
	const page = 4 << 20
	p, err := d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: page, DevicePages: 1,
		MaxDevicePages: 15})
	require.NoError(t, err)
	assert.EqualValues(t, 32<<20, k.used)
	require.NoError(t, d.Resize(p, 8))
	assert.EqualValues(t, 32<<20, k.used, "it fits")
	require.NoError(t, d.Resize(p, 9))
	assert.EqualValues(t, 64<<20, k.used)
	_, err = d.CreatePool(gpu.PoolSpec{Name: "other", PageBytes: page, DevicePages: 1})
	assert.ErrorIs(t, err, gpu.ErrOutOfMemory)
	require.NoError(t, d.Resize(p, 3))
	free, err := d.Memory()
	require.NoError(t, err)
	assert.EqualValues(t, 32<<20, k.used)
	assert.EqualValues(t, 32<<20, free.Free)
	require.NoError(t, d.Resize(p, 0))
	_, err = d.Memory()
	require.NoError(t, err)
	assert.Zero(t, k.used)
	assert.Positive(t, k.calls[fnStreamSynchronize], "it waits before it takes memory away")
}

// Pools exchange chunks, and no other program gets them in between; chunks that
// no pool can use are returned to the driver when memory is short.
func TestPoolsExchangeChunks(t *testing.T) {
	d, k := openFake(t)
	const page = 4 << 20
	a, err := d.CreatePool(gpu.PoolSpec{Name: "a", PageBytes: page, DevicePages: 8,
		MaxDevicePages: 16})
	require.NoError(t, err)
	b, err := d.CreatePool(gpu.PoolSpec{Name: "b", PageBytes: page, DevicePages: 8,
		MaxDevicePages: 16})
	require.NoError(t, err)
	made, held := k.calls[fnMemCreate], maps.Clone(k.chunks)
	require.NoError(t, d.Resize(a, 0))
	k.budget = k.used // another process takes all that there is
	require.NoError(t, d.Resize(b, 16))
	assert.Equal(t, made, k.calls[fnMemCreate])
	assert.Equal(t, held, k.chunks)
	require.NoError(t, d.Resize(b, 8))
	// has chunks of its own size
	_, err = d.CreatePool(gpu.PoolSpec{Name: "small", PageBytes: 1 << 20, DevicePages: 16})
	require.NoError(t, err)
	assert.EqualValues(t, 48<<20, k.used)
}

// A device that gives no memory to others says so, and programs that the host starts
// inherit no file of an export.
func TestSharedPools(t *testing.T) {
	d, k := openFake(t)
	p, err := d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: 4096, HostPages: 2, MaxDevicePages: 1,
		Shared: true})
	require.NoError(t, err)
	e, err := d.Export(p)
	require.NoError(t, err)
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, e.Host.Fd(), syscall.F_GETFD, 0)
	require.Zero(t, errno)
	assert.EqualValues(t, syscall.FD_CLOEXEC, flags)
	require.NoError(t, e.Close())
	k.private = true
	_, err = d.CreatePool(gpu.PoolSpec{Name: "other", PageBytes: 4096, DevicePages: 1, Shared: true})
	require.ErrorIs(t, err, ErrNotShared)
	assert.ErrorContains(t, err, "pool other: device 0 (Fake 1000) gives no memory to other processes")
}

func TestNewPagesHoldPoison(t *testing.T) {
	r := newRig(t)
	assert.EqualValues(t, poisonNew, r.HostBytes(r.pool, 3)[17])
	out := &gpu.Batch{Copies: []gpu.Copy{{
		Src: gpu.Slot{Pool: r.pool, Page: 15}, Dst: gpu.Slot{Pool: r.pool, Tier: messages.Secondary},
		Bytes: 4096}}}
	r.HostBytes(r.pool, 0)[0] = 1
	require.NoError(t, r.Sync(context.Background(), r.submit(r.a, out)))
	assert.EqualValues(t, poisonNew, r.HostBytes(r.pool, 0)[0])
}

// A host's kernels find page p at Base + p pages, however the pool has changed.
func TestBaseStaysWhileThePoolGrows(t *testing.T) {
	d, _ := openFake(t)
	const page = 1 << 20
	p, err := d.CreatePool(gpu.PoolSpec{Name: "p", PageBytes: page, DevicePages: 2,
		MaxDevicePages: 64})
	require.NoError(t, err)
	base, err := d.Base(p)
	require.NoError(t, err)
	require.NoError(t, d.Resize(p, 64))
	grown, err := d.Base(p)
	require.NoError(t, err)
	assert.Equal(t, base, grown)
	assert.Equal(t, base+5*page, d.pools[p].extent(gpu.Slot{Pool: p, Page: 5}, 0).address)
	_, err = d.Base(p + 1)
	require.Error(t, err)
}
