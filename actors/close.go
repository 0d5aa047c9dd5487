package actors

import (
	"context"
	"errors"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// fail makes the engine refuse every further call with the cause.
func (e *Engine) fail(cause error) {
	if e.closing.Load() {
		return
	}
	e.failed.CompareAndSwap(nil, &cause)
	if e.side.failed != nil {
		e.side.failed(cause)
	}
}

// Close serves what has been accepted, stops the actors and gives the device's
// memory back. It answers the number of device pages that sequences still held.
// A second Close waits for the first. When ctx ends before the engine has come
// to rest, the rest is aborted: every call that waits gets an error. When it ends
// before all copies and kernels that the engine knows of have passed, the memory is
// not given back, which the error says; it is the device's until that is closed.
func (e *Engine) Close(ctx context.Context) (leakedPages int, err error) {
	if e.closing.Swap(true) {
		select {
		case <-e.closed:
			return e.leaked, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	r := &protocol.Close{}
	err = messages.ErrClosed
	for try := 0; try < closeTries && errors.Is(err, messages.ErrClosed) && e.failed.Load() == nil; try++ {
		c := newCall(e, r)
		e.coordinator.PostUserMessage(c)
		err = c.wait(ctx)
	}
	if e.failed.Load() != nil {
		err = nil
	}
	e.leaked = r.LeakedPages
	e.stop()
	err = errors.Join(err, e.giveBack(ctx))
	close(e.closed)
	return e.leaked, err
}

// closeTries is how often Close asks for what is left to be served: an actor that
// fails over it aborts the request, which nobody else does before the actors stop.
const closeTries = 3

// stop ends the actors and what they run on.
func (e *Engine) stop() {
	if e.pid != nil {
		stopped := e.system.Root.StopFuture(e.pid)
		_ = stopped.Wait()
	}
	e.worker.Close()
	if e.unsubscribe != nil {
		e.unsubscribe()
	}
}

var _ actor.SupervisorStrategy = (*family)(nil)

// Inject makes an actor panic at its next message, as a bug in it would: it is
// how hosts and tests try out recovery. Actors are coordinator, tree, offloader,
// events and pool:NAME; with an encoder–decoder model also cross:NAME, the same but
// events for the cross pool, and join.
func (e *Engine) Inject(name string) error {
	return e.ignite(name, (*fuse).light)
}

// InjectWithin makes an actor panic in the middle of its next change, when so
// many parts of it are done: messages for the coordinator, items of a batch for
// the others. If the change has fewer, it is done and nobody is told.
func (e *Engine) InjectWithin(name string, parts int) error {
	return e.ignite(name, func(f *fuse) { f.lightWithin(parts) })
}

// ignite does something to the fuse of an actor.
func (e *Engine) ignite(name string, light func(*fuse)) error {
	if err := e.refusal(); err != nil {
		return err
	}
	if e.joint != nil {
		return e.joint.ignite(name, light)
	}
	f, ok := e.family.shells[name]
	if !ok {
		return messages.Refuse(messages.BadRequest, "no actor %q: there are coordinator, tree, offloader, events and pool:NAME", name)
	}
	light(f)
	return nil
}
