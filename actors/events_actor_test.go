package actors

import (
	"io"
	"log/slog"
	"testing"
	"time"

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

// eventsRig is an events actor whose naming is done when the test says so.
type eventsRig struct {
	t       *testing.T
	shell   *eventsActor
	box     *mailbox.Mailbox
	readers *mailbox.Mailbox // gets requests: box, or that of a tree's actor before it
	tasks   []func()
	answers []error // of the readers
	engine  *Engine
	block   protocol.BlockID // the last
}

// restarting makes an actor go on after a panic.
type restarting struct{ panics int }

func (s *restarting) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, _, _ any) {
	s.panics++
	supervisor.RestartChildren(child)
}

func newEventsRig(t *testing.T, limit int) (d *eventsRig, panics *int) {
	system := actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }),
		actor.WithDeadLetterThrottleInterval(time.Millisecond))
	worker, supervisor := mailbox.NewWorker(), &restarting{}
	d = &eventsRig{t: t, engine: &Engine{gate: gate{places: make(chan struct{}, 100)}}}
	d.shell = &eventsActor{core: events.New(events.Config{Limit: limit, Engine: "engine"}), background: &background{schedule: func(f func()) { d.tasks = append(d.tasks, f) }}}
	var child *actor.PID
	parent := system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if _, started := c.Message().(*actor.Started); started {
			child = c.Spawn(actor.PropsFromProducer(func() actor.Actor { return d.shell }, mailbox.Inline(worker)...))
		}
	}, append(mailbox.Inline(worker), actor.WithSupervisor(supervisor))...))
	d.box = mailbox.Of(system, child)
	d.shell.self, d.readers = d.box, d.box
	t.Cleanup(func() {
		_ = system.Root.StopFuture(parent).Wait()
		worker.Close()
		system.Shutdown()
	})
	return d, &supervisor.panics
}

// read sends a reader.
func (d *eventsRig) read(request any) { d.readKeys(request) }

// readKeys sends a reader of a snapshot with what the tree has listed for it.
func (d *eventsRig) readKeys(request any, keys ...*protocol.Changes) {
	require.NoError(d.t, d.engine.gate.try())
	c := &call{request: request, engine: d.engine, done: func(err error) { d.answers = append(d.answers, err) }}
	d.readers.PostUserMessage(&forward{request: request, sender: c, keys: keys, port: &port{}})
}

// publish tells of a block of two tokens that was stored.
func (d *eventsRig) publish() { d.publishPadded(0) }

// publishPadded is publish of a block with padding; it cannot be named if that is
// more than its tokens.
func (d *eventsRig) publishPadded(padding int32) {
	d.block++
	c := listed(d.block)
	c.List[0].Padding = padding
	d.box.PostUserMessage(&published{changes: c})
}

// listed are the changes that enter a block of two tokens and store it.
func listed(block protocol.BlockID) *protocol.Changes {
	return &protocol.Changes{
		List: []protocol.Change{
			{Kind: protocol.BlocksEntered, Last: block, Count: 1, Parent: protocol.NoBlock, Tokens: 2},
			{Kind: protocol.BlocksStored, Last: block, Count: 1},
		},
		Blocks: []protocol.BlockID{block}, Tokens: []messages.Token{1, messages.Token(block)}, Namespaces: make([]messages.Namespace, 1),
	}
}

// While a batch is being named the log goes on, and the next reader waits: its
// batch goes on where the first one ended.
func TestReadersAreServedOneAfterTheOther(t *testing.T) {
	d, _ := newEventsRig(t, 2)
	first, second, third := &kvevents.ReadEvents{}, &kvevents.ReadEvents{}, &kvevents.ReadSnapshot{}
	d.publish()
	d.read(first)
	d.read(second)
	require.Len(t, d.tasks, 1)
	d.publish()
	d.publish()
	d.publish()
	d.read(third)
	require.Len(t, d.tasks, 1)
	assert.Empty(t, d.answers)

	d.tasks[0]()
	require.Len(t, d.answers, 1)
	require.Len(t, d.tasks, 2, "the second reader is served")
	assert.Len(t, first.Batch.Events[0].Blocks, 1)
	d.tasks[1]()
	assert.Equal(t, []error{nil, nil, nil}, d.answers, "nothing to name for the third")
	assert.EqualValues(t, 1, second.Batch.Lost)
	require.Len(t, second.Batch.Events, 2)
	assert.EqualValues(t, 2, second.Batch.Events[0].ID)
	assert.True(t, third.Batch.Snapshot)
	assert.EqualValues(t, 4, third.Batch.Next)
}

// A snapshot that waits while the batch of another reader is named has the blocks and the
// events of the moment at which the tree listed them: what is published meanwhile comes behind it.
func TestASnapshotThatWaitsIsOfItsMoment(t *testing.T) {
	d, _ := newEventsRig(t, 16)
	d.publish()
	d.read(&kvevents.ReadEvents{})
	require.Len(t, d.tasks, 1)
	snapshot := &kvevents.ReadSnapshot{}
	d.readKeys(snapshot, listed(1))
	d.publish()
	mirror := events.NewMirror()
	after := &kvevents.ReadEvents{}
	d.read(after)
	for len(d.tasks) > 0 { // a task may add another one
		task := d.tasks[0]
		d.tasks = d.tasks[1:]
		task()
	}
	require.Equal(t, []error{nil, nil, nil}, d.answers)
	assert.EqualValues(t, 1, snapshot.Batch.Next)
	require.NoError(t, mirror.Follow(snapshot.Batch))
	assert.Equal(t, 1, mirror.Len())
	require.NoError(t, mirror.Follow(after.Batch))
	assert.Equal(t, 2, mirror.Len())
}

// Records of changes go back to the tree and are filled again.
func TestRecordsOfChangesGoBack(t *testing.T) {
	d, _ := newEventsRig(t, 4)
	core := tree.New(tree.Config{TokensPerBlock: 2, Pools: []tree.PoolShape{{}}, Events: true})
	system, worker := NewSystem(nil), mailbox.NewWorker()
	shell := &treeActor{core: core, events: d.box}
	pid := system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return shell }, mailbox.Inline(worker)...))
	t.Cleanup(func() {
		_ = system.Root.StopFuture(pid).Wait()
		worker.Close()
		system.Shutdown()
	})
	d.shell.tree = mailbox.Of(system, pid)
	records := map[*protocol.Changes]bool{}
	for i := range messages.Token(20) {
		core.Apply(&protocol.Apply{Stores: []protocol.StoreItem{{Tokens: []messages.Token{i, i}, To: 2, Tables: [][]messages.PageID{{messages.PageID(i)}}}}})
		c := core.TakeChanges()
		records[c] = true
		d.box.PostUserMessage(&published{changes: c})
	}
	assert.Len(t, records, 2)
	first := &kvevents.ReadEvents{}
	d.read(first)
	d.tasks[0]()
	assert.EqualValues(t, 16, first.Batch.Lost)
	assert.Equal(t, "engine", first.Batch.Engine)
	assert.Equal(t, []messages.Token{16, 16}, first.Batch.Events[0].Blocks[0].Tokens, "not those of the record")
}

// Readers are opened and closed while others wait for names.
func TestReadersComeAndGo(t *testing.T) {
	d, _ := newEventsRig(t, 4)
	d.publish()
	d.read(&kvevents.ReadEvents{})
	open := &kvevents.OpenReader{}
	d.read(open)
	require.NoError(t, open.Err)
	assert.Len(t, d.answers, 1, "it need not wait")
	d.publish()
	d.tasks[0]()
	second := &kvevents.ReadEvents{Reader: open.Reader}
	d.read(second)
	d.tasks[1]()
	require.Len(t, second.Batch.Events, 1)
	assert.EqualValues(t, 1, second.Batch.Events[0].ID, "events from when it was opened")
	closed := &kvevents.CloseReader{Reader: open.Reader}
	d.read(closed)
	require.NoError(t, closed.Err)
	d.read(second)
	assert.ErrorIs(t, second.Err, messages.ErrBadRequest)
	snapshot := &kvevents.ReadSnapshot{Reader: open.Reader}
	d.read(snapshot)
	assert.ErrorIs(t, snapshot.Err, messages.ErrBadRequest)
}

// Naming that panics costs its reader the batch; the actor fails for it, and
// the next reader is served.
func TestNamingThatPanics(t *testing.T) {
	d, panics := newEventsRig(t, 4)
	d.publishPadded(3)
	d.read(&kvevents.ReadEvents{})
	d.read(&kvevents.ReadEvents{})
	require.Len(t, d.tasks, 1)
	d.tasks[0]()
	assert.Equal(t, 1, *panics)
	require.Len(t, d.answers, 2)
	require.ErrorIs(t, d.answers[0], messages.ErrInternal)
	require.NoError(t, d.answers[1])
	d.publish()
	after := &kvevents.ReadEvents{}
	d.read(after)
	d.tasks[1]()
	require.Len(t, after.Batch.Events, 1)
	assert.EqualValues(t, 1, after.Batch.Events[0].ID)
	assert.Len(t, after.Batch.Events[0].Blocks, 1)
}

// Readers that wait when the actor stops are told so.
func TestReadersOfAStoppedLog(t *testing.T) {
	d, _ := newEventsRig(t, 4)
	d.publish()
	d.read(&kvevents.ReadEvents{})
	d.read(&kvevents.ReadEvents{})
	d.shell.stopped()
	require.Len(t, d.answers, 1)
	require.Error(t, d.answers[0])
	d.tasks[0]()
	assert.Len(t, d.answers, 2)
	assert.NoError(t, d.answers[1], "what was begun is ended")
}
