package actors_test

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// tensorDevice is a simulated device that takes the host's tensors for what they are
// on a real one: it notes the specs, and keeps the bytes in memory of its own.
type tensorDevice struct {
	*sim.Device
	mu    sync.Mutex
	specs []gpu.PoolSpec
}

// CreatePool notes the spec.
func (d *tensorDevice) CreatePool(spec gpu.PoolSpec) (gpu.Pool, error) {
	d.mu.Lock()
	d.specs = append(d.specs, spec)
	d.mu.Unlock()
	spec.Tensors = nil
	return d.Device.CreatePool(spec)
}

// twoPools is a setup of a pool with a window and one of full attention; their pages
// have 64 bytes: four tokens, keys and values of four elements.
func twoPools() setup {
	return setup{windows: []int{8, full}, pages: []windows.PageCounts{{Primary: 6, Secondary: 2},
		{Primary: 8, Secondary: 4}}}
}

// tensorPools are a device that notes how pools are made, and an engine of two pools on it.
func tensorPools(t *testing.T) (*tensorDevice, actors.Config) {
	t.Helper()
	d, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	device := &tensorDevice{Device: d}
	s := twoPools()
	return device, s.config(device)
}

// The host's tensors reach the device as they are, its pools keep their pages, and all
// else is served.
func TestTensorsOfTheHost(t *testing.T) {
	system := newSystem()
	defer shutdown(system)
	device, config := tensorPools(t)
	tensors := []gpu.Tensor{{Address: 1 << 20, PageBytes: 40, Stride: 64},
		{Address: 2 << 20, PageBytes: 24, Stride: 24}}
	config.Memory = []actors.PoolMemory{{}, {Tensors: tensors}}

	_, err := actors.Spawn(system.Root, config, actors.WithAutoRebalance(10,
		func(messages.Rebalanced) {}))
	require.ErrorIs(t, err, messages.ErrConfigInvalid)
	assert.ErrorContains(t, err, "WithAutoRebalance: the device memory of pool wfullh1 is the host's")

	e, err := actors.Spawn(system.Root, config)
	require.NoError(t, err)
	require.Len(t, device.specs, 2)
	assert.Nil(t, device.specs[0].Tensors)
	assert.Greater(t, device.specs[0].MaxDevicePages, 6, "the engine's own memory may grow")
	assert.Equal(t, tensors, device.specs[1].Tensors)
	assert.Equal(t, 8, device.specs[1].MaxDevicePages)

	ctx := context.Background()
	for name, resize := range map[string]func() error{
		"resize":  func() error { _, err := e.Resize(ctx, []int{6, 9}); return err },
		"smaller": func() error { _, err := e.Resize(ctx, []int{6, 7}); return err },
		"fractions": func() error {
			_, err := e.Rebalance(ctx, map[string]float64{"w8h1": 0.5, "wfullh1": 0.5})
			return err
		},
	} {
		err := resize()
		require.ErrorIs(t, err, messages.ErrNotSupported, name)
		assert.ErrorContains(t, err, "pool wfullh1 has 8 pages of device memory that is the host's", name)
	}
	r, err := e.Resize(ctx, []int{9, 8})
	require.NoError(t, err, "the other pool is resized")
	assert.Equal(t, 9, r.Pools[0].PrimaryPages)
	_, err = e.Admit(ctx, messages.AdmitRequest{Tokens: run(0, 9)})
	require.NoError(t, err)
	require.NoError(t, e.Check(ctx))
	_, err = e.Close(ctx)
	require.NoError(t, err)
}

// Pools that other processes may map are made so, and move only when the host says so.
func TestSharedMemory(t *testing.T) {
	system := newSystem()
	defer shutdown(system)
	device, config := tensorPools(t)
	config.Memory = []actors.PoolMemory{{}, {Shared: true}}
	_, err := actors.Spawn(system.Root, config, actors.WithAutoRebalance(10,
		func(messages.Rebalanced) {}))
	require.ErrorIs(t, err, messages.ErrConfigInvalid)
	assert.ErrorContains(t, err, "WithAutoRebalance: other processes may have mapped pool wfullh1")

	e, err := actors.Spawn(system.Root, config)
	require.NoError(t, err)
	require.Len(t, device.specs, 2)
	assert.False(t, device.specs[0].Shared)
	assert.True(t, device.specs[1].Shared)
	ctx := context.Background()
	_, err = e.Resize(ctx, []int{6, 9})
	require.NoError(t, err, "the host may resize it")
	_, err = e.Close(ctx)
	require.NoError(t, err)
}

// What is offloaded lies in the host's memory, bit for bit, and comes back from there.
func TestHostMemoryOfTheHost(t *testing.T) {
	const secondary, page = 6, 64
	memory := make([]byte, secondary*page)
	s := setup{pages: []windows.PageCounts{{Primary: 4, Secondary: secondary}},
		memory: []actors.PoolMemory{{Host: memory}}}
	r := newRig(t, s)
	defer r.close()
	untouched := bytes.Clone(memory)
	r.store(run(0, 16))
	r.store(run(100, 16)) // evicts them
	r.verify()
	assert.NotEqual(t, untouched, memory)
	r.store(run(0, 16)) // brings three blocks back
	r.verify()
	stats, err := r.Stats(context.Background())
	require.NoError(t, err)
	assert.Positive(t, stats.Pools[0].Onboarded)
}

// Memory of a wrong shape is refused by the pool's name, before anything is taken.
func TestMemoryThatIsRefused(t *testing.T) {
	system := newSystem()
	defer shutdown(system)
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	page := int64(os.Getpagesize())
	for _, c := range []struct {
		name   string
		memory []actors.PoolMemory
		pages  []windows.PageCounts
		want   string
	}{
		{"without page counts", make([]actors.PoolMemory, 2), nil, "memory needs pages"},
		{"of too few pools", make([]actors.PoolMemory, 1), twoPools().pages,
			"memory for 1 pools, the model has 2"},
		{"of short pieces",
			[]actors.PoolMemory{{}, {Tensors: []gpu.Tensor{{Address: 1, PageBytes: 63, Stride: 64}}}},
			twoPools().pages,
			"memory of pool wfullh1: its tensors hold 63 bytes of each page, which has 64"},
		{"of the host, shared", []actors.PoolMemory{{Host: make([]byte, page), Shared: true}, {}},
			twoPools().pages,
			"memory of pool w8h1: shared, and the host's own"},
		{"of too few bytes", []actors.PoolMemory{{Host: make([]byte, 127)}, {Host: make([]byte, page)}},
			twoPools().pages,
			"memory of pool w8h1: 127 bytes of host memory for pages of 128 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := twoPools()
			config := s.config(device)
			config.Memory, config.Pages = c.memory, c.pages
			_, err := actors.Spawn(system.Root, config)
			require.ErrorIs(t, err, messages.ErrConfigInvalid)
			require.ErrorContains(t, err, c.want)
			free, err := device.Memory()
			require.NoError(t, err)
			assert.Equal(t, free.Total, free.Free)
		})
	}
}
