package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/pool"
	"github.com/kvactor/kvactor/tree"
	"github.com/kvactor/kvactor/windows"
)

// Engine is a running cache engine. All methods may be called by any number of
// goroutines; each is one message to the coordinator. Every refusal is a
// *messages.Refusal.
type Engine struct {
	config Config
	system *actor.ActorSystem
	pid    *actor.PID // parent of the engine's actors
	front  *actor.PID // the coordinator, for hosts that are actors

	coordinator *mailbox.Mailbox
	validate    coordinator.Config
	skipWait    string                              // for tests of hazard checkers
	pools       []messages.PoolInfo                 // as they were at the start
	resized     atomic.Pointer[[]messages.PoolInfo] // nil: never
	lanes       *lanes
	worker      *mailbox.Worker
	unsubscribe func()

	gate    gate
	calls   sync.Pool // of *call
	closing atomic.Bool
	closed  chan struct{} // closed when Close is done
	leaked  int
	failed  atomic.Pointer[error]
	family  *family
	side    side
	events  *mailbox.Mailbox // the log's
	joint   *joint           // of an encoder–decoder model, in place of lanes and family
}

// engines numbers the engines of a process, for the names of their actors.
var engines atomic.Int64

// Spawn starts an engine: under a host's actor system when parent is its root
// context, or as a child of a host's actor when parent is that actor's context.
// Before it returns the device's memory is taken; Close gives it back.
func Spawn(parent actor.SpawnerContext, config Config, list ...Option) (*Engine, error) {
	if parent == nil {
		return nil, messages.Refuse(messages.ConfigInvalid, "no parent: the root context of an actor system, or an actor's")
	}
	o, err := newOptions(list)
	if err != nil {
		return nil, err
	}
	pools, counts, err := config.resolve()
	if err != nil {
		return nil, err
	}
	if config.Model.Encodes() && o.waitingRoom > 0 {
		return nil, messages.Refuse(messages.NotSupported, "a waiting room with an encoder–decoder model")
	}
	if config.Model.Encodes() && o.rebalance.every > 0 {
		return nil, messages.Refuse(messages.NotSupported, "rebalances that nobody asks for with an encoder–decoder model")
	}
	if config.Model.Encodes() {
		return spawnJoint(parent, config, pools, counts, o)
	}
	return spawnOne(parent, config, coordinatorConfig(&config, pools, counts), o)
}

// spawnOne starts an engine with one coordinator.
func spawnOne(parent actor.SpawnerContext, config Config, known coordinator.Config, o options) (*Engine, error) {
	lanes, err := openLanes(config.Device, &known)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		config: config, system: parent.ActorSystem(), lanes: lanes, worker: mailbox.NewWorker(),
		closed: make(chan struct{}), gate: gate{limit: o.maxInFlight, refuse: o.refuseBusy},
		validate: known, skipWait: o.skipWait, side: o.side,
	}
	e.validate.WaitingRoom = o.waitingRoom
	e.validate.RebalanceEvery, e.validate.OnRebalance = o.rebalance.every, o.rebalance.moved
	for i, p := range known.Pools {
		e.pools = append(e.pools, p.Describe(known.Counts[i]))
	}
	e.unsubscribe = mailbox.AbortDeadLetters(e.system)
	if err := e.spawn(parent, o); err != nil {
		e.stop()
		return nil, errors.Join(err, lanes.close(context.Background()))
	}
	return e, nil
}

// coordinatorConfig is what the coordinator must know.
func coordinatorConfig(config *Config, pools []windows.Pool, counts []windows.Counts) coordinator.Config {
	return coordinator.Config{
		Pools: pools, Counts: counts, TokensPerBlock: config.Cache.TokensPerBlock, MaxSeqLen: config.Model.MaxSeqLen,
		Reuse: config.Cache.EnableBlockReuse, Partial: config.Cache.EnablePartialReuse, CopyOnPartial: config.Cache.CopyOnPartialReuse,
		Tenants: config.Cache.Tenants(),
		Ahead:   config.Cache.OffloadAhead && config.Cache.OnboardBlocks, Divide: divider(config, pools),
		Scales: coordinator.Scaled(pools),
	}
}

// divider splits memory by fractions, by the rules of the configuration.
func divider(config *Config, pools []windows.Pool) func(map[string]float64, int64) ([]int, error) {
	return func(fractions map[string]float64, bytes int64) ([]int, error) {
		cache := config.Cache
		cache.PoolFractions = fractions
		return windows.Divide(pools, config.Model, cache, bytes)
	}
}

// spawn starts the parent actor, which starts all others.
func (e *Engine) spawn(parent actor.SpawnerContext, o options) error {
	name := o.name
	if name == "" {
		name = fmt.Sprintf("kvactor-%d", engines.Add(1))
	}
	family := &family{engine: e, clock: o.clock, ready: make(chan error, 1), restarts: restarts{limit: o.maxRestarts, within: o.restartWindow}, scheduler: o.scheduler}
	e.family = family
	props := actor.PropsFromProducer(func() actor.Actor { return family },
		append(mailbox.Inline(e.worker), actor.WithSupervisor(family))...)
	pid, err := parent.SpawnNamed(props, name)
	if err != nil {
		return fmt.Errorf("actors: spawn of %s: %w", name, err)
	}
	e.pid = pid
	return <-family.ready
}

// newTree makes the core of the tree from the shapes of the pools.
func (e *Engine) newTree() *tree.Tree {
	shapes := make([]tree.PoolShape, len(e.validate.Pools))
	blocks := 0
	for i, p := range e.validate.Pools {
		shapes[i] = tree.PoolShape{Window: p.Window, Sink: p.Sink, Chunk: p.Chunk}
		blocks = max(blocks, e.validate.Counts[i].Primary)
	}
	return tree.New(tree.Config{
		TokensPerBlock: e.validate.TokensPerBlock, Pools: shapes, Blocks: blocks,
		Events: e.config.Cache.EventBufferMaxSize > 0, Host: e.hasHost(),
	})
}

func (e *Engine) hasHost() bool {
	for _, n := range e.validate.Counts {
		if n.Secondary > 0 {
			return true
		}
	}
	return false
}

func (e *Engine) newPool(i int) *pool.Pool {
	return pool.New(e.validate.Pools[i].Name, e.validate.Counts[i].Primary, e.config.Cache.Quotas()...)
}

func (e *Engine) newOffloader() *offloader.Offloader {
	c := offloader.Config{
		MinPriority: messages.Priority(e.config.Cache.SecondaryOffloadMinPriority),
		Quotas:      e.config.Cache.Quotas(),
		Ahead:       e.config.Cache.OffloadAhead, Passed: e.config.Device.Done, SkipWait: e.skipWait,
	}
	if !e.config.Cache.OnboardBlocks {
		c.MinPriority = messages.MaxPriority + 1 // nothing is brought back, so nothing is kept
	}
	for i, p := range e.validate.Pools {
		n := e.validate.Counts[i]
		c.Pools = append(c.Pools, offloader.PoolConfig{
			Name: p.Name, DevicePages: n.Primary, HostPages: n.Secondary, PageBytes: p.PageBytes(), SparePages: sparePages(&e.validate, i),
			Layers: len(p.Layers), KVHeads: p.KVHeads, HeadDim: p.HeadDim, ElemBytes: p.DType.Bytes(), TokensPerBlock: p.TokensPerBlock, Regions: p.Regions(),
		})
	}
	return offloader.New(c)
}

func (e *Engine) newEvents() *events.Log {
	log, pools := events.New(e.config.Cache.EventBufferMaxSize), e.pools
	if both := e.side.pools; both != nil {
		log, pools = events.NewShared(e.config.Cache.EventBufferMaxSize, messages.PoolID(len(e.pools))), both
	}
	for _, p := range pools {
		log.Append(protocol.WrapEvents([]messages.Event{{
			Type: messages.EventCreated, Pool: p.ID, PrimaryPages: p.PrimaryPages, SecondaryPages: p.SecondaryPages,
		}}))
	}
	return log
}

// PID is the actor that a host's actor sends its requests to: pointers to the
// request records of package messages, sent with Request; they come back
// answered. A record may not be touched in between.
func (e *Engine) PID() *actor.PID { return e.front }

// Pools describes the pools, by PoolID, with the page counts of the last
// rebalance that was answered.
func (e *Engine) Pools() []messages.PoolInfo {
	if resized := e.resized.Load(); resized != nil {
		return slices.Clone(*resized)
	}
	return slices.Clone(e.pools)
}

// DevicePools are the device's handles of the pools, by PoolID: with a page
// number from a table they name the memory of the page.
func (e *Engine) DevicePools() []gpu.Pool {
	if e.joint != nil {
		return append(e.joint.decoder.DevicePools(), e.joint.encoder.DevicePools()...)
	}
	return slices.Clone(e.lanes.pools)
}

// Do serves one request record of package messages (a pointer) and returns when
// it is answered. It allocates nothing. Err of the record is the refusal of the
// request; the error that Do returns says that it was not served at all.
func (e *Engine) Do(ctx context.Context, request any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := empty(request); err != nil {
		return err
	}
	if err := e.gate.enter(ctx); err != nil {
		return err
	}
	defer e.gate.leave()
	if err := e.refusal(); err != nil {
		return err
	}
	c := newCall(e, request)
	e.coordinator.PostUserMessage(c)
	return c.wait(ctx)
}

// Submit starts a request record of package messages and returns at once; done
// is called when it is answered, with the error that Do would return. done runs
// on whatever goroutine the engine is on, perhaps before Submit returns, and must
// not block. When Submit itself returns an error, ErrBusy over the bound of calls
// in flight, the record is the caller's again and done is never called.
func (e *Engine) Submit(request any, done func(error)) error {
	if err := empty(request); err != nil {
		return err
	}
	if done == nil {
		return messages.Refuse(messages.BadRequest, "nobody is told of the answer to %T: done is nil", request)
	}
	if err := e.gate.try(); err != nil {
		return err
	}
	if err := e.refusal(); err != nil {
		e.gate.leave()
		return err
	}
	e.coordinator.PostUserMessage(&call{request: request, engine: e, done: done})
	return nil
}

// refusal is what a call gets that is not accepted.
func (e *Engine) refusal() error {
	if failed := e.failed.Load(); failed != nil {
		return messages.Refuse(messages.Failed, "the engine has failed: %v", *failed)
	}
	if e.closing.Load() {
		return messages.ErrClosed
	}
	return nil
}

// failure turns the end of an actor into what a caller is told.
func (e *Engine) failure(err error) error {
	if refused := e.refusal(); refused != nil {
		return refused
	}
	if refusal := (*messages.Refusal)(nil); errors.As(err, &refusal) {
		return refusal
	}
	if errors.Is(err, mailbox.ErrStopped) { // with the actor whose child the engine is
		return messages.Refuse(messages.Closed, "the engine's actors were stopped")
	}
	return messages.Refuse(messages.Internal, "the request was aborted: %v", err)
}
