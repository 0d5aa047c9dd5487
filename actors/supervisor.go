package actors

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/messages"
)

// supervisor is the engine's actor: the parent of the others. A panic of any of
// them is a bug of the engine: the supervisor restarts the actor, and the
// coordinator rebuilds what it held. After too many panics in a short time the
// engine fails, visibly: every call that waits or comes later is answered with the
// cause. The shells outlive a restart (their producers return the same value), because
// they know whether a change was under way.
type supervisor struct {
	engine *Engine
	ready  chan error
	tree   *treeActor
	// failures are those within the restart window before the last, of all actors together: one bug
	// can make several fail in turn, and none of them alone would pass its limit. The library counts
	// for each child, and stops one over its limit without telling anyone.
	failures []time.Time
}

// Receive starts the children, and ends the engine when the library has stopped
// them without a Close: their parent was stopped, or they were by name.
func (s *supervisor) Receive(ctx actor.Context) {
	switch ctx.Message().(type) {
	case *actor.Started:
		s.ready <- s.start(ctx)
	case *actor.Stopping:
		s.engine.orphan.Store(!s.engine.closing.Load() && s.engine.failed.Load() == nil)
	case *actor.Stopped:
		// What the actors have left is ended, unless a Close does that, as the last act of the
		// engine's actor: before the parent's next message.
		close(s.engine.ending.terminated)
		if !s.engine.closing.Load() {
			s.engine.orphaned()
		}
	}
}

// start spawns the actors and ties their mailboxes together: the tree, the
// pools and the offloader know the coordinator's, the coordinator knows all.
//
// An error leaves the children that have started: Spawn stops the parent, and the library
// then stops them.
func (s *supervisor) start(ctx actor.Context) error {
	e := s.engine
	own := e.settings.OwnGoroutines // else these actors run on the goroutines of their senders
	if scheduler := e.settings.Scheduler; scheduler != nil {
		e.background.schedule = scheduler.Schedule
	}
	// The shells are made before the actors are spawned, and the coordinator first: the
	// others are given its mailbox. None gets a request before all are spawned.
	p := &port{engine: e}
	c := &coordinatorActor{core: coordinator.New(e.validate, p), port: p, engine: e}
	p.point = &c.point
	t := &treeActor{core: e.newTree(), renew: e.newTree}
	o := &offloaderActor{renew: e.newOffloader, streams: e.streams, background: &e.background,
		saver: e.saver}
	o.core = e.newOffloader()
	// No page can be read any more, so nothing that the engine could still answer would be of
	// use. A call under way is answered as if its copies had been refused.
	e.streams.lost = func(
		err error) {
		e.fail(fmt.Errorf("the device cannot be used any more: %w", err))
	}
	e.streams.warn = func(refused int64, err error) {
		e.log.Warn("kvactor: the device has refused copies: contents are lost, or requests refused",
			"engine", e.settings.Name, "refused_copies", refused, "err", err)
	}
	s.tree = t
	var err error
	freeName(e.system, ctx.Self().Id+"/coordinator")
	if e.front, e.coordinator, err = s.spawn(ctx, "coordinator", c, &c.point, own); err != nil {
		return err
	}
	// The events actor and the store's before the tree, which is given their mailboxes.
	log := &eventsActor{core: e.newEvents()}
	if _, e.events, err = s.spawn(ctx, "events", log, &log.point, true); err != nil {
		return err
	}
	t.coordinator, t.events, o.coordinator = e.coordinator, e.events, e.coordinator
	if e.store != nil {
		if p.store, err = s.store(ctx, t, o); err != nil {
			return err
		}
	}
	if _, p.tree, err = s.spawn(ctx, "tree", t, &t.point, own); err != nil {
		return err
	}
	if _, p.offloader, err = s.spawn(ctx, "offloader", o, &o.point, own); err != nil {
		return err
	}
	o.self = p.offloader
	for i := range e.pools {
		a := &poolActor{core: e.newPool(i), coordinator: e.coordinator}
		if observe := e.settings.OnPageTime; observe != nil {
			a.sampler = &pageSampler{pool: messages.PoolID(i), every: e.settings.PageSample, observe: observe}
		}
		_, box, err := s.spawn(ctx, "pool:"+e.pools[i].Name, a, &a.point, own)
		if err != nil {
			return err
		}
		p.pools = append(p.pools, box)
	}
	return nil
}

// store spawns the store's actor and ties it to the tree and the saver.
func (s *supervisor) store(
	ctx actor.Context, t *treeActor, o *offloaderActor,
) (*mailbox.Mailbox, error) {
	e := s.engine
	a := &storeActor{
		saver: e.saver, background: &e.background, device: e.config.Device, pools: e.streams.pools,
		tokensPerBlock: e.validate.TokensPerBlock, yields: !e.settings.Simulated(),
	}
	a.index = a.emptyIndex()
	_, box, err := s.spawn(ctx, "store", a, &a.point, true)
	a.self = box
	t.store = box
	if e.config.Cache.EventBufferMaxSize == 0 {
		t.events = nil // if the tree records changes, then for the store alone
	}
	e.saver.open(e.hostPages, box, e.coordinator)
	return box, err
}

// spawn spawns one actor with the mailbox and dispatcher of package mailbox. The
// shell outlives restarts; it is what knows the state. With own it has a goroutine of its own.
func (s *supervisor) spawn(
	ctx actor.Context, name string, a actor.Actor, point *failpoint.Point, own bool,
) (*actor.PID, *mailbox.Mailbox, error) {
	lost := func(message any, sender *actor.PID, err error) {
		if errors.Is(err, mailbox.ErrStopped) {
			s.engine.fail(fmt.Errorf("%s: %w", name, err))
			if _, request := message.(messages.Request); request {
				s.engine.returnRequest(sender, message, err)
			}
		}
	}
	s.engine.settings.Failpoints.Add(name, point)
	// The producer returns the same shell after each restart: its state is what recovery
	// starts from.
	props := actor.PropsFromProducer(func() actor.Actor { return a },
		s.engine.props(own, mailbox.OnAbort(lost))...)
	pid, err := ctx.SpawnNamed(props, name)
	if err != nil {
		return nil, nil, fmt.Errorf("actors: spawn of %s: %w", name, err)
	}
	return pid, mailbox.Of(s.engine.system, pid), nil
}

// props says who runs one more actor; with own it is a goroutine that runs no other.
func (e *Engine) props(own bool, options ...mailbox.Option) []actor.PropsOption {
	if e.settings.Scheduler != nil {
		return mailbox.Queued(e.settings.Scheduler, options...)
	}
	return e.workers.props(own, options...)
}

// HandleFailure tells the log and the event stream of an actor that has panicked, restarts it, and
// makes the coordinator rebuild what it held; after too many failures the engine fails, and all
// actors stop. Restarted is published before any request is answered that the failure aborts, so
// that a host that watches knows the cause first.
func (s *supervisor) HandleFailure(
	_ *actor.ActorSystem, library actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics,
	reason, _ any,
) {
	e, now := s.engine, time.Now()
	cause := &messages.Panic{Actor: child.Id[strings.LastIndexByte(child.Id, '/')+1:],
		Reason: fmt.Sprint(reason)}
	if p, ok := reason.(*mailbox.Panic); ok {
		cause.Stack = string(p.Stack)
	}
	within := e.settings.RestartWindow
	s.failures = append(slices.DeleteFunc(s.failures,
		func(t time.Time) bool { return now.Sub(t) >= within }), now)
	e.log.Error("kvactor: an actor panicked", "engine", e.settings.Name, "actor", cause.Actor, "reason",
		cause.Reason, "failures", len(s.failures), "stack", cause.Stack)
	if len(s.failures) > e.settings.MaxRestarts {
		e.fail(fmt.Errorf("%d failures within %v, the last: %w", len(s.failures), within, cause))
		library.StopChildren(library.Children()...)
		return
	}
	e.system.EventStream.Publish(&messages.Restarted{Engine: e.pid.Id, Actor: cause.Actor,
		Cause: cause, Failures: len(s.failures)})
	// The restart comes before the coordinator hears of the failure: the fence that the
	// coordinator sends then is served by an actor that runs.
	library.RestartChildren(child)
	e.coordinator.PostUserMessage(&actorFailed{coordinator.Failure{Actor: cause.Actor,
		Dirty: cause.Actor == "tree" && s.tree.changing, Cause: cause}})
}
