package actors

import (
	"slices"
	"strings"
	"time"

	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/windows"
)

// Config is what an engine is made of.
type Config struct {
	Model windows.Model
	// Cache starts from windows.DefaultConfig.
	Cache windows.Config
	// Pages are the exact page counts of each pool, by PoolID, the cross pool
	// last; nil splits the device's free memory and Cache.HostCacheSize as Cache
	// says.
	Pages []windows.Counts
	// Device holds the pages. It outlives the engine.
	Device gpu.Device
}

// unsupported refuses models that package windows describes and the engine does
// not serve.
func unsupported(m windows.Model) error {
	if m.Recurrent() {
		return messages.Refuse(messages.NotSupported, "the engine does not serve models with recurrent layers (state)")
	}
	return nil
}

// resolve validates everything and determines the page counts.
func (c *Config) resolve() ([]windows.Pool, []windows.Counts, error) {
	if c.Device == nil {
		return nil, nil, messages.Refuse(messages.ConfigInvalid, "no device")
	}
	if err := c.Cache.Validate(c.Model); err != nil {
		return nil, nil, err
	}
	if err := unsupported(c.Model); err != nil {
		return nil, nil, err
	}
	pools, err := windows.Pools(c.Model, c.Cache)
	if err != nil {
		return nil, nil, err
	}
	if c.Model.Encodes() {
		return c.resolveJoint(pools)
	}
	if c.Pages != nil {
		return pools, c.Pages, validatePages(pools, c.Pages)
	}
	memory, err := c.Device.Memory()
	if err != nil {
		return nil, nil, err
	}
	counts, err := windows.Split(pools, c.Model, c.Cache, windows.Budget{DeviceBytes: memory.Free, HostBytes: c.Cache.HostCacheSize})
	return pools, counts, err
}

func validatePages(pools []windows.Pool, pages []windows.Counts) error {
	if len(pages) != len(pools) {
		return messages.Refuse(messages.ConfigInvalid, "page counts for %d pools, the model has %d", len(pages), len(pools))
	}
	var problems []error
	for i, n := range pages {
		if n.Primary < 1 || n.Primary > windows.MaxPages || n.Secondary < 0 || n.Secondary > windows.MaxPages {
			problems = append(problems, messages.Refuse(messages.ConfigInvalid,
				"pool %s: %d primary and %d secondary pages are not in 1 … %d and 0 … %d", pools[i].Name, n.Primary, n.Secondary, windows.MaxPages, windows.MaxPages))
		}
	}
	return windows.Join(problems...)
}

// Option is a collaborator or a bound of an engine.
type Option func(*options)

type options struct {
	name          string
	clock         func() time.Duration
	maxInFlight   int
	refuseBusy    bool
	scheduler     *mailbox.Scheduler
	scheduled     bool
	maxRestarts   int
	restartWindow time.Duration
	skipWait      string
	rebalance     rebalanceOption
	waitingRoom   int
	side          side
}

// WithName names the engine's actor; the default is "kvactor" and a number.
func WithName(name string) Option { return func(o *options) { o.name = name } }

// WithClock gives the time by which retention durations run: it never goes
// back. The default is the time since the engine started.
func WithClock(now func() time.Duration) Option { return func(o *options) { o.clock = now } }

// DefaultMaxInFlight is the number of calls that may be in flight unless
// WithMaxInFlight says otherwise: far above what an inference host has, low
// enough that the queue stays small.
const DefaultMaxInFlight = 4096

// WithMaxInFlight bounds the calls that are accepted and not yet answered. A
// call over the bound waits for its turn, in order, as long as its context.
func WithMaxInFlight(calls int) Option { return func(o *options) { o.maxInFlight = calls } }

// WithBusyRefusal makes a call over the bound return ErrBusy at once.
func WithBusyRefusal() Option { return func(o *options) { o.refuseBusy = true } }

// WithScheduler makes a scheduler run every actor of the engine, one message at
// a time in an order of its choice, instead of the callers: for simulations.
// Use Submit then; calls that wait would wait for the scheduler.
func WithScheduler(s *mailbox.Scheduler) Option {
	return func(o *options) { o.scheduler, o.scheduled = s, true }
}

// WithRestartLimit says how many failures of actors within a while the engine
// recovers from; one more and it has failed. The default is 5 in 10 s.
func WithRestartLimit(failures int, within time.Duration) Option {
	return func(o *options) { o.maxRestarts, o.restartWindow = failures, within }
}

// rebalanceOption is what WithAutoRebalance says.
type rebalanceOption struct {
	every int
	moved func(messages.Rebalanced)
}

// WithAutoRebalance moves device memory between the pools by demand, as a
// Rebalance without fractions does, whenever so many rounds have passed. It is
// opt-in because pages of running sequences may get new numbers: moved is told of
// them, by pool, before the next answer, on a goroutine of the engine; it must
// not call the engine, and the host must rewrite its copies of the page tables.
//
// Memory moves at step boundaries only: directly before an Append or an Admit is
// served. So when a host sends one of these, it must have told of every kernel
// that it has launched on pages of the engine, by the After of a Commit or a
// Release, as a loop of append, launch and commit does; several hosts of one
// engine must take their steps together. Not for encoder–decoder models.
func WithAutoRebalance(everyRounds int, moved func(messages.Rebalanced)) Option {
	return func(o *options) { o.rebalance = rebalanceOption{everyRounds, moved} }
}

// WithoutWait leaves out one of the waits that order transfers and kernels, by
// its name in offloader.WaitNames. It is for tests of hazard checkers, which
// must miss each of them: an engine without it gives wrong bytes sooner or later.
func WithoutWait(name string) Option { return func(o *options) { o.skipWait = name } }

// WithWaitingRoom lets admissions that find no pages wait instead of being
// refused, first come first served, until pages are let go: as long as their
// contexts, and no longer than the engine lives. At most limit calls wait; over
// it, and for what the pools could not even hold if they were empty, the refusal
// is ErrOutOfPages as usual. While one waits, all later admissions wait behind
// it, so that small ones do not starve it. A batch waits until its first request
// fits and is then judged as usual: the others may be refused. The limit must be
// below the bound of calls in flight, so that releases always get through; an
// encoder–decoder model has no room. The default is 0: nothing waits.
func WithWaitingRoom(limit int) Option { return func(o *options) { o.waitingRoom = limit } }

func newOptions(list []Option) (options, error) {
	start := time.Now()
	o := options{maxInFlight: DefaultMaxInFlight, maxRestarts: 5, restartWindow: 10 * time.Second, clock: func() time.Duration { return time.Since(start) }}
	for i, set := range list {
		if set == nil {
			return o, messages.Refuse(messages.ConfigInvalid, "option %d of %d is nil", i+1, len(list))
		}
		set(&o)
	}
	return o, o.validate()
}

// validate refuses what no engine can be made with.
func (o *options) validate() error {
	wrong := func(format string, args ...any) error {
		return messages.Refuse(messages.ConfigInvalid, format, args...)
	}
	switch r := &o.rebalance; {
	case o.maxInFlight < 1:
		return wrong("%d calls in flight are not at least 1", o.maxInFlight)
	case r.every < 0:
		return wrong("a rebalance every %d rounds", r.every)
	case r.every > 0 && r.moved == nil:
		return wrong("WithAutoRebalance with nobody to tell of moved pages")
	case o.waitingRoom < 0 || o.waitingRoom >= o.maxInFlight:
		return wrong("a waiting room for %d calls is not in 0 … %d, below the bound of calls in flight", o.waitingRoom, o.maxInFlight-1)
	case o.maxRestarts < 0 || o.restartWindow < 0:
		return wrong("a limit of %d failures within %v: both are at least 0", o.maxRestarts, o.restartWindow)
	case o.clock == nil:
		return wrong("WithClock without a clock")
	case o.scheduled && o.scheduler == nil:
		return wrong("WithScheduler without a scheduler")
	case o.skipWait != "" && !slices.Contains(offloader.WaitNames(), o.skipWait):
		return wrong("there is no wait %q: there are %s", o.skipWait, strings.Join(offloader.WaitNames(), ", "))
	}
	return nil
}
