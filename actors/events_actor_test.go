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
	"github.com/kvactor/kvactor/tree"
)

// eventsRig is an events actor whose naming is done when the test says so.
type eventsRig struct {
	t       *testing.T
	shell   *eventsActor
	box     *mailbox.Mailbox
	tasks   []func()
	answers []error // of the readers
	engine  *Engine
}

// stubborn lets an actor go on after a panic.
type stubborn struct{ panics int }

func (s *stubborn) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, _, _ any) {
	s.panics++
	supervisor.RestartChildren(child)
}

func newEventsRig(t *testing.T, limit int) (d *eventsRig, panics *int) {
	system := actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }),
		actor.WithDeadLetterThrottleInterval(time.Millisecond))
	worker, supervisor := mailbox.NewWorker(), &stubborn{}
	d = &eventsRig{t: t, engine: &Engine{gate: gate{limit: 100}}}
	d.shell = &eventsActor{core: events.New(limit), background: &background{schedule: func(f func()) { d.tasks = append(d.tasks, f) }}}
	var child *actor.PID
	parent := system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if _, started := c.Message().(*actor.Started); started {
			child = c.Spawn(actor.PropsFromProducer(func() actor.Actor { return d.shell }, mailbox.Inline(worker)...))
		}
	}, append(mailbox.Inline(worker), actor.WithSupervisor(supervisor))...))
	d.box = mailbox.Of(system, child)
	d.shell.self = d.box
	t.Cleanup(func() {
		_ = system.Root.StopFuture(parent).Wait()
		worker.Close()
		system.Shutdown()
	})
	return d, &supervisor.panics
}

// read sends a reader.
func (d *eventsRig) read(request any) {
	require.NoError(d.t, d.engine.gate.try())
	c := &call{request: request, engine: d.engine, done: func(err error) { d.answers = append(d.answers, err) }}
	d.box.PostUserMessage(&forward{request: request, sender: c, port: &port{}})
}

// publish tells of a block that was stored.
func (d *eventsRig) publish(k *protocol.Naming) {
	d.box.PostUserMessage(&published{events: []protocol.Event{{Event: messages.Event{Type: messages.EventStored}, Spans: []protocol.Span{{Naming: k, Count: 1}}}}})
}

func oneBlock() *protocol.Naming {
	return &protocol.Naming{Blocks: 1, Tokens: []messages.Token{1, 2}, Namespace: &messages.Namespace{}}
}

// While a batch is being named the log goes on, and the next reader waits: its
// batch goes on where the first one ended.
func TestReadersAreServedOneAfterTheOther(t *testing.T) {
	d, _ := newEventsRig(t, 2)
	first, second, third := &messages.ReadEvents{}, &messages.ReadEvents{}, &messages.ReadSnapshot{}
	lost := oneBlock()
	d.publish(oneBlock())
	d.read(first)
	d.read(second)
	require.Len(t, d.tasks, 1)
	d.publish(lost)
	d.publish(oneBlock())
	d.publish(oneBlock())
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
	assert.NotNil(t, lost.Tokens, "owed, since it is stored still")
}

// withTree gives a desk a tree with blocks of two tokens.
func (d *eventsRig) withTree() *treeActor {
	core := tree.New(tree.Config{TokensPerBlock: 2, Pools: []tree.PoolShape{{}}, Events: true})
	system, worker := NewSystem(nil), mailbox.NewWorker()
	shell := &treeActor{core: core, events: d.box}
	pid := system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return shell }, mailbox.Inline(worker)...))
	d.t.Cleanup(func() {
		_ = system.Root.StopFuture(pid).Wait()
		worker.Close()
		system.Shutdown()
	})
	d.shell.tree = mailbox.Of(system, pid)
	return shell
}

// storeBlock stores a block of two tokens.
func storeBlock(core *tree.Tree, tokens ...messages.Token) protocol.BlockID {
	a := &protocol.Apply{Stores: []protocol.StoreItem{{Tokens: tokens, To: 2, Tables: [][]messages.PageID{{messages.PageID(tokens[0])}}}}}
	core.Apply(a)
	return a.Stores[0].Cursor.Block
}

// What nobody reads goes back to the tree too, when it is gone and the events of
// it are lost.
func TestUnreadTokensGoBack(t *testing.T) {
	d, _ := newEventsRig(t, 1)
	shell := d.withTree()
	arrays := map[*messages.Token]bool{}
	for i := range messages.Token(20) {
		b := storeBlock(shell.core, 2*i, 2*i+1)
		list := shell.core.TakeEvents()
		k := list[0].Spans[0].Naming
		arrays[&k.Tokens[0]] = true
		d.box.PostUserMessage(&published{events: list})
		shell.core.Apply(&protocol.Apply{Moves: []protocol.BlockMove{{Block: b, To: messages.Nowhere}}})
		shell.publish()
		assert.Nil(t, k.Hashes)
	}
	assert.LessOrEqual(t, len(arrays), 2, "that of the kept event and that of the next one")
	last := &messages.ReadEvents{}
	d.read(last)
	d.tasks[0]()
	assert.EqualValues(t, 39, last.Batch.Lost, "two events a block, and one is kept")
	assert.Len(t, last.Batch.Events[0].Hashes, 1)
}

// What a batch was named by goes back to the tree.
func TestSpentTokensGoBack(t *testing.T) {
	d, _ := newEventsRig(t, 4)
	shell := d.withTree()
	store := func(tokens ...messages.Token) []protocol.Event {
		storeBlock(shell.core, tokens...)
		return shell.core.TakeEvents()
	}
	list := store(1, 2)
	handed := &list[0].Spans[0].Naming.Tokens[0]
	d.box.PostUserMessage(&published{events: list})
	first := &messages.ReadEvents{}
	d.read(first)
	d.tasks[0]()
	again := store(3, 4)
	assert.Same(t, handed, &again[0].Spans[0].Naming.Tokens[0])
	assert.Equal(t, []messages.Token{1, 2}, first.Batch.Events[0].Blocks[0].Tokens)
}

// Naming that panics costs its reader the batch; the actor fails for it, and
// the next reader is served.
func TestNamingThatPanics(t *testing.T) {
	d, panics := newEventsRig(t, 4)
	d.publish(&protocol.Naming{Blocks: 1, Tokens: []messages.Token{1}}) // begins nowhere
	d.read(&messages.ReadEvents{})
	d.read(&messages.ReadEvents{})
	require.Len(t, d.tasks, 1)
	d.tasks[0]()
	assert.Equal(t, 1, *panics)
	require.Len(t, d.answers, 2)
	require.ErrorIs(t, d.answers[0], messages.ErrInternal)
	require.NoError(t, d.answers[1])
	d.publish(oneBlock())
	after := &messages.ReadEvents{}
	d.read(after)
	d.tasks[1]()
	require.Len(t, after.Batch.Events, 1)
	assert.EqualValues(t, 1, after.Batch.Events[0].ID)
	assert.Len(t, after.Batch.Events[0].Blocks, 1)
}

// Readers that wait when the actor stops are told so.
func TestReadersOfAStoppedLog(t *testing.T) {
	d, _ := newEventsRig(t, 4)
	d.publish(oneBlock())
	d.read(&messages.ReadEvents{})
	d.read(&messages.ReadEvents{})
	d.shell.stopped()
	require.Len(t, d.answers, 1)
	require.Error(t, d.answers[0])
	d.tasks[0]()
	assert.Len(t, d.answers, 2)
	assert.NoError(t, d.answers[1], "what was begun is ended")
}
