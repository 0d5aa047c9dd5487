package actors

import (
	"context"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
)

// offloaderActor is the shell of the host tier: its core decides and orders,
// the lanes carry the copies to the device.
type offloaderActor struct {
	core        *offloader.Offloader
	renew       func() *offloader.Offloader
	lanes       *lanes
	coordinator *mailbox.Mailbox
	self        *mailbox.Mailbox
	fuse        fuse
	aside       func(func()) // runs what waits for the device
	moving      bool         // a Move is under way: after a panic host memory cannot be trusted
}

// waited is a message whose answer had to wait for the device.
type waited struct{ message any }

// Receive serves one round and sends it back.
func (a *offloaderActor) Receive(ctx actor.Context) {
	if library(ctx.Message()) {
		return
	}
	a.fuse.burn("offloader")
	if a.moving && !mends(ctx.Message()) {
		return // the coordinator hears of the failure, and asks again
	}
	switch m := ctx.Message().(type) {
	case *protocol.Move:
		a.moving = true
		a.move(m)
		a.moving = false
	case *protocol.OffloadAhead:
		a.moving = true
		a.ahead(m)
		a.moving = false
	case *protocol.Audit:
		m.Problem = a.core.Check()
	case *protocol.RebuildHost:
		a.rebuild(m)
	case *protocol.ResizeDevice:
		a.wait(m, func() { m.Err = a.lanes.resize(m) })
		return
	case *protocol.Quiesce:
		a.wait(m, func() { m.Err = a.lanes.sync(context.Background()) })
		return
	case *waited:
		a.waited(m.message)
		a.coordinator.PostUserMessage(m.message)
		return
	default:
		return
	}
	a.coordinator.PostUserMessage(ctx.Message())
}

// mends tells what is served by an offloader that has failed in the middle of a
// round: what a recovery asks for.
func mends(message any) bool {
	switch message.(type) {
	case *protocol.RebuildHost, *protocol.Quiesce, *protocol.ResizeDevice, *waited:
		return true
	}
	return false
}

// move lets the core decide and carries what it submits.
func (a *offloaderActor) move(m *protocol.Move) {
	for i := range m.Marks {
		a.lanes.saw(m.Marks[i].Ticket)
	}
	if n, breaks := a.fuse.within(); breaks {
		a.breakOff(m, n)
	}
	a.core.Begin(m)
	a.carry()
}

// breakOff does a part of a round and panics: either not all is decided, or not
// all that is decided is submitted.
func (a *offloaderActor) breakOff(m *protocol.Move, parts int) {
	if parts%2 == 0 {
		a.core.Begin(cutMove(m, parts/2))
		blow("offloader")
	}
	a.core.Begin(m)
	for range parts / 2 {
		if s := a.core.Next(); s != nil {
			a.core.Submitted(a.lanes.submit(s))
		}
	}
	blow("offloader")
}

// ahead copies pages near eviction if the link has nothing else to do.
func (a *offloaderActor) ahead(m *protocol.OffloadAhead) {
	if m.Busy = !a.lanes.idle(offloader.Offload); m.Busy {
		return
	}
	for p := range m.Pools {
		if len(m.Pools[p].Victims) == 0 {
			m.Copied = append(m.Copied, 0)
			continue
		}
		m.Copied = append(m.Copied, a.core.PlanAhead(messages.PoolID(p), m.Stamp, &m.Pools[p]))
		a.carry()
	}
}

// carry brings what the core has planned to the device.
func (a *offloaderActor) carry() {
	for s := a.core.Next(); s != nil; s = a.core.Next() {
		a.core.Submitted(a.lanes.submit(s))
	}
	a.core.Finish()
}

// wait lets a goroutine wait for the device, never the actor; in a simulation
// it is a turn that the scheduler gives when it likes.
func (a *offloaderActor) wait(message any, forDevice func()) {
	a.aside(func() {
		forDevice()
		a.self.PostUserMessage(&waited{message})
	})
}

// waited goes on where the wait began.
func (a *offloaderActor) waited(message any) {
	switch m := message.(type) {
	case *protocol.ResizeDevice:
		if a.moving {
			return // a broken core; the one that follows hears of the pages
		}
		for p, n := range m.Pages {
			a.core.SetDevicePages(messages.PoolID(p), n)
		}
	case *protocol.Quiesce:
		m.Dirty = a.moving
	}
}

// rebuild makes the core anew; all transfers are over.
func (a *offloaderActor) rebuild(m *protocol.RebuildHost) {
	old := a.core
	a.core = a.renew()
	a.moving = false // what it held is sorted out; a recovery that began anew would have asked again
	m.Counts = m.Counts[:0]
	for p := range m.Kept {
		id := messages.PoolID(p)
		for i := range m.Kept[p] {
			k := &m.Kept[p][i]
			k.Use = old.UseOf(id, k.Block)
		}
		a.core.SetDevicePages(id, m.Pages[p])
		a.core.Adopt(id, m.Kept[p])
		m.Counts = append(m.Counts, a.core.Counts(id))
	}
}
