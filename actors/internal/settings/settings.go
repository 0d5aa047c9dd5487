// Package settings holds what the options of an engine set. It is a package of its
// own so that package enginetest can set what hosts cannot.
package settings

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/offloader"
)

// Settings are the collaborators and bounds of one engine. The functions of
// package actors whose names begin with With say what each field means.
type Settings struct {
	Name          string
	Clock         func() time.Duration
	Logger        *slog.Logger
	MaxInFlight   int
	RefuseBusy    bool
	MaxRestarts   int
	RestartWindow time.Duration
	// RebalanceEvery is the number of rounds between rebalances by demand; 0: none.
	RebalanceEvery int
	OnRebalance    func(messages.Rebalanced)
	WaitingRoom    int
	// OnCall is told of each call; nil: no one is.
	OnCall func(ctx context.Context, request messages.Request, began time.Time, err error)
	// OnStages is told of the stages of each call; nil: no one is.
	OnStages func(ctx context.Context, request messages.Request, stages []inspect.StageMark, err error)
	// OnPageTime is told of pages whose numbers are multiples of PageSample; nil: of none.
	PageSample int
	OnPageTime func(inspect.PageTime)
	Store      any // *actors.StoreConfig; nil: there is none
	// Handover is an actors.HandoverConfig; nil: the defaults.
	Handover any

	// What follows is set by package enginetest alone.

	Scheduler *mailbox.Scheduler
	Scheduled bool // Scheduler was given, nil or not
	// OwnGoroutines gives each actor a goroutine.
	OwnGoroutines bool
	// FetchWith serves the requests of a fetch and waits for other fetches, instead of the
	// caller's goroutine; the zero value does neither.
	FetchWith  FetchHooks
	SkipWait   string // one of offloader.WaitNames; empty: none
	Failpoints *failpoint.Set
	// FirstGeneration is that of the coordinator; nil: one that no other engine of
	// the process has.
	FirstGeneration *uint32
}

// FetchHooks stand for what a fetch waits for.
type FetchHooks struct {
	Serve func(request messages.Request) error
	Await func(done <-chan struct{})
	// BatchBytes bounds the bytes of one call of the store; 0: as without hooks.
	BatchBytes int64
}

// Defaults are the limits of an engine that nothing was said about.
const (
	MaxInFlight   = 4096
	MaxRestarts   = 5
	RestartWindow = 10 * time.Second
)

// New returns the settings of an engine without options. Its clock starts now, and its
// log goes nowhere.
func New() Settings {
	start := time.Now()
	return Settings{
		Clock:       func() time.Duration { return time.Since(start) },
		Logger:      slog.New(slog.DiscardHandler),
		MaxInFlight: MaxInFlight, MaxRestarts: MaxRestarts, RestartWindow: RestartWindow,
		OwnGoroutines: isolated,
	}
}

// Simulated tells whether a scheduler runs the engine: what else has a goroutine of its own then
// runs on that of its caller.
func (s *Settings) Simulated() bool { return s.Scheduler != nil }

// Validate refuses what no engine can be made with. The messages begin with the name of
// the option, which the host can look up.
func (s *Settings) Validate() error {
	refuse := func(format string, args ...any) error {
		return refusals.New(messages.ErrConfigInvalid, format, args...)
	}
	switch {
	case s.MaxInFlight < 1:
		return refuse("WithMaxInFlight: %d calls, want at least 1", s.MaxInFlight)
	case s.RebalanceEvery < 0:
		return refuse("WithAutoRebalance: every %d rounds, want at least 1", s.RebalanceEvery)
	case s.RebalanceEvery > 0 && s.OnRebalance == nil:
		return refuse("WithAutoRebalance: no function to tell of moved pages")
	case s.WaitingRoom < 0 || s.WaitingRoom >= s.MaxInFlight:
		return refuse("WithWaitingRoom: %d calls are not in 0 … %d, below the bound of calls in flight",
			s.WaitingRoom, s.MaxInFlight-1)
	case s.MaxRestarts < 0 || s.RestartWindow < 0:
		return refuse("WithRestartLimit: %d failures within %v, want at least 0", s.MaxRestarts,
			s.RestartWindow)
	case s.OnPageTime != nil && (s.PageSample < 1 || s.PageSample > math.MaxInt32):
		return refuse("WithPageObserver: every %d pages, want at least 1", s.PageSample)
	case s.Clock == nil:
		return refuse("WithClock: no clock")
	case s.Logger == nil:
		return refuse("WithLogger: no logger")
	case s.Scheduled && s.Scheduler == nil:
		return refuse("WithScheduler: no scheduler")
	case s.SkipWait != "" && !slices.Contains(offloader.WaitNames(), s.SkipWait):
		return refuse("WithoutWait: no wait %q: there are %s", s.SkipWait,
			strings.Join(offloader.WaitNames(), ", "))
	}
	return nil
}
