package actors_test

import (
	"context"
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// names lists the actors of a system below a name.
func names(system *actor.ActorSystem, below string) []string {
	var list []string
	for _, bucket := range system.ProcessRegistry.LocalPIDs.LocalPIDs {
		for _, id := range bucket.Keys() {
			if id == below || strings.HasPrefix(id, below+"/") {
				list = append(list, id)
			}
		}
	}
	return list
}

// The library's own mailboxes cost fifty times as much and lose requests.
func TestEveryActorHasOurMailbox(t *testing.T) {
	r := newRig(t,
		setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 8}, {Primary: 8}}},
		actors.WithName("engine"))
	defer r.close()
	list := names(r.system, "engine")
	assert.ElementsMatch(t, []string{
		"engine", "engine/coordinator", "engine/events", "engine/tree", "engine/offloader",
		"engine/pool:w8h1", "engine/pool:wfullh1",
	}, list)
	for _, id := range list {
		assert.NotNil(t, mailbox.Of(r.system, actor.NewPID(r.system.Address(), id)), id)
	}
	assert.Equal(t, "engine/coordinator", r.PID().Id)
}

// No actor is left, and of names only the one under which requests are sent back.
// Another engine may have the names.
func TestCloseLeavesNoActor(t *testing.T) {
	r := newRig(t, setup{}, actors.WithName("engine"))
	r.store(run(0, 9))
	s, err := r.start(run(0, 9))
	require.NoError(t, err)
	require.NoError(t, r.release(s))
	r.awaitKernels()
	_, err = r.Close(context.Background())
	require.NoError(t, err)
	list := names(r.system, "engine")
	assert.Equal(t, []string{"engine/coordinator"}, list)
	assert.Nil(t, mailbox.Of(r.system, actor.NewPID(r.system.Address(), list[0])))
	again, err := actors.Spawn(r.system.Root, (&setup{}).config(r.device), actors.WithName("engine"))
	require.NoError(t, err)
	_, err = again.Close(context.Background())
	require.NoError(t, err)
	r.ended()
}

// Two engines of one system do not disturb each other.
func TestTwoEnginesInOneSystem(t *testing.T) {
	system := newSystem()
	defer shutdown(system)
	a, b := newRig(t, setup{parent: system.Root}), newRig(t, setup{parent: system.Root})
	a.store(run(0, 9))
	found, err := b.Lookup(context.Background(), messages.Prefix{Tokens: run(0, 9)})
	require.NoError(t, err)
	assert.Zero(t, found.MatchedTokens)
	a.close()
	b.store(run(0, 9))
	b.close()
}

// A second engine of one name is refused, and gives the memory back.
func TestANameIsTakenOnce(t *testing.T) {
	r := newRig(t, setup{}, actors.WithName("engine"))
	defer r.close()
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	_, err = actors.Spawn(r.system.Root, (&setup{}).config(device), actors.WithName("engine"))
	require.ErrorContains(t, err, "engine")
	memory, err := device.Memory()
	require.NoError(t, err)
	assert.Equal(t, memory.Total, memory.Free)
	r.store(run(0, 9)) // the first one is as it was
}

func TestWhatSpawnRefuses(t *testing.T) {
	system := newSystem()
	defer shutdown(system)
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		change func(*actors.Config)
		want   string
	}{
		{"no device", func(c *actors.Config) { c.Device = nil }, "Config.Device is nil"},
		{"cache", func(c *actors.Config) { c.Cache.TokensPerBlock = 3 },
			"tokens_per_block 3 is not a power of two greater than 1"},
		{"pools", func(c *actors.Config) { c.Pages = make([]windows.PageCounts, 2) },
			"page counts for 2 pools, the model has 1"},
		{"pages", func(c *actors.Config) { c.Pages = []windows.PageCounts{{Primary: 0}} },
			"pool wfullh1: 0 primary"},
		{"memory", func(c *actors.Config) { c.Pages = []windows.PageCounts{{Primary: 1 << 20}} },
			"pool wfullh1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := (&setup{}).config(device)
			c.change(&config)
			_, err := actors.Spawn(system.Root, config)
			require.ErrorContains(t, err, c.want)
			memory, err := device.Memory()
			require.NoError(t, err)
			assert.Equal(t, memory.Total, memory.Free)
		})
	}
	_, err = actors.Spawn(system.Root, (&setup{}).config(device), actors.WithMaxInFlight(0))
	assert.ErrorContains(t, err, "WithMaxInFlight: 0 calls")
}

// Without page counts the free memory is split.
func TestPagesComeFromTheMemory(t *testing.T) {
	system := newSystem()
	defer shutdown(system)
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	config := (&setup{}).config(device)
	config.Pages, config.Cache.FreeGPUMemoryFraction, config.Cache.HostCacheSize = nil, 0.5, 1<<16
	e, err := actors.Spawn(system.Root, config)
	require.NoError(t, err)
	pageBytes := e.Pools()[0].PageBytes
	assert.EqualValues(t, 1<<19/pageBytes, e.Pools()[0].PrimaryPages)
	hostPages := int(1 << 16 / pageBytes)
	ahead := (hostPages - 1 + 8) / 9
	assert.Equal(t, hostPages-ahead, e.Pools()[0].SecondaryPages,
		"with those for copies ahead of demand 64 KiB")
	_, err = e.Close(context.Background())
	require.NoError(t, err)
}

// Copies that are still under way are waited for before the memory goes.
func TestCloseWaitsForTheCopiesUnderWay(t *testing.T) {
	r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 4, Secondary: 4}},
		change: func(c *windows.Config) { c.OffloadAhead = false }})
	r.store(run(0, 16))
	r.awaitKernels() // the kernels are the host's to wait for
	s, err := r.Admit(context.Background(), messages.AdmitRequest{Tokens: run(100, 16)})
	require.NoError(t, err)
	require.Positive(t, r.sim.Pending())
	leaked, err := r.Close(context.Background())
	require.NoError(t, err)
	assert.Equal(t, 4, leaked, "of sequence %v", s.Sequence)
	r.ended()
}

// Pools describes the pools as they are.
func TestPoolsFollowARebalance(t *testing.T) {
	r := newRig(t,
		setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 8}, {Primary: 8}}})
	defer r.close()
	moved, err := r.Rebalance(context.Background(), map[string]float64{"w8h1": 0.25, "wfullh1": 0.75})
	require.NoError(t, err)
	require.Equal(t, 4, moved.Pools[0].PrimaryPages)
	assert.Equal(t, moved.Pools, r.Pools())
	r.verify()
}

// What a host does to a description of the pools changes none that it gets later.
func TestDescriptionsBelongToTheHost(t *testing.T) {
	r := newRig(t,
		setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 8}, {Primary: 8}}})
	want := r.Pools()
	spoil := func(pools []messages.PoolInfo) {
		for i := range pools {
			pools[i].Layers[0] = -1
		}
	}
	spoil(r.Pools())
	assert.Equal(t, want, r.Pools())
	for range 2 {
		moved, err := r.Rebalance(context.Background(), nil)
		require.NoError(t, err)
		spoil(moved.Pools)
		spoil(r.Pools())
		assert.Equal(t, want[0].Layers, r.Pools()[0].Layers)
	}
	r.close()
}
