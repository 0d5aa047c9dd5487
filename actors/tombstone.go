package actors

import (
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/messages"
)

// NewSystem makes an actor system that logs to logger; nil: nowhere. The library's
// own default is to write to standard error.
func NewSystem(logger *slog.Logger) *actor.ActorSystem {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return logger }))
}

// tombstone is what is left of an engine's coordinator under its name: it sends each
// request back in an Aborted. Without it a request to an engine that has ended would
// become a dead letter, which does not contain the request.
type tombstone struct {
	system *actor.ActorSystem
	cause  error
}

var _ actor.Process = (*tombstone)(nil)

// bury puts a tombstone in the place of an actor that has stopped.
func bury(system *actor.ActorSystem, name string, cause error) {
	system.ProcessRegistry.Add(&tombstone{system: system, cause: cause}, name)
}

// unbury removes a tombstone, so that an actor may have the name again.
func unbury(system *actor.ActorSystem, name string) {
	if p, ok := system.ProcessRegistry.GetLocal(name); ok {
		if _, buried := p.(*tombstone); buried {
			system.ProcessRegistry.Remove(actor.NewPID(system.Address(), name))
		}
	}
}

// SendUserMessage sends a request back.
func (t *tombstone) SendUserMessage(_ *actor.PID, message any) {
	_, request, sender := actor.UnwrapEnvelope(message)
	if c, ok := request.(*call); ok {
		c.Abort(t.cause)
		return
	}
	if sender != nil {
		t.system.Root.Send(sender, &messages.Aborted{Request: request, Err: t.cause})
	}
}

// SendSystemMessage tells those who watch the actor that it has stopped.
func (t *tombstone) SendSystemMessage(pid *actor.PID, message any) {
	watch, ok := message.(*actor.Watch)
	if !ok {
		return
	}
	if p, found := t.system.ProcessRegistry.Get(watch.Watcher); found {
		p.SendSystemMessage(watch.Watcher, &actor.Terminated{Who: pid, Why: actor.TerminatedReason_NotFound})
	}
}

// Stop does nothing: the actor has stopped.
func (t *tombstone) Stop(*actor.PID) {}
