package actors_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// follower follows the events of one reader.
type follower struct {
	*rig
	reader kvevents.ReaderID
	mirror *events.Mirror
}

// follow reads what has happened: all of it, or a snapshot if something was lost.
func (f *follower) follow() (lost uint64) {
	f.t.Helper()
	ctx := context.Background()
	batch, err := f.EventsOf(ctx, f.reader)
	require.NoError(f.t, err)
	if err := f.mirror.Follow(batch); err != nil {
		require.ErrorIs(f.t, err, events.ErrStale)
		f.again()
	}
	now, err := f.SnapshotOf(ctx, f.reader)
	require.NoError(f.t, err)
	require.NoError(f.t, f.mirror.Compare(now))
	return batch.Lost
}

// again takes a snapshot.
func (f *follower) again() {
	f.t.Helper()
	batch, err := f.SnapshotOf(context.Background(), f.reader)
	require.NoError(f.t, err)
	require.NoError(f.t, f.mirror.Follow(batch))
}

// Readers come back to an engine whose log has failed and whose tree only counts events since,
// whatever else fails in the meantime: one that has left, one that stayed, and one that is new.
func TestReadersReturnToCountedEvents(t *testing.T) {
	ctx := context.Background()
	for _, failing := range []string{"", "coordinator", "tree", "tree within", "events",
		"pool:wfullh1"} {
		t.Run("failing "+failing, func(t *testing.T) {
			r := newRig(t, setup{
				pages:  []windows.PageCounts{{Primary: 24}},
				change: func(c *windows.Config) { c.EventBufferMaxSize = 1 << 10 },
			})
			open := func() *follower {
				id, err := r.OpenReader(ctx)
				require.NoError(t, err)
				return &follower{r, id, events.NewMirror()}
			}
			stays, leaves := &follower{r, events.FirstReader, events.NewMirror()}, open()
			r.store(run(0, 16))
			assert.Zero(t, stays.follow())
			leaves.again()
			require.NoError(t, r.CloseReader(ctx, leaves.reader))

			require.NoError(t, r.points.Arm("events"))
			for i := range 4 {
				r.store(run(100*i, 12))
			}
			_, err := r.EventsOf(ctx, leaves.reader)
			require.Error(t, err)
			switch failing {
			case "":
			case "tree within":
				require.NoError(t, r.points.ArmWithin("tree", 0))
			default:
				require.NoError(t, r.points.Arm(failing))
			}
			for i := range 8 {
				r.store(run(200*i, 20))
			}
			fresh, returned := open(), open()
			r.store(run(5000, 8))
			assert.NotZero(t, fresh.follow())
			returned.again()
			r.store(run(6000, 8))
			assert.Zero(t, fresh.follow(), "the snapshot was the last that was lost")
			assert.Zero(t, returned.follow())
			assert.NotZero(t, stays.follow())
			r.store(run(7000, 8))
			for _, f := range []*follower{stays, fresh, returned} {
				assert.Zero(t, f.follow())
				assert.NotZero(t, f.mirror.Len())
			}
			r.verify()
			r.close()
		})
	}
}
