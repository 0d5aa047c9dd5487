// Package enginetest has what tests of hosts and of the engine need and a running
// host does not: options that make actors fail, that choose the order in which they
// run, or that leave out what keeps transfers in order.
package enginetest

import (
	"errors"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/internal/settings"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/messages"
)

// Failpoints makes actors of one engine panic, as a bug in them would, so that a
// host can try out what it does when an engine recovers. Actors are coordinator,
// tree, offloader, events, store and pool:NAME. The zero value is ready to be passed to
// WithFailpoints. All methods may be called by any number of goroutines.
type Failpoints struct{ set failpoint.Set }

// Arm makes an actor panic at its next message. The error lists the engine's actors if there is
// none of that name.
func (f *Failpoints) Arm(actor string) error { return f.set.Arm(actor) }

// ArmWithin makes an actor panic in its next change, when so many parts of it are done: messages
// for the coordinator, submissions for the offloader. The others panic before the change if
// parts is even, and behind it if it is odd. Errors are those of Arm.
func (f *Failpoints) ArmWithin(actor string, parts int) error {
	return f.set.ArmWithin(actor, parts)
}

// WithFailpoints allows f to make actors of the engine panic.
func WithFailpoints(f *Failpoints) actors.Option {
	return func(s *settings.Settings) { s.Failpoints = &f.set }
}

// WithScheduler makes a scheduler run every actor of the engine, one message at a
// time in an order of its choice, instead of the callers: for simulations. Use
// Engine.Submit then; calls that wait would wait for the scheduler.
func WithScheduler(scheduler *mailbox.Scheduler) actors.Option {
	return func(s *settings.Settings) { s.Scheduler, s.Scheduled = scheduler, true }
}

// WithFetchHooks makes fetches from a store wait by serve and await: for simulations, in
// which a fetch must not block its goroutine. serve sends a request of the fetch and
// returns when it is answered; await returns when another fetch is over.
func WithFetchHooks(
	serve func(messages.Request) error, await func(done <-chan struct{}),
) actors.Option {
	return func(s *settings.Settings) { s.FetchWith.Serve, s.FetchWith.Await = serve, await }
}

// WithFetchBatches makes fetches read so many bytes with one call of the store, or one page, so
// that a few small pages are several batches.
func WithFetchBatches(bytes int64) actors.Option {
	return func(s *settings.Settings) { s.FetchWith.BatchBytes = bytes }
}

// WithOwnGoroutines gives each actor of the engine a goroutine. The race detector
// then sees an actor that touches what another one holds, which it cannot while the
// actors share the goroutines of their callers. The build tag isolated makes this
// the default.
func WithOwnGoroutines() actors.Option {
	return func(s *settings.Settings) { s.OwnGoroutines = true }
}

// WithFirstGeneration makes the ids of sequences begin with a generation, so that two
// engines that are asked the same give the same answers. By default no two engines
// of a process give the same id.
func WithFirstGeneration(generation uint32) actors.Option {
	return func(s *settings.Settings) { s.FirstGeneration = &generation }
}

// WithoutWait leaves out one of the waits that order transfers and kernels, by its
// name in offloader.WaitNames. It is for tests of hazard checkers, which must find
// each of them missing: an engine without it gives wrong bytes sooner or later.
func WithoutWait(name string) actors.Option {
	return func(s *settings.Settings) { s.SkipWait = name }
}

// Again makes a call until no actor fails over it, as a host does.
func Again[T any](call func() (T, error)) (T, error) {
	for {
		answer, err := call()
		if panicked := (*messages.Panic)(nil); !errors.As(err, &panicked) ||
			errors.Is(err, messages.ErrFailed) {
			return answer, err
		}
	}
}

// Repeat is Again for a call that answers nothing but an error.
func Repeat(call func() error) error {
	_, err := Again(func() (struct{}, error) { return struct{}{}, call() })
	return err
}
