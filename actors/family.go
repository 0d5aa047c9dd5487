package actors

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/messages"
)

// family is the parent of the engine's actors and their supervisor. A panic of
// any of them is a bug of ours: the actor is restarted and the coordinator
// rebuilds what it held. Too many of them in a short time, and the engine fails,
// visibly: every call that waits or comes later is answered with the cause.
type family struct {
	engine    *Engine
	clock     func() time.Duration
	ready     chan error
	restarts  restarts
	shells    map[string]*fuse // by actor, for Inject
	tree      *treeActor
	desk      *eventsActor       // nil: another engine's
	scheduler *mailbox.Scheduler // nil: the callers run the actors
}

// restarts counts the failures of the last while.
type restarts struct {
	limit  int
	within time.Duration
	at     []time.Time
}

// over notes a failure and tells whether there have been too many.
func (r *restarts) over(now time.Time) bool {
	kept := r.at[:0]
	for _, t := range r.at {
		if now.Sub(t) < r.within {
			kept = append(kept, t)
		}
	}
	r.at = append(kept, now)
	return len(r.at) > r.limit
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
	p := &port{system: e.system, clock: f.clock, resized: func(pools []messages.PoolInfo) { e.resized.Store(&pools) }}
	c := &coordinatorActor{core: coordinator.New(e.validate, p), port: p}
	p.fuse = &c.fuse
	t := &treeActor{core: e.newTree(), renew: e.newTree}
	o := &offloaderActor{core: e.newOffloader(), renew: e.newOffloader, lanes: e.lanes, aside: f.aside}
	f.shells = map[string]*fuse{"coordinator": &c.fuse, "tree": &t.fuse, "offloader": &o.fuse}
	f.tree = t
	var err error
	if e.front, e.coordinator, err = f.child(ctx, "coordinator", c); err != nil {
		return err
	}
	if p.events, err = f.log(ctx); err != nil {
		return err
	}
	e.events, t.first, t.adapt = p.events, e.side.first, e.side.adapt
	t.coordinator, t.events, o.coordinator = e.coordinator, p.events, e.coordinator
	if _, p.tree, err = f.child(ctx, "tree", t); err != nil {
		return err
	}
	if f.desk != nil {
		f.desk.tree = p.tree
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
		f.shells["pool:"+e.pools[i].Name] = &a.fuse
	}
	return nil
}

// log spawns the events actor; the encoder's engine tells the decoder's.
func (f *family) log(ctx actor.Context) (*mailbox.Mailbox, error) {
	if shared := f.engine.side.events; shared != nil {
		return shared, nil
	}
	a := &eventsActor{core: f.engine.newEvents(), aside: f.aside}
	f.desk, f.shells["events"] = a, &a.fuse
	_, box, err := f.child(ctx, "events", a)
	a.self = box
	return box, err
}

// child spawns one actor with our mailbox and dispatcher. The shell outlives
// restarts; it is what knows the state.
func (f *family) child(ctx actor.Context, name string, a actor.Actor) (*actor.PID, *mailbox.Mailbox, error) {
	lost := func(_ any, err error) {
		if errors.Is(err, mailbox.ErrStopped) {
			f.engine.fail(fmt.Errorf("%s: %w", name, err))
		}
	}
	props := actor.PropsFromProducer(func() actor.Actor { return a }, f.dispatch(mailbox.OnAbort(lost))...)
	pid, err := ctx.SpawnNamed(props, name)
	if err != nil {
		return nil, nil, fmt.Errorf("actors: spawn of %s: %w", name, err)
	}
	return pid, mailbox.Of(f.engine.system, pid), nil
}

// dispatch says who runs an actor.
func (f *family) dispatch(option mailbox.Option) []actor.PropsOption {
	if f.scheduler != nil {
		return mailbox.Queued(f.scheduler, option)
	}
	return mailbox.Inline(f.engine.worker, option)
}

// aside runs what may block, beside the actors.
func (f *family) aside(work func()) {
	if f.scheduler != nil {
		f.scheduler.Schedule(work)
		return
	}
	go work()
}

// HandleFailure restarts the actor that failed and lets the coordinator
// rebuild what it held; after too many failures it stops all.
func (f *family) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	name := child.Id[strings.LastIndexByte(child.Id, '/')+1:]
	cause := fmt.Errorf("%s panicked: %v", name, reason)
	if f.restarts.over(time.Now()) {
		f.engine.fail(fmt.Errorf("%d failures within %v, the last: %w", len(f.restarts.at), f.restarts.within, cause))
		supervisor.StopChildren(supervisor.Children()...)
		return
	}
	f.engine.system.EventStream.Publish(&messages.Restarted{Engine: f.engine.pid.Id, Actor: name, Cause: cause, Failures: len(f.restarts.at)})
	supervisor.RestartChildren(child)
	f.engine.coordinator.PostUserMessage(&actorFailed{coordinator.Failure{Actor: name, Dirty: name == "tree" && f.tree.changing, Cause: cause}})
}
