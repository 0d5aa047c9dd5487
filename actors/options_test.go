package actors_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// Spawn answers what it cannot make an engine of, and takes nothing.
func TestSpawnRefusesWrongOptions(t *testing.T) {
	for _, x := range []struct {
		option actors.Option
		want   string
	}{
		{nil, "option 2 of 2 is nil"},
		{actors.WithLogger(nil), "WithLogger: no logger"},
		{actors.WithMaxInFlight(0), "WithMaxInFlight: 0 calls, want at least 1"},
		{actors.WithClock(nil), "WithClock: no clock"},
		{enginetest.WithScheduler(nil), "WithScheduler: no scheduler"},
		{enginetest.WithoutWait("nonsense"), `WithoutWait: no wait "nonsense": there are `},
		{actors.WithRestartLimit(-1, time.Second),
			"WithRestartLimit: -1 failures within 1s, want at least 0"},
		{actors.WithAutoRebalance(-1, func(messages.Rebalanced) {}),
			"WithAutoRebalance: every -1 rounds, want at least 1"},
		{actors.WithAutoRebalance(5, nil), "WithAutoRebalance: no function to tell of moved pages"},
		{actors.WithWaitingRoom(-1), "WithWaitingRoom: -1 calls are not in 0 … 4095"},
	} {
		t.Run(x.want, func(t *testing.T) {
			device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
			require.NoError(t, err)
			system := newSystem()
			defer shutdown(system)
			spawned := make(chan error, 1)
			go func() {
				_, err := actors.Spawn(system.Root, (&setup{}).config(device), actors.WithBusyRefusal(),
					x.option)
				spawned <- err
			}()
			select {
			case err = <-spawned:
			case <-time.After(10 * time.Second):
				t.Fatal("Spawn does not return")
			}
			require.ErrorIs(t, err, messages.ErrConfigInvalid)
			assert.ErrorContains(t, err, x.want)
			memory, err := device.Memory()
			require.NoError(t, err)
			assert.Equal(t, memory.Total, memory.Free)
		})
	}
}

// Without a parent there is no one to spawn it.
func TestSpawnNeedsAParent(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	s := setup{pages: []windows.PageCounts{{Primary: 4}}}
	_, err = actors.Spawn(nil, s.config(device))
	require.ErrorIs(t, err, messages.ErrConfigInvalid)
	assert.EqualError(t, err, "no parent: the root context of an actor system, or an actor's")
}

// An engine that no one has spawned serves nothing, and keeps no one waiting.
func TestTheZeroEngineRefuses(t *testing.T) {
	var e actors.Engine
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := e.Stats(ctx)
	require.ErrorIs(t, err, messages.ErrClosed)
	assert.EqualError(t, err, "an engine that does not come from Spawn")
	require.ErrorIs(t, e.Submit(&inspect.ReadStats{}, func(error) {}), messages.ErrClosed)
}

// Calls are told with their answers, by Do and by Submit, also those that are refused.
func TestCallsAreObserved(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	system := newSystem()
	defer shutdown(system)
	type told struct {
		request any
		err     error
	}
	calls := make(chan told, 10)
	before := time.Now()
	observe := func(_ context.Context, request messages.Request, began time.Time, err error) {
		assert.False(t, began.Before(before))
		calls <- told{request, err}
	}
	e, err := actors.Spawn(system.Root, (&setup{}).config(device), actors.WithCallObserver(observe))
	require.NoError(t, err)
	stats, lookup := &inspect.ReadStats{}, &messages.Lookup{}
	require.NoError(t, e.Do(t.Context(), stats))
	assert.Equal(t, told{stats, nil}, <-calls)
	require.NoError(t, e.Submit(lookup, func(error) {}))
	assert.Equal(t, told{lookup, nil}, <-calls)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, e.Do(ctx, stats))
	assert.Equal(t, told{stats, context.Canceled}, <-calls)
	_, err = e.Close(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, e.Do(t.Context(), stats), messages.ErrClosed)
	assert.ErrorIs(t, (<-calls).err, messages.ErrClosed)
}
