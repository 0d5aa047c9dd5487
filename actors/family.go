package actors

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/actors/mailbox"
)

// family is the parent of the engine's actors and their supervisor. A panic of
// any of them is a bug of ours: the engine fails, visibly, and every call that
// waits is answered.
type family struct {
	engine *Engine
	clock  func() time.Duration
	ready  chan error
}

// Receive starts the children.
func (f *family) Receive(ctx actor.Context) {
	if _, started := ctx.Message().(*actor.Started); started {
		f.ready <- f.start(ctx)
	}
}

// start spawns the actors and ties their mailboxes together: the tree, the
// pools and the offloader know the coordinator's, the coordinator knows all.
func (f *family) start(ctx actor.Context) error {
	e := f.engine
	p := &port{system: e.system, clock: f.clock}
	c := &coordinatorActor{core: coordinator.New(e.validate, p), port: p}
	t := &treeActor{core: e.newTree()}
	o := &offloaderActor{core: e.newOffloader(), lanes: e.lanes}
	var err error
	if e.front, e.coordinator, err = f.child(ctx, "coordinator", c); err != nil {
		return err
	}
	if _, p.events, err = f.child(ctx, "events", &eventsActor{core: e.newEvents()}); err != nil {
		return err
	}
	t.coordinator, t.events, o.coordinator = e.coordinator, p.events, e.coordinator
	if _, p.tree, err = f.child(ctx, "tree", t); err != nil {
		return err
	}
	if _, p.offloader, err = f.child(ctx, "offloader", o); err != nil {
		return err
	}
	o.self = p.offloader
	for i := range e.pools {
		a := &poolActor{core: e.newPool(i), coordinator: e.coordinator}
		_, box, err := f.child(ctx, "pool:"+e.pools[i].Name, a)
		if err != nil {
			return err
		}
		p.pools = append(p.pools, box)
	}
	return nil
}

// child spawns one actor with our mailbox and dispatcher.
func (f *family) child(ctx actor.Context, name string, a actor.Actor) (*actor.PID, *mailbox.Mailbox, error) {
	lost := func(message any, err error) { f.engine.fail(fmt.Errorf("%s: %w", name, err)) }
	props := actor.PropsFromProducer(func() actor.Actor { return a }, mailbox.Inline(f.engine.worker, mailbox.OnAbort(lost))...)
	pid, err := ctx.SpawnNamed(props, name)
	if err != nil {
		return nil, nil, fmt.Errorf("actors: spawn of %s: %w", name, err)
	}
	return pid, mailbox.Of(f.engine.system, pid), nil
}

// HandleFailure stops all children: what they knew of each other cannot be
// trusted any more.
func (f *family) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	f.engine.fail(fmt.Errorf("%s panicked: %v", child.Id, reason))
	supervisor.StopChildren(supervisor.Children()...)
}
