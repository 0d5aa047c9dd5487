package actors

import (
	"context"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
)

// offloaderActor is the shell of the host tier: its core decides and orders,
// the copy streams carry the copies to the device.
type offloaderActor struct {
	core        *offloader.Offloader
	renew       func() *offloader.Offloader
	streams     *copyStreams
	coordinator *mailbox.Mailbox
	self        *mailbox.Mailbox
	saver       *saver // nil: there is no store
	point       failpoint.Point
	// moving is set while a Move is under way. It stays set after a panic: then the
	// record of host memory cannot be trusted, and only what a recovery asks for is served.
	moving     bool
	background *background
	waits      []*wait // for the device; the first is under way
}

// wait is a message whose answer waits for the device: on a task of its own, never
// in the actor. One wait is served after the other. The task has the wait, and with it its
// record, until it posts it back.
type wait struct {
	message any
	tickets []messages.Ticket // that must have passed
	then    func() error      // what the task does then; nil: nothing
	pages   []int             // device pages as the resize leaves them; nil: it is none
	err     error             // of the device, when the wait is over
}

// Receive serves one round and sends it back. The record is the coordinator's and lent
// until the answer. What waits for the device keeps its record longer: the actor serves
// others meanwhile, and answers when the task has posted the wait.
func (a *offloaderActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *fence:
		a.coordinator.PostUserMessage(m)
	default:
		if !library(m) {
			a.receive(m)
		}
	}
}

// receive sets moving around each change without a defer: a deferred reset would run in a
// panic, too, and hide that the core was left within a change.
func (a *offloaderActor) receive(message any) {
	// Before all that can fail: a failure over the end of a wait loses its answer, which a
	// recovery asks for again, and must not leave the waits behind it where they are.
	if w, ok := message.(*wait); ok {
		a.endWait(w)
	}
	a.point.Hit("offloader")
	if a.moving && !servesRecovery(message) {
		// The record is not sent back: the coordinator is told of the failure by the
		// supervisor, gets its records back by a fence, and asks again.
		return
	}
	switch m := message.(type) {
	case *protocol.ResizeDevice:
		a.wait(&wait{message: m})
		return
	case *wait:
		switch r := m.message.(type) {
		case *protocol.ResizeDevice:
			r.Err, r.Dirty = m.err, a.moving
		case *protocol.LoadPages:
			if m.err != nil {
				a.loadFailed(m.err)
				return
			}
			a.moving = false
		}
		a.coordinator.PostUserMessage(m.message)
		return
	}
	// Every other message counts as a change, also those that only read: to tell them apart
	// would spare a rebuild after a bug, no more.
	a.moving = true
	switch m := message.(type) {
	case *protocol.Move:
		a.move(m)
	case *protocol.OffloadAhead:
		a.ahead(m)
	case *protocol.Audit:
		m.Problem = a.core.Check()
	case *protocol.SampleHost:
		a.core.Sample(m)
	case *protocol.SavePages:
		a.savePages(m)
	case *protocol.HostRoom:
		a.core.Room(m)
	case *protocol.LoadPages:
		// The actor is in the middle of a change, and the answer comes, when the bytes are there.
		a.loadPages(m)
		return
	case *protocol.CopyPages:
		a.copyPages(m)
	case *protocol.RebuildHost:
		a.rebuild(m)
	default:
		a.moving = false
		return
	}
	a.moving = false
	a.coordinator.PostUserMessage(message)
}

// servesRecovery tells what is served by an offloader that has failed in the middle of
// a round: what a recovery asks for.
func servesRecovery(message any) bool {
	switch message.(type) {
	case *protocol.RebuildHost, *protocol.ResizeDevice, *wait:
		return true
	}
	return false
}

// move gives the core a round's work and submits the copies that the core plans. The
// tickets of the host's kernels count for the end: Close waits for them.
func (a *offloaderActor) move(m *protocol.Move) {
	for i := range m.Marks {
		a.streams.note(m.Marks[i].Ticket)
	}
	if n, breaks := a.point.Within(); breaks {
		a.panicWithin(m, n)
	}
	// What the round drops from host memory is read for the store before a copy is submitted
	// that writes to its page.
	a.core.Begin(m)
	a.saveEvicted(a.core.Evicted())
	last := a.submitPlanned()
	if a.saver != nil {
		a.saver.send(a.core.Saves(), last)
	}
}

// panicWithin decides a round, submits a part of it and panics.
func (a *offloaderActor) panicWithin(m *protocol.Move, parts int) {
	a.core.Begin(m)
	for range parts {
		if s := a.core.Next(); s != nil {
			a.core.Submitted(a.streams.submit(s))
		}
	}
	failpoint.Panic("offloader")
}

// ahead copies pages near eviction if the link has nothing else to do: such copies
// must not delay those that a request waits for.
//
// Busy tells the coordinator to ask again later. The look costs one call of the device and
// waits for nothing.
func (a *offloaderActor) ahead(m *protocol.OffloadAhead) {
	if m.Busy = !a.streams.idle(offloader.Offload); m.Busy {
		return
	}
	// The plan of one pool is submitted before that of the next is made: the core has one
	// plan at a time.
	for p := range m.Pools {
		if len(m.Pools[p].Victims) == 0 {
			m.Copied = append(m.Copied, 0)
			continue
		}
		m.Copied = append(m.Copied, a.core.PlanAhead(messages.PoolID(p), &m.Pools[p]))
		a.submitPlanned()
	}
}

// submitPlanned submits the copies that the core has planned, and returns the last ticket
// of the stream to host memory, zero if nothing went there. The core plans one
// submission at a time, because what it plans next depends on what the device has
// refused.
func (a *offloaderActor) submitPlanned() (last messages.Ticket) {
	for s := a.core.Next(); s != nil; s = a.core.Next() {
		ticket, failed := a.streams.submit(s)
		if s.Lane == offloader.Offload && !ticket.IsZero() {
			last = ticket
		}
		a.core.Submitted(ticket, failed)
	}
	a.core.Finish()
	return last
}

// wait queues a message that waits for the device: one after the other, because a
// resize changes what the next one starts from.
func (a *offloaderActor) wait(w *wait) {
	a.waits = append(a.waits, w)
	if len(a.waits) == 1 {
		a.startWait()
	}
}

// startWait starts the task of the first wait in the queue. The task gets copies: the
// record may be given up, and the streams go on being used, before it ends.
//
// A device may take milliseconds to resize, and a kernel of the host as long as it likes:
// in the actor that would hold up every request.
func (a *offloaderActor) startWait() {
	w, device := a.waits[0], a.streams.device
	if m, ok := w.message.(*protocol.ResizeDevice); ok {
		pools, to := a.streams.pools, slices.Clone(m.Pages)
		w.tickets, w.pages = slices.Clone(m.Waits), slices.Clone(a.streams.pages)
		if m.Quiesce {
			w.tickets = append(w.tickets, a.streams.tickets()...)
		}
		w.then = func() error { return resize(device, pools, w.pages, to) }
	}
	a.background.run(func(ctx context.Context) {
		if w.err = syncAll(ctx, device, w.tickets); w.err == nil && w.then != nil {
			w.err = w.then()
		}
		a.self.PostUserMessage(w)
	})
}

// endWait takes the first wait out of the queue and starts the next one, which begins
// with the pages that a resize has left.
//
// The next wait starts even when this one has failed, because each of them has an answer
// that the coordinator waits for.
func (a *offloaderActor) endWait(w *wait) {
	a.waits = a.waits[1:]
	a.streams.check(w.err)
	if w.pages != nil {
		a.streams.pages = w.pages
	}
	if len(a.waits) > 0 {
		a.startWait()
	}
}

// rebuild makes a new core from what the tree knows of host memory. All transfers are
// over: the device was quiesced before.
func (a *offloaderActor) rebuild(m *protocol.RebuildHost) {
	old := a.core
	a.core = a.renew()
	if a.saver != nil {
		a.saver.reclaim()
	}
	a.core.Rebuild(old, m)
}
