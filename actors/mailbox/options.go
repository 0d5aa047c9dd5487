package mailbox

import "github.com/asynkron/protoactor-go/actor"

// Option changes one mailbox.
type Option func(*Mailbox)

// AbortFunc is told of a message that cannot be received, of its sender, nil if it
// has none, and of the error that an Abort would be told. It must not block.
type AbortFunc func(message any, sender *actor.PID, err error)

// OnAbort sets what happens to messages that cannot be received and have no
// method Abort.
func OnAbort(f AbortFunc) Option {
	return func(m *Mailbox) { m.onAbort = f }
}

// Inline makes an actor run on its senders' goroutines, and on the worker when
// their budgets are used up.
func Inline(worker *Worker, options ...Option) []actor.PropsOption {
	return props(worker, func() actor.Mailbox { return newMailbox(DefaultBudget, options) })
}

// Queued makes an actor run on the dispatcher only: on a Worker of its own if
// it may have to wait, on a Scheduler in a simulation.
func Queued(dispatcher actor.Dispatcher, options ...Option) []actor.PropsOption {
	return props(dispatcher, func() actor.Mailbox { return newMailbox(0, options) })
}

func props(d actor.Dispatcher, produce actor.MailboxProducer) []actor.PropsOption {
	return []actor.PropsOption{actor.WithDispatcher(d), actor.WithMailbox(produce)}
}

// probe is a system message that a Mailbox answers at the door.
type probe struct{ mailbox *Mailbox }

// Of gives the mailbox of a local actor; nil if the actor does not exist or has
// a mailbox of another kind. Posting to it saves the way through the library,
// a few nanoseconds; a mailbox whose actor has stopped aborts what it gets.
func Of(system *actor.ActorSystem, pid *actor.PID) *Mailbox {
	process, ok := system.ProcessRegistry.Get(pid)
	if _, local := process.(*actor.ActorProcess); !ok || !local {
		return nil
	}
	var p probe
	process.SendSystemMessage(pid, &p)
	return p.mailbox
}
