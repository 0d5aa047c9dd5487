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
	self        *mailbox.Mailbox
}

// memoryMoved tells that device memory follows a rebalance.
type memoryMoved struct{ resize *messages.ResizeDevice }

// Receive serves one round and sends it back.
func (a *offloaderActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *messages.Move:
		a.core.Begin(m)
		for s := a.core.Next(); s != nil; s = a.core.Next() {
			a.core.Submitted(a.lanes.submit(s))
		}
		a.core.Finish()
	case *messages.ResizeDevice:
		// The one wait for the device: on a goroutine, never in here.
		go func() {
			m.Err = a.lanes.resize(m)
			a.self.PostUserMessage(&memoryMoved{m})
		}()
		return
	case *memoryMoved:
		for p, n := range m.resize.Pages {
			a.core.SetDevicePages(messages.PoolID(p), n)
		}
		a.coordinator.PostUserMessage(m.resize)
		return
	case *messages.Audit:
		m.Problem = a.core.Check()
	default:
		return
	}
	a.coordinator.PostUserMessage(ctx.Message())
}
