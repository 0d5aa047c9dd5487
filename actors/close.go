package actors

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// ending is how far the end of an engine has come. Each step is done once, by the
// holder of the turn; a Close whose context ends leaves the rest to the next one.
//
//	running ──Close──▶ serve what was accepted ──▶ stop the actors ──┐
//	   │                                                             ▼
//	   └─ the parent stops, or the engine fails ──▶ wait for tickets of copies and
//	                                                kernels ──▶ give memory back: over
type ending struct {
	// turn, of capacity 1, is held by the one Close, or the engine's actor when it
	// stops without a Close, that ends the engine. The fields after it are the
	// holder's.
	turn     chan struct{}
	stopping bool
	served   bool // what was accepted has been served, or aborted
	over     bool // all has been given back

	terminated chan struct{} // closed when the engine's actor has stopped, and with it all others
	stopped    chan struct{} // closed when, after that, no goroutine of the engine runs
	leaked     atomic.Int64  // device pages that sequences held at the end
}

func (e *ending) init() {
	e.turn, e.terminated, e.stopped = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
}

// fail makes the engine refuse every further call with the cause.
func (e *Engine) fail(cause error) {
	if e.closing.Load() || e.orphan.Load() {
		return
	}
	if e.failed.CompareAndSwap(nil, &cause) {
		e.log.Error("kvactor: the engine has failed", "engine", e.settings.Name, "cause", cause)
	}
}

// Close serves what has been accepted, stops the actors and gives the device's
// memory back. It returns the number of device pages that sequences still held,
// also when the engine has failed or its parent actor has stopped.
//
// Close returns with the context's error when ctx ends. What it was waiting for
// decides what is left: a call that was accepted is aborted; an actor that does not
// stop, since the device does not return from a call, stops when it can; copies and
// kernels that still use the memory keep it: the memory is not given back, and the
// error says so. A further Close goes on where the last one gave up. After one that
// has returned no error, Close does nothing and returns the same number of pages.
func (e *Engine) Close(ctx context.Context) (leakedPages int, err error) {
	e.closing.Store(true)
	select {
	case e.ending.turn <- struct{}{}:
		defer func() { <-e.ending.turn }()
	case <-ctx.Done():
		return e.leaked(), ctx.Err()
	}
	if e.ending.over {
		return e.leaked(), nil
	}
	e.exchange.close(ctx)
	finishSaves(ctx, e)
	err = e.serveRest(ctx)
	e.stop()
	if late := e.awaitStop(ctx); late != nil {
		return e.leaked(), errors.Join(err, late)
	}
	over, released := e.streams.close(ctx)
	if e.ending.over = over; over {
		e.exchange.over()
	}
	return e.leaked(), errors.Join(err, released)
}

// leaked is the number of device pages that sequences held at the end.
func (e *Engine) leaked() int { return int(e.ending.leaked.Load()) }

// closeTries is how often Close asks for what is left to be served: an actor that
// fails over it aborts the request, which nothing else does before the actors stop.
const closeTries = 3

// serveRest waits until what has been accepted is served. An engine that has failed
// or that has lost its parent serves nothing.
func (e *Engine) serveRest(ctx context.Context) error {
	if e.ending.served {
		return nil
	}
	e.ending.served = true
	err := error(messages.ErrClosed)
	again := func() bool {
		return errors.Is(err, messages.ErrClosed) || errors.Is(err, messages.ErrInternal)
	}
	for try := 0; try < closeTries && again() && e.serves(); try++ {
		r := &protocol.Close{}
		if err = serveOwn(ctx, e, r); err == nil {
			e.ending.leaked.Store(int64(r.LeakedPages))
		}
	}
	if !e.serves() {
		return nil
	}
	return err
}

// finishSaves waits until what was to be saved has been, or has failed. Nothing comes of
// its error: what is not saved is lost with the engine.
func finishSaves(ctx context.Context, e *Engine) {
	if e.store == nil || !e.serves() {
		return
	}
	m := &protocol.Flush{}
	if serveOwn(ctx, e, m) == nil {
		_ = flush(ctx, e, m)
	}
}

// serves tells whether the actors are there to serve anything.
func (e *Engine) serves() bool { return e.failed.Load() == nil && !e.orphan.Load() }

// stop begins to stop the actors, then the goroutines of the engine: ending.stopped
// is closed when all have stopped. The holder of the turn calls it. It runs on a
// goroutine of its own, because an actor that is in a call of the device stops when
// that returns, and Close must return when its context ends.
func (e *Engine) stop() {
	if e.ending.stopping {
		return
	}
	e.ending.stopping = true
	go func() {
		if e.pid != nil {
			e.process.Stop(e.pid)
			<-e.ending.terminated
		}
		e.background.end()
		e.workers.close()
		e.unsubscribe()
		close(e.ending.stopped)
	}()
}

// stopGrace is how long Close waits for the actors to stop when its context has
// ended before that: idle actors stop in microseconds, so only a device that does
// not return from a call takes longer.
const stopGrace = 100 * time.Millisecond

// awaitStop waits for the end of the engine's goroutines.
func (e *Engine) awaitStop(ctx context.Context) error {
	select {
	case <-e.ending.stopped:
		return nil
	case <-ctx.Done():
	}
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-e.ending.stopped:
		return nil
	case <-grace.C:
		return fmt.Errorf("the pools keep their memory, the engine's actors have not stopped: %w",
			ctx.Err())
	}
}

// orphanPatience is how long an engine whose actor was stopped waits at most for
// copies and kernels before the stop goes on: longer than a step of a host
// takes. What takes still longer is waited for beside the actors.
const orphanPatience = 2 * time.Second

// orphaned ends an engine whose actor has stopped without a Close, as the last act
// of that actor: when a host's actor is restarted, its Started comes after this, and
// the next engine finds the memory free.
func (e *Engine) orphaned() {
	select {
	case e.ending.turn <- struct{}{}:
	default:
		return // a Close goes on with it
	}
	e.log.Warn("kvactor: the engine's actor was stopped", "engine", e.settings.Name, "leaked_pages",
		e.leaked())
	e.background.end()
	ctx, cancel := context.WithTimeout(context.Background(), orphanPatience)
	defer cancel()
	if e.ending.over, _ = e.streams.close(ctx); e.ending.over {
		e.exchange.over()
	}
	e.stop()
	go func() {
		defer func() { <-e.ending.turn }()
		<-e.ending.stopped
		if e.ending.over {
			return
		}
		var err error
		if e.ending.over, err = e.streams.close(context.Background()); err != nil {
			e.log.Error("kvactor: memory was not given back", "engine", e.settings.Name, "cause", err)
		}
		e.exchange.over()
	}()
}
