package mailbox

import (
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
)

// What an Abort is told.
var (
	// ErrStopped says that the actor has stopped before it could receive.
	ErrStopped = errors.New("the actor has stopped")
	// ErrPanicked says that the actor panicked while it received the message;
	// the error that wraps it has the reason and, unless the goroutine has ended
	// with the panic, a *Panic.
	ErrPanicked = errors.New("the actor panicked")
)

// Panic is a panic of an actor. It is the reason that the actor's supervisor is
// given.
type Panic struct {
	Reason any    // what panic was called with
	Stack  []byte // of the goroutine, as debug.Stack formats it
}

// Error returns the reason.
func (p *Panic) Error() string { return fmt.Sprint(p.Reason) }

// Aborter is a message that a caller waits for. Abort ends the wait with an
// error. It runs on the goroutine that finds out, so it must not block, and it
// may come after Receive has answered already, when Receive panicked later: an
// implementation makes sure that only the first answer counts. For the same
// reason an answer is the last thing a Receive does with a message.
type Aborter interface{ Abort(error) }

// guard stands between the mailbox and the actor, for messages that cannot be
// received any more.
type guard struct {
	actor.MessageInvoker
	onAbort AbortFunc
	self    identity
	process actor.Process // as registered; nil if the invoker has no name
	dead    bool          // the runner's own
}

// identity is the part of the library's actor context that says which actor it is.
type identity interface {
	Self() *actor.PID
	ActorSystem() *actor.ActorSystem
}

func newGuard(invoker actor.MessageInvoker, onAbort AbortFunc) guard {
	g := guard{MessageInvoker: invoker, onAbort: onAbort}
	if id, ok := invoker.(identity); ok {
		if p, ok := id.ActorSystem().ProcessRegistry.GetLocal(id.Self().Id); ok {
			g.self, g.process = id, p
		}
	}
	return g
}

// InvokeUserMessage delivers a message, or aborts it if the actor is gone.
func (g *guard) InvokeUserMessage(x any) {
	if g.dead {
		g.abort(x, ErrStopped)
		return
	}
	g.MessageInvoker.InvokeUserMessage(x)
}

// InvokeSystemMessage delivers a system message and finds out whether the actor
// has stopped over it. The library does not say so, but a stopped actor is the
// one whose name is no longer its own.
func (g *guard) InvokeSystemMessage(x any) {
	g.MessageInvoker.InvokeSystemMessage(x)
	if g.process == nil || g.dead {
		return
	}
	p, ok := g.self.ActorSystem().ProcessRegistry.GetLocal(g.self.Self().Id)
	g.dead = !ok || p != g.process
}

// escalate aborts the message that the actor panicked on, then tells the supervisor.
func (g *guard) escalate(p *Panic, x any) {
	if x != nil {
		g.abort(x, fmt.Errorf("%w: %w", ErrPanicked, p))
	}
	g.EscalateFailure(p, x)
}

func (g *guard) abort(x any, err error) {
	_, message, sender := actor.UnwrapEnvelope(x)
	switch a, ok := message.(Aborter); {
	case ok:
		a.Abort(err)
	case g.onAbort != nil && !isSystem(message):
		g.onAbort(message, sender, err)
	}
}

// isSystem tells messages of the library from those of its users.
func isSystem(x any) bool {
	switch x.(type) {
	case actor.SystemMessage, *actor.PoisonPill:
		return true
	default:
		return false
	}
}

// AbortDeadLetters aborts messages to actors that do not exist (any more) until
// the function that it returns is called. A message that is sent after an actor's
// name has been removed never reaches a mailbox, so no mailbox can abort it.
func AbortDeadLetters(system *actor.ActorSystem) (unsubscribe func()) {
	subscription := system.EventStream.Subscribe(func(event any) {
		letter, ok := event.(*actor.DeadLetterEvent)
		if !ok {
			return
		}
		if a, ok := letter.Message.(Aborter); ok {
			a.Abort(ErrStopped)
		}
	})
	return func() { system.EventStream.Unsubscribe(subscription) }
}
