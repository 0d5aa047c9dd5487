package actors

import (
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/tree"
)

// countedRig is an events actor with a tree's actor. The test sends as the coordinator does.
type countedRig struct {
	*eventsRig
	tree    *treeActor
	box     *mailbox.Mailbox // of the tree's actor
	prompts messages.Token
}

func newCountedRig(t *testing.T) *countedRig {
	d, _ := newEventsRig(t, 16)
	r := &countedRig{eventsRig: d}
	system, worker := NewSystem(nil), mailbox.NewWorker()
	r.tree = &treeActor{core: tree.New(tree.Config{TokensPerBlock: 2, Pools: []tree.PoolShape{{}}, Events: true}), events: d.box}
	pid := system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return r.tree }, mailbox.Inline(worker)...))
	coordinator := system.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {}, mailbox.Inline(worker)...))
	r.tree.coordinator, r.box = mailbox.Of(system, coordinator), mailbox.Of(system, pid)
	d.shell.tree, d.readers = r.box, r.box
	t.Cleanup(func() {
		_ = system.Root.StopFuture(pid).Wait()
		_ = system.Root.StopFuture(coordinator).Wait()
		worker.Close()
		system.Shutdown()
	})
	return r
}

// store stores a prompt of one block: two changes, one event.
func (r *countedRig) store() {
	r.prompts++
	r.box.PostUserMessage(&protocol.Apply{Stores: []protocol.StoreItem{{
		Tokens: []messages.Token{r.prompts, r.prompts}, To: 2, Tables: [][]messages.PageID{{messages.PageID(r.prompts)}},
	}}})
}

// snapshot asks for one as the coordinator does, and follows it.
func (r *countedRig) snapshot(reader kvevents.ReaderID, mirror *events.Mirror) {
	list := &protocol.Snapshot{}
	r.box.PostUserMessage(list)
	read := &kvevents.ReadSnapshot{Reader: reader}
	r.readKeys(read, list.Keys)
	r.hash()
	require.NoError(r.t, read.Err)
	require.NoError(r.t, mirror.Follow(read.Batch))
}

// take takes the events of a reader.
func (r *countedRig) take(reader kvevents.ReaderID) kvevents.EventBatch {
	read := &kvevents.ReadEvents{Reader: reader}
	r.read(read)
	r.hash()
	require.NoError(r.t, read.Err)
	return read.Batch
}

// hash runs the tasks.
func (r *countedRig) hash() {
	for len(r.tasks) > 0 {
		next := r.tasks[0]
		r.tasks = r.tasks[1:]
		next()
	}
}

// leave makes the readers absent: the log has lost more events than they may miss. It knows by
// the next changes that it only counts, and the tree by the answer to these.
func (r *countedRig) leave() {
	r.events().PostUserMessage(&published{lost: 1 << 17})
	r.store()
}

func (r *countedRig) events() *mailbox.Mailbox { return r.eventsRig.box }

// While no reader reads, the tree counts. A reader that comes back is told how many events it
// has lost, takes a snapshot, and has every event from there on.
func TestTheTreeCountsForAbsentReaders(t *testing.T) {
	r, mirror := newCountedRig(t), events.NewMirror()
	r.store()
	require.NoError(t, mirror.Follow(r.take(events.FirstReader)))
	require.False(t, r.tree.core.CountsChanges())
	r.leave()
	require.True(t, r.tree.core.CountsChanges())
	for range 5 {
		r.store()
	}
	assert.EqualValues(t, 1+1<<17+1, r.shell.core.Next(), "nothing is sent before a reader asks")
	batch := r.take(events.FirstReader)
	assert.EqualValues(t, 1+1<<17+1+5, r.shell.core.Next())
	assert.EqualValues(t, 1<<17+1+5, batch.Lost)
	require.ErrorIs(t, mirror.Follow(batch), events.ErrStale)
	require.True(t, r.tree.core.CountsChanges(), "a reader without a snapshot can use no event")

	r.snapshot(events.FirstReader, mirror)
	require.False(t, r.tree.core.CountsChanges())
	assert.Equal(t, 7, mirror.Len())
	r.store()
	require.NoError(t, mirror.Follow(r.take(events.FirstReader)))
	assert.Equal(t, 8, mirror.Len())
	r.leave()
	r.store()
	require.True(t, r.tree.core.CountsChanges(), "it has left again")
	r.snapshot(events.FirstReader, mirror)
	assert.Equal(t, 10, mirror.Len())
}

// A reader that is opened while the tree counts has lost what happens until its snapshot.
func TestAReaderIsOpenedWhileTheTreeCounts(t *testing.T) {
	r := newCountedRig(t)
	r.leave()
	open, mirror := &kvevents.OpenReader{}, events.NewMirror()
	r.read(open)
	require.NoError(t, open.Err)
	r.store()
	assert.EqualValues(t, 1, r.take(open.Reader).Lost)
	r.snapshot(open.Reader, mirror)
	assert.Equal(t, 2, mirror.Len())
	r.store()
	require.NoError(t, mirror.Follow(r.take(open.Reader)))
	assert.Equal(t, 3, mirror.Len())
	assert.NotZero(t, r.take(events.FirstReader).Lost)
}

// A log that has failed knows no block: the tree counts until a snapshot, and so it does when the
// snapshot was refused.
func TestTheTreeCountsForALogThatHasFailed(t *testing.T) {
	r, mirror := newCountedRig(t), events.NewMirror()
	r.publishWrong()
	r.take(events.FirstReader) // applies it, and fails
	r.store()
	require.True(t, r.tree.core.CountsChanges())
	list := &protocol.Snapshot{}
	r.box.PostUserMessage(list)
	require.False(t, r.tree.core.CountsChanges())
	refused := &kvevents.ReadSnapshot{Reader: 9}
	r.readKeys(refused, list.Keys)
	require.ErrorIs(t, refused.Err, messages.ErrBadRequest)
	r.store()
	require.True(t, r.tree.core.CountsChanges())
	r.snapshot(events.FirstReader, mirror)
	r.store()
	require.NoError(t, mirror.Follow(r.take(events.FirstReader)))
	assert.Equal(t, 3, mirror.Len())
}

// A snapshot goes on at the number of all events before it, though the tree has sent none of their
// numbers before the snapshot was asked for, and the tree lists behind it.
func TestASnapshotOfATreeThatCounts(t *testing.T) {
	r, mirror := newCountedRig(t), events.NewMirror()
	r.leave()
	for range 5 {
		r.store()
	}
	require.EqualValues(t, 1<<17+1, r.shell.core.Next())
	r.snapshot(events.FirstReader, mirror)
	assert.EqualValues(t, 1<<17+1+5, r.shell.core.Next())
	require.False(t, r.tree.core.CountsChanges())
	r.store()
	batch := r.take(events.FirstReader)
	assert.Zero(t, batch.Lost)
	require.Len(t, batch.Events, 1)
	assert.EqualValues(t, 1<<17+1+5, batch.Events[0].ID)
	require.NoError(t, mirror.Follow(batch))
	assert.Equal(t, 7, mirror.Len())
}

// The numbers of what a broken tree has counted are not lost with it; the gap comes behind them.
func TestATreeThatCountsIsEmptied(t *testing.T) {
	r := newCountedRig(t)
	r.tree.renew = func() *tree.Tree {
		return tree.New(tree.Config{TokensPerBlock: 2, Pools: []tree.PoolShape{{}}, Events: true})
	}
	r.leave()
	for range 5 {
		r.store()
	}
	r.tree.changing = true // as after a panic
	assert.EqualValues(t, 1<<17+1+5, r.take(events.FirstReader).Lost, "readers are served by a broken tree")
	r.box.PostUserMessage(&protocol.ListLocations{EmptyTree: true})
	assert.EqualValues(t, 1, r.take(events.FirstReader).Lost)
	r.store()
	r.store()
	require.True(t, r.tree.core.CountsChanges())
	r.tree.changing = true
	r.box.PostUserMessage(&protocol.ListLocations{EmptyTree: true})
	r.store()
	assert.EqualValues(t, 2+1+1, r.take(events.FirstReader).Lost)
}

// The answer to changes from before a snapshot comes late: the tree lists on. So it does for a
// store that follows its changes.
func TestTheTreeListsOn(t *testing.T) {
	r := newCountedRig(t)
	before := &published{changes: &protocol.Changes{}, counted: true, snapshots: r.tree.snapshots}
	r.box.PostUserMessage(&protocol.Snapshot{})
	r.box.PostUserMessage(before)
	require.False(t, r.tree.core.CountsChanges())
	r.tree.follows = true
	r.box.PostUserMessage(&published{changes: &protocol.Changes{}, counted: true, snapshots: r.tree.snapshots})
	require.False(t, r.tree.core.CountsChanges())
	r.tree.follows = false
	r.box.PostUserMessage(&published{changes: &protocol.Changes{}, counted: true, snapshots: r.tree.snapshots})
	require.True(t, r.tree.core.CountsChanges())
}
