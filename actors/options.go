package actors

import (
	"context"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/internal/settings"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// Option sets a collaborator or a bound of an engine. The functions of this package
// whose names begin with With make options; package enginetest has more, for tests.
type Option func(*settings.Settings)

// WithName names the engine's actor. The default is "kvactor-" and a number.
func WithName(name string) Option { return func(s *settings.Settings) { s.Name = name } }

// WithClock gives the time by which retention durations run: it never goes
// back. The default is the time since the engine started.
func WithClock(now func() time.Duration) Option {
	return func(s *settings.Settings) { s.Clock = now }
}

// WithLogger makes the engine write to a logger:
//
//	info   its start, with the pages of each pool; a store that answers again
//	warn   what a recovery has lost and kept; copies that the device has refused; a store that
//	       is not asked any more, pages that it did not take, objects of it that are wrong;
//	       the end of the engine with its parent; a memory split that holds few sequences
//	error  an actor that panics and is restarted, with its stack; the failure of the engine;
//	       a function of the host that panics; memory that was not given back
//
// Losses that may be many are logged with their number when it reaches a power of two. The
// default is silence. The actor library has a log of its own, which belongs to the actor
// system: NewSystem makes a system that writes it to a logger, too.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings.Settings) { s.Logger = logger }
}

// DefaultMaxInFlight is the number of calls that may be in flight unless
// WithMaxInFlight says otherwise: far above what an inference host has, low
// enough that the queue stays small.
const DefaultMaxInFlight = settings.MaxInFlight

// WithMaxInFlight bounds the calls that are accepted and not yet answered. A
// call over the bound waits for its turn, in order, as long as its context.
func WithMaxInFlight(calls int) Option {
	return func(s *settings.Settings) { s.MaxInFlight = calls }
}

// WithBusyRefusal makes a call over the bound return ErrBusy at once.
func WithBusyRefusal() Option { return func(s *settings.Settings) { s.RefuseBusy = true } }

// WithRestartLimit says how many failures of actors within a period the engine
// recovers from. One more, and the engine has failed. The default is 5 in 10 s.
func WithRestartLimit(failures int, within time.Duration) Option {
	return func(s *settings.Settings) { s.MaxRestarts, s.RestartWindow = failures, within }
}

// WithAutoRebalance moves device memory between the pools by demand, as a Rebalance without
// fractions does, whenever so many rounds have passed, directly before an Append or an Admit.
// Pages may get new numbers, but only those of sequences in that Append: any number of hosts
// may use the engine, each with its own steps. A pool shrinks no further than to the last page
// of any other sequence.
//
// The engine tells moved of the new numbers, by pool, before the answer of the Append, on a
// goroutine of the engine. moved must not call the engine, and the host must rewrite its copies
// of the page tables. Sequences of package kvactor follow by themselves, so moved may be nil there.
// The After of the Append, or of a Commit before it, names the last kernel
// on the pages of its sequences. The memory of a cross pool does not move.
func WithAutoRebalance(everyRounds int, moved func(messages.Rebalanced)) Option {
	return func(s *settings.Settings) { s.RebalanceEvery, s.OnRebalance = everyRounds, moved }
}

// WithRenumbering makes the engine tell of the new numbers of WithAutoRebalance before it tells the
// function of that option, which may then be nil. Package kvactor follows its sequences' pages so.
func WithRenumbering(moved func(messages.Rebalanced)) Option {
	return func(s *settings.Settings) {
		then := s.OnRebalance
		s.OnRebalance = func(r messages.Rebalanced) {
			moved(r)
			if then != nil {
				then(r)
			}
		}
	}
}

// WithWaitingRoom makes admissions that find no pages wait until pages become
// available, first come first served, instead of being refused. They wait as long
// as their contexts, and no longer than the engine runs. At most limit calls wait;
// over it, and for what the pools could not even hold if they were empty, the
// refusal is ErrOutOfPages as usual. While one waits, all later admissions wait
// behind it, so that small ones do not starve it. An admission whose copies failed and
// that then lacks pages does not wait: it is refused. A batch waits until its first
// request fits; then each of its requests is admitted or refused as usual. The
// limit must be below the bound of calls in flight, so that releases always get
// through. The default is 0: nothing waits.
func WithWaitingRoom(limit int) Option {
	return func(s *settings.Settings) { s.WaitingRoom = limit }
}

// WithCallObserver makes the engine tell of each Do and each Submit when it is answered,
// with the request record and its results, the time at which the call began, and the
// error that Do returns. observe runs on the goroutine that the answer comes to, must
// neither block nor keep the record, and may be called by many goroutines at once. ctx
// is that of Do, and context.Background for Submit. Requests that a host that is an
// actor sends as messages are not told. Without an observer nothing is timed.
func WithCallObserver(
	observe func(ctx context.Context, request messages.Request, began time.Time, err error),
) Option {
	return func(s *settings.Settings) { s.OnCall = observe }
}

// WithStageObserver makes the engine tell of each Do and each Submit when it is answered, as
// WithCallObserver does, with the stages that it has gone through. The first is the queue and
// began with the call; the last ends now. observe must not keep the list. A call that is
// observed so costs a look at the clock for each stage; without an observer, nothing.
func WithStageObserver(
	observe func(ctx context.Context, request messages.Request, stages []inspect.StageMark, err error),
) Option {
	return func(s *settings.Settings) { s.OnStages = observe }
}

// WithPageObserver makes the engine tell how long blocks stay on device pages, for how long
// they are idle before they are evicted, and how much time passes between two uses: of the
// pages whose numbers are multiples of every, such as 64, in each pool. Times are the
// engine's clock's. observe runs on the goroutine of the pool and must neither block nor
// call the engine.
func WithPageObserver(every int, observe func(inspect.PageTime)) Option {
	return func(s *settings.Settings) { s.PageSample, s.OnPageTime = every, observe }
}

// newSettings applies the options to the defaults. An option is a function of a type
// that hosts cannot name, so that only packages of this module make some.
func newSettings(list []Option) (settings.Settings, error) {
	s := settings.New()
	for i, set := range list {
		if set == nil {
			return s, refusals.New(messages.ErrConfigInvalid, "option %d of %d is nil", i+1, len(list))
		}
		set(&s)
	}
	return s, s.Validate()
}

// LoggerOf returns the logger that WithLogger sets, for the actor system of a host.
func LoggerOf(list []Option) *slog.Logger {
	s, _ := newSettings(list) // whose error is Spawn's
	return s.Logger
}

// deadLetters is how long the library counts dead letters before it logs them again. Its
// goroutine for that outlives the system by as much.
const deadLetters = 10 * time.Millisecond

// NewSystem makes an actor system that logs to logger; nil: nowhere. The library's
// own default is to write to standard error.
func NewSystem(logger *slog.Logger) *actor.ActorSystem {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return logger }),
		actor.WithDeadLetterThrottleInterval(deadLetters),
	)
}
