package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/messages"
)

// stoppedCoordinator has the name of an engine's coordinator when the engine has ended:
// it sends each request back in an Aborted. Without it a request to an engine that has
// ended would become a dead letter, whose answer does not contain the request. System messages are
// dead letters, so that those who watch the actor learn that it has stopped.
type stoppedCoordinator struct {
	actor.Process
	system *actor.ActorSystem
	cause  error
}

// keepName gives the name of an actor that has stopped to a stoppedCoordinator.
func keepName(system *actor.ActorSystem, name string, cause error) {
	system.ProcessRegistry.Add(&stoppedCoordinator{system.DeadLetter, system, cause}, name)
}

// freeName removes a stoppedCoordinator, so that the coordinator of another engine may
// have the name.
func freeName(system *actor.ActorSystem, name string) {
	if p, ok := system.ProcessRegistry.GetLocal(name); ok {
		if _, stopped := p.(*stoppedCoordinator); stopped {
			system.ProcessRegistry.Remove(actor.NewPID(system.Address(), name))
		}
	}
}

// SendUserMessage sends a request back.
func (c *stoppedCoordinator) SendUserMessage(_ *actor.PID, message any) {
	_, request, sender := actor.UnwrapEnvelope(message)
	if waiting, ok := request.(*call); ok {
		waiting.Abort(c.cause)
		return
	}
	if sender != nil {
		c.system.Root.Send(sender, &messages.Aborted{Request: request, Err: c.cause})
	}
}
