package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
)

// offloaderActor is the shell of the host tier: its core decides and orders,
// the lanes carry the copies to the device.
type offloaderActor struct {
	core        *offloader.Offloader
	lanes       *lanes
	coordinator *mailbox.Mailbox
}

// Receive serves one round and sends it back.
func (a *offloaderActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *messages.Move:
		a.core.Begin(m)
		for s := a.core.Next(); s != nil; s = a.core.Next() {
			a.core.Submitted(a.lanes.submit(s))
		}
		a.core.Finish()
	case *messages.Audit:
		m.Problem = a.core.Check()
	default:
		return
	}
	a.coordinator.PostUserMessage(ctx.Message())
}
