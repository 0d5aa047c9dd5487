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
)

// eventsRig is an events actor that runs on the goroutine of its test.
type eventsRig struct {
	t       *testing.T
	shell   *eventsActor
	box     *mailbox.Mailbox
	answers []error // of the readers
	engine  *Engine
	block   protocol.BlockID // the last
}

// restarting makes an actor go on after a panic.
type restarting struct{ panics int }

func (s *restarting) HandleFailure(
	_ *actor.ActorSystem, supervisor actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, _,
	_ any,
) {
	s.panics++
	supervisor.RestartChildren(child)
}

func newEventsRig(t *testing.T, limit int) (d *eventsRig, panics *int) {
	system := actor.NewActorSystem(
		actor.WithLoggerFactory(
			func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }),
		actor.WithDeadLetterThrottleInterval(time.Millisecond))
	worker, supervisor := mailbox.NewWorker(), &restarting{}
	d = &eventsRig{t: t, engine: &Engine{gate: gate{places: make(chan struct{}, 100)}}}
	d.shell = &eventsActor{core: events.New(events.Config{Limit: limit, Engine: "engine"})}
	var child *actor.PID
	parent := system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if _, started := c.Message().(*actor.Started); started {
			child = c.Spawn(actor.PropsFromProducer(func() actor.Actor { return d.shell },
				mailbox.Inline(worker)...))
		}
	}, append(mailbox.Inline(worker), actor.WithSupervisor(supervisor))...))
	d.box = mailbox.Of(system, child)
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
	c := &call{request: request, engine: d.engine,
		done: func(err error) { d.answers = append(d.answers, err) }}
	d.box.PostUserMessage(&forward{request: request, sender: c, keys: keys, port: &port{}})
}

// publish tells of a block of two tokens that was stored.
func (d *eventsRig) publish() {
	d.block++
	d.box.PostUserMessage(&published{changes: listed(d.block)})
}

// listed are the changes that enter a block of two tokens and store it.
func listed(block protocol.BlockID) *protocol.Changes {
	return &protocol.Changes{
		List: []protocol.Change{
			{Kind: protocol.BlocksEntered, Last: block, Count: 1, Parent: protocol.NoBlock, Tokens: 2},
			{Kind: protocol.BlocksStored, Last: block, Count: 1},
		},
		Blocks: []protocol.BlockID{block}, Tokens: []messages.Token{1, messages.Token(block)},
		Namespaces: make([]messages.Namespace, 1),
	}
}

// A reader that comes late has lost what the buffer had no room for, and a snapshot is of the
// moment at which the tree listed its blocks.
func TestReadersAreServedInTheirOrder(t *testing.T) {
	d, _ := newEventsRig(t, 2)
	first, second, third := &kvevents.ReadEvents{}, &kvevents.ReadEvents{}, &kvevents.ReadSnapshot{}
	d.publish()
	d.read(first)
	d.publish()
	d.publish()
	d.publish()
	d.read(second)
	d.readKeys(third, listed(1))
	d.publish()
	fourth := &kvevents.ReadEvents{}
	d.read(fourth)
	assert.Equal(t, []error{nil, nil, nil, nil}, d.answers)
	require.Len(t, first.Batch.Events, 1)
	assert.Len(t, first.Batch.Events[0].Blocks, 1)
	assert.EqualValues(t, 1, second.Batch.Lost)
	require.Len(t, second.Batch.Events, 2)
	assert.EqualValues(t, 2, second.Batch.Events[0].ID)
	mirror := events.NewMirror()
	require.NoError(t, mirror.Follow(third.Batch))
	assert.Equal(t, 1, mirror.Len())
	require.NoError(t, mirror.Follow(fourth.Batch))
	assert.Equal(t, 2, mirror.Len())
}

// Readers are opened and closed.
func TestReadersComeAndGo(t *testing.T) {
	d, _ := newEventsRig(t, 4)
	d.publish()
	open := &kvevents.OpenReader{}
	d.read(open)
	require.NoError(t, open.Err)
	d.publish()
	second := &kvevents.ReadEvents{Reader: open.Reader}
	d.read(second)
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

// A batch that cannot be made costs its reader the events and the log what it has kept; the
// actor fails for it, and the next reader is served.
func TestABatchThatPanics(t *testing.T) {
	d, panics := newEventsRig(t, 4)
	d.publish()
	d.readKeys(&kvevents.ReadSnapshot{}, listed(d.block+9)) // a block that the log does not know
	assert.Equal(t, 1, *panics)
	require.Len(t, d.answers, 1)
	require.ErrorIs(t, d.answers[0], messages.ErrInternal)
	mirror, snapshot := events.NewMirror(), &kvevents.ReadSnapshot{}
	d.readKeys(snapshot, listed(d.block))
	d.publish()
	after := &kvevents.ReadEvents{}
	d.read(after)
	require.Equal(t, []error{nil, nil}, d.answers[1:])
	require.NoError(t, mirror.Follow(snapshot.Batch))
	require.NoError(t, mirror.Follow(after.Batch))
	assert.Equal(t, 2, mirror.Len())
}
