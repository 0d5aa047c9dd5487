package actors_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// A mirror of an engine with a store is exact after every call: it has no block that only
// the store has, and each block that a fetch has brought, in host memory.
func TestAMirrorOfAnEngineWithAStore(t *testing.T) {
	var memory stores.Memory
	r := newRig(t, setup{
		windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 10, Secondary: 4},
			{Primary: 12, Secondary: 6}},
		change: func(c *windows.Config) { c.EventBufferMaxSize = 1000 },
	}, withStore(&memory, actors.SaveOnCommit))
	ctx, mirror := context.Background(), events.NewMirror()
	exact := func() {
		t.Helper()
		batch, err := r.Events(ctx)
		require.NoError(t, err)
		require.NoError(t, mirror.Follow(batch))
		snapshot, err := r.Snapshot(ctx)
		require.NoError(t, err)
		require.NoError(t, mirror.Compare(snapshot))
	}
	exact()
	r.store(run(0, 21))
	require.Equal(t, 10, flushed(t, r))
	exact()
	require.Positive(t, mirror.Len())

	require.NoError(t, r.Reset(ctx))
	exact()
	require.Zero(t, mirror.Len(), "what only the store has is in no mirror")
	require.Equal(t, 5, fetched(t, r, run(0, 21)).Blocks)
	exact()
	require.Equal(t, 7, mirror.Len(), "five blocks of full attention, two of the window")
	for _, entry := range mirror.All() {
		assert.Equal(t, messages.Secondary, entry.Tier)
	}

	random := rand.New(rand.NewPCG(3, 4))
	for range 150 {
		tokens := run(100*random.IntN(6), 5+random.IntN(30))
		switch random.IntN(3) {
		case 0:
			fetched(t, r, tokens)
		case 1:
			flushed(t, r)
		default:
			s, err := r.start(tokens)
			require.NoError(t, err)
			require.NoError(t, r.release(s))
		}
		exact()
	}
	stats := actors.StoreOf(r.Engine).Stats()
	assert.Greater(t, stats.FetchedObjects, int64(20))
	assert.Zero(t, stats.Errors)
	r.verify()
	r.close()
}
