package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/actors/internal/settings"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/guard"
	"github.com/kvactor/kvactor/windows"
)

// Engine is a running cache engine. All methods may be called by any number of
// goroutines; each is one message to the coordinator. Every refusal is a
// *messages.Refusal.
//
// Fields without an atomic or a type of their own are set by Spawn and not changed, so
// that any goroutine reads them without a lock.
type Engine struct {
	config   Config
	settings settings.Settings
	log      *slog.Logger
	system   *actor.ActorSystem
	pid      *actor.PID    // the engine's actor: parent of the others
	process  actor.Process // of pid; another engine may have the name of one that has ended
	front    *actor.PID    // the coordinator, for hosts that are actors

	coordinator *mailbox.Mailbox
	events      *mailbox.Mailbox // of the log
	// validate is what the coordinator was made of. It does not change, so callers
	// check admissions with it on their own goroutines.
	validate    coordinator.Config
	pools       []messages.PoolInfo                 // as they were at the start
	resized     atomic.Pointer[[]messages.PoolInfo] // nil: never
	streams     *copyStreams
	hostPages   []windows.HostPages // by PoolID
	memory      inspect.MemoryStats // at the start
	workers     workers
	background  background
	unsubscribe func()

	store    *guard.Store // nil: there is no store
	saver    *saver       // the same
	exchange *exchange    // of hand-overs

	gate  gate
	calls sync.Pool // of *call

	failed  atomic.Pointer[error] // why the engine serves nothing any more; nil: it does
	closing atomic.Bool           // Close has been called
	orphan  atomic.Bool           // the engine's actor was stopped, by its parent or by name
	ending  ending
}

// engines numbers the engines of a process: for the names of their actors, and for
// the first generation of their sequences.
var engines atomic.Int64

// Spawn starts an engine: under a host's actor system when parent is its root
// context, or as a child of a host's actor when parent is that actor's context.
// Before it returns the device's memory is taken. Close gives the memory back; so
// does the end of the host's actor that is the parent.
//
// The order of its steps is that of what they cost to undo: values are checked first, then
// memory is taken, then actors are started. An error of the last step gives the memory back.
func Spawn(parent actor.SpawnerContext, config Config, list ...Option) (*Engine, error) {
	if parent == nil {
		return nil, refusals.New(messages.ErrConfigInvalid,
			"no parent: the root context of an actor system, or an actor's")
	}
	s, err := newSettings(list)
	if err != nil {
		return nil, err
	}
	store := storeConfig(&s)
	if err := config.validate(store); err != nil {
		return nil, err
	}
	pools, counts, err := config.resolve()
	if err != nil {
		return nil, err
	}
	config.warn(s.Logger, pools, counts)
	known := coordinatorConfig(&config, pools, counts)
	if err := config.movable(s.RebalanceEvery > 0, pools); err != nil {
		return nil, err
	}
	if store != nil {
		if err := store.resolve(&config, pools, counts); err != nil {
			return nil, err
		}
		known.Store = &coordinator.StoreConfig{Policy: coordinator.SavePolicy(store.Save)}
	}
	handover, _ := s.Handover.(HandoverConfig)
	if err := handover.resolve(store); err != nil {
		return nil, err
	}
	hostPages := config.hostPages(&known, store)
	memory := config.measure(&known, hostPages)
	if err := config.afford(&known, hostPages, &memory); err != nil {
		return nil, err
	}
	streams, err := openStreams(&config, &known, hostPages)
	if err != nil {
		return nil, err
	}
	e := newEngine(parent, config, known, s)
	e.streams, e.exchange, e.hostPages, e.memory = streams, newExchange(e, &handover), hostPages, memory
	e.validate.WaitingRoom = s.WaitingRoom
	e.validate.RebalanceEvery = s.RebalanceEvery
	if moved := s.OnRebalance; moved != nil {
		e.validate.OnRebalance = func(r messages.Rebalanced) {
			e.callHost("WithAutoRebalance", func() { moved(r) })
		}
	}
	e.validate.OnRecovered = func(r coordinator.Recovered) {
		e.log.Warn("kvactor: the engine has recovered", "engine", e.settings.Name, "lost_sequences",
			r.LostSequences, "kept_pages", r.KeptPages)
	}
	e.validate.OnThrash = func(t coordinator.Thrash) {
		warnOfThrash(e.log, e.settings.Name, e.validate.PolicyLearns, t)
	}
	if err := e.spawn(parent); err != nil {
		// Actors first: a child that has started may use the streams.
		e.stop()
		<-e.ending.stopped
		_, released := streams.close(context.Background())
		return nil, errors.Join(err, released)
	}
	logStart(e)
	return e, nil
}

// logStart writes what an operator asks first: how many pages there are, and what they take.
func logStart(e *Engine) {
	list := []any{slog.String("engine", e.settings.Name)}
	for _, p := range e.pools {
		list = append(list, slog.Group(p.Name,
			"pages", p.PrimaryPages, "host_pages", p.SecondaryPages, "page_bytes", p.PageBytes,
			"tokens_per_block", p.TokensPerBlock))
	}
	m := &e.memory
	list = append(list, slog.Group("memory", "ranks", m.Ranks, "device_bytes", m.DeviceBytes,
		"host_bytes", m.HostBytes(),
		"content_bytes", m.ContentBytes, "ahead_bytes", m.AheadBytes, "save_bytes", m.SaveBytes,
		"metadata_bytes", m.MetadataBytes))
	e.log.Info("kvactor: the engine has started", list...)
}

// newEngine makes an engine without actors.
//
// FirstGeneration differs between the engines of a process, so that an id of one engine is
// refused by another as unknown, and does not name one of its sequences.
func newEngine(
	parent actor.SpawnerContext, config Config, known coordinator.Config, s settings.Settings,
) *Engine {
	e := &Engine{
		config: config, settings: s, log: s.Logger, system: parent.ActorSystem(),
		gate: gate{places: make(chan struct{}, s.MaxInFlight), refuse: s.RefuseBusy}, validate: known,
	}
	e.ending.init()
	e.background.init()
	number := engines.Add(1)
	if e.settings.Name == "" {
		e.settings.Name = fmt.Sprintf("kvactor-%d", number)
	}
	e.validate.FirstGeneration = uint32(number) << generationBits
	if first := s.FirstGeneration; first != nil {
		e.validate.FirstGeneration = *first
	}
	for i, p := range known.Pools {
		e.pools = append(e.pools, p.Describe(known.Counts[i]))
	}
	if store := storeConfig(&s); store != nil {
		e.store = guard.New(e.background.ctx, guard.Config{
			Store: store.Store, Compressor: store.Compressor, WriteOnly: store.WriteOnly,
			Geometry: stores.Geometry{Model: store.Model, Pools: e.pools, Ranks: config.ranks()},
			Timeout:  store.Timeout, BreakerFailures: store.BreakerFailures,
			BreakerPause: store.BreakerPause, Inline: s.Simulated(),
			Log: e.log.With("engine", e.settings.Name),
		})
		e.saver = &saver{config: store, client: e.store, encoders: newEncoders(),
			stopped: make(chan struct{})}
		known.Store.Gate = e.saver
	}
	e.unsubscribe = mailbox.AbortDeadLetters(e.system)
	return e
}

// generationBits is how far apart the first generations of two engines of a process
// are: a slot of sequences must be used 2^20 times before its ids can be those of
// the next engine, and 4,096 engines must have started before they come again.
const generationBits = 20

// coordinatorConfig is what the coordinator must know.
//
// The core knows no device, no store and no actor: it gets values, and functions where a
// rule belongs to another package.
func coordinatorConfig(
	config *Config, pools []windows.Pool, counts []windows.PageCounts,
) coordinator.Config {
	// A model of states alone reuses a part of a block by a copy of its state in any case.
	copies := config.Cache.CopyOnPartialReuse || config.Model.OnlyStates()
	tokens := config.Cache.TokensPerBlock
	return coordinator.Config{
		Pools: pools, Counts: counts, TokensPerBlock: tokens,
		MaxSeqLen: config.Model.MaxSeqLen,
		Reuse:     config.Cache.EnableBlockReuse, Partial: config.Cache.EnablePartialReuse,
		CopyOnPartial:      copies,
		CheckpointInterval: config.Cache.StateCheckpointInterval,
		Tenants:            config.Cache.Tenants(),
		PolicyLearns:       config.Cache.EvictionPolicy != windows.PriorityLRU,
		Ahead:              config.Cache.OffloadAhead && config.Cache.OnboardBlocks,
		Divide:             divider(config, pools),
		MaxPages:           (config.Cache.MaxTokens + tokens - 1) / tokens, Onboard: config.Cache.OnboardBlocks,
		Weights: config.Weights, FixedPages: config.fixedPages(), Scales: coordinator.Scaled(pools),
		EncoderMaxLen: config.Model.EncoderMaxLen,
	}
}

// divider splits memory between the self pools by fractions, by the rules of the
// configuration.
//
// The cross pool is left out: its memory has a rule of its own (windows.SplitCross).
func divider(config *Config, pools []windows.Pool) func(map[string]float64, int64) ([]int, error) {
	own := slices.DeleteFunc(slices.Clone(pools),
		func(p windows.Pool) bool { return p.Kind == windows.KindCross })
	return func(fractions map[string]float64, bytes int64) ([]int, error) {
		cache := config.Cache
		cache.PoolFractions = fractions
		return windows.Divide(own, config.Model, cache, bytes)
	}
}

// spawn starts the engine's actor, which starts all others.
//
// It waits until all children run, because the mailboxes that callers use are known only
// then.
func (e *Engine) spawn(parent actor.SpawnerContext) error {
	s := &supervisor{engine: e, ready: make(chan error, 1)}
	props := actor.PropsFromProducer(func() actor.Actor { return s },
		append(e.workers.props(e.settings.OwnGoroutines), actor.WithSupervisor(s))...)
	pid, err := parent.SpawnNamed(props, e.settings.Name)
	if err != nil {
		return fmt.Errorf("actors: spawn of %s: %w", e.settings.Name, err)
	}
	// The process is kept, since a look-up by name might later find another engine of that name.
	e.pid = pid
	e.process, _ = e.system.ProcessRegistry.Get(pid)
	return <-s.ready
}

// PID is the actor that a host's actor sends its requests to: pointers to the
// request records of package messages, sent with Request. Each comes back
// answered, or in a *messages.Aborted when the engine cannot serve it, also after
// the engine has ended. The host may not touch a record in between.
func (e *Engine) PID() *actor.PID { return e.front }

// Pools describes the pools, by PoolID, with the page counts of the last
// rebalance that was answered.
func (e *Engine) Pools() []messages.PoolInfo {
	if resized := e.resized.Load(); resized != nil {
		return clonePools(*resized)
	}
	return clonePools(e.pools)
}

// Shapes describes the pools, by PoolID: windows, layers, and where rows lie in a page.
// It is what events.Mirror.Match takes. The slice is the caller's.
func (e *Engine) Shapes() []windows.Pool {
	shapes := slices.Clone(e.validate.Pools)
	for i := range shapes {
		shapes[i].Layers = slices.Clone(shapes[i].Layers)
	}
	return shapes
}

// clonePools copies descriptions for a host, or from one: what it does to them is
// its own.
func clonePools(pools []messages.PoolInfo) []messages.PoolInfo {
	pools = slices.Clone(pools)
	for i := range pools {
		pools[i].Layers = slices.Clone(pools[i].Layers)
	}
	return pools
}

// DevicePools are the device's handles of the pools, by PoolID: with a page
// number from a table they name the memory of the page.
func (e *Engine) DevicePools() []gpu.Pool { return slices.Clone(e.streams.pools) }

// Do serves one request and returns when it is answered. It allocates nothing. Err
// of the record is the refusal of the request; the error that Do returns says that
// it was not served at all.
func (e *Engine) Do(ctx context.Context, request messages.Request) error {
	o, is := observe(ctx, e, request)
	if !is {
		return serve(ctx, e, request, nil)
	}
	err := serve(ctx, e, request, o.stages)
	o.end(err)
	return err
}

// serve is Do without its observers.
//
// The refusal comes after the gate: the engine may have ended while the call waited there.
func serve(ctx context.Context, e *Engine, request messages.Request, s *stages) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := senseless(e.config.Device, request); err != nil {
		return err
	}
	if err := e.gate.acquire(ctx); err != nil {
		return err
	}
	defer e.gate.release()
	if err := e.refusal(); err != nil {
		return err
	}
	c := newCall(e, request)
	c.stages = s
	e.coordinator.PostUserMessage(c)
	return c.wait(ctx)
}

// Submit starts a request and returns at once; done
// is called when it is answered, with the error that Do would return. done runs
// on whatever goroutine the engine is on, perhaps before Submit returns, and must
// not block; when it panics, the program ends. When Submit itself returns an error,
// ErrBusy over the bound of calls in flight, the record is the caller's again and
// done is never called.
func (e *Engine) Submit(request messages.Request, done func(error)) error {
	if err := senseless(e.config.Device, request); err != nil {
		return err
	}
	if done == nil {
		return refusals.New(messages.ErrBadRequest, "Submit: done is nil")
	}
	if err := e.gate.try(); err != nil {
		return err
	}
	if err := e.refusal(); err != nil {
		e.gate.release()
		return err
	}
	o, is := observe(context.Background(), e, request)
	if is {
		done = o.before(done)
	}
	e.coordinator.PostUserMessage(&call{request: request, engine: e, done: done, stages: o.stages})
	return nil
}

// empty is the refusal of a request that points at nothing, else nil. A nil record would
// otherwise make an actor panic, which costs a recovery.
func empty(request any) error {
	if v := reflect.ValueOf(request); request == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return refusals.NoRequest(request)
	}
	return nil
}

// senseless is the refusal of a request that no actor may see: of an empty one, and of one with a
// ticket that no stream has issued. Copies that wait for such a ticket would fail.
func senseless(device gpu.Device, request any) error {
	if err := empty(request); err != nil {
		return err
	}
	switch r := request.(type) {
	case *messages.Append:
		return issued(device, len(r.Steps), func(i int) messages.Ticket { return r.Steps[i].After })
	case *messages.Commit:
		return issued(device, len(r.Steps), func(i int) messages.Ticket { return r.Steps[i].After })
	case *messages.Release:
		return issued(device, len(r.Steps), func(i int) messages.Ticket { return r.Steps[i].After })
	}
	return nil
}

// issued refuses a ticket of n steps that no stream has issued. The kernels of a batch are mostly
// one, so a ticket is looked up where it differs from the one before.
func issued(device gpu.Device, n int, after func(step int) messages.Ticket) error {
	known := messages.Ticket{}
	for i := range n {
		t := after(i)
		if t == known {
			continue
		}
		if err := gpu.Known(device, t); err != nil {
			return refusals.New(messages.ErrBadRequest, "After: %v", err)
		}
		known = t
	}
	return nil
}

// refusal is what a call gets that is not accepted.
//
// A failure is told before the end of the engine, because a host that closes a failed
// engine still wants to know the cause.
func (e *Engine) refusal() error {
	if failed := e.failed.Load(); failed != nil {
		return &messages.Refusal{Code: messages.ErrFailed,
			Message: fmt.Sprintf("the engine has failed: %v", *failed), Cause: *failed}
	}
	if e.closing.Load() {
		return refusals.New(messages.ErrClosed, "the engine is closed")
	}
	if e.orphan.Load() {
		return refusals.New(messages.ErrClosed, "the engine's actors were stopped")
	}
	return nil
}

// failure turns the end of an actor into what a caller is told.
//
// What the engine as a whole says comes first: an actor that stops because the engine has
// failed is no cause of its own.
func (e *Engine) failure(err error) error {
	if refused := e.refusal(); refused != nil {
		return refused
	}
	if refusal := (*messages.Refusal)(nil); errors.As(err, &refusal) {
		return refusal
	}
	if errors.Is(err, mailbox.ErrStopped) {
		return refusals.New(messages.ErrClosed, "the engine's actors were stopped")
	}
	return &messages.Refusal{Code: messages.ErrInternal,
		Message: fmt.Sprintf("the request was aborted: %v", err), Cause: err}
}

// warnOfThrash logs that prompts are computed again that the cache has just evicted, and what
// helps.
func warnOfThrash(log *slog.Logger, engine string, forecast bool, t coordinator.Thrash) {
	help := "more device or host memory"
	if !forecast {
		help = "eviction_policy forecast, or " + help
	}
	log.Warn(
		"kvactor: the cache is too small for what is asked for again: it evicted a short while ago "+
			"what it computes now; try "+help,
		"engine", engine, "requests", t.Requests, "prompt_tokens", t.PromptTokens, "thrash_tokens",
		t.ThrashTokens)
}
