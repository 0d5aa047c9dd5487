package mailbox

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Slot is where the answer to one request arrives. It lives in the request's
// record, next to the fields that hold the answer, and is used again with it.
// It holds no value: Finish says that the record's fields are filled in.
//
//	      Reset            Finish
//	┌──────────▶ pending ─────────▶ finished ──┐
//	│   Wait blocks │                  ▲   ▲   │
//	│               ▼     Finish       │   │   │
//	│            parked ───────────────┘   │   │
//	│  context ends │     Finish: false    │   │
//	│               ▼                      │   │
//	│           abandoned ─────────────────┘   │
//	└──────────────────────────────────────────┘
//
// Who owns the record: the requester until it sends; the engine until it
// finishes; then the requester again. A requester whose Wait has ended with its
// context has abandoned the record: it may not touch it again, for the engine
// still writes to it. Finish then returns false, and whoever called it owns the
// record from there on, gives it back to where records are kept, and undoes
// what nobody will use. So a record is used again only after it was finished.
//
// The zero Slot is ready for use. An answered request allocates nothing, but
// for the first Wait of a slot that has to block.
type Slot struct {
	state atomic.Uint32
	wake  chan struct{} // capacity 1; made by the first Wait that blocks
}

// The states of a slot.
const (
	slotPending uint32 = iota
	slotFinished
	slotParked
	slotAbandoned
)

var slotStates = [...]string{"pending", "finished", "parked", "abandoned"}

// Reset makes the slot ready for the next request. It panics if the last one
// is still out, waited for or abandoned.
func (s *Slot) Reset() {
	if state := s.state.Load(); state == slotParked || state == slotAbandoned {
		panic(fmt.Sprintf("mailbox: reset of a slot that is %s and not finished", slotStates[state]))
	}
	s.state.Store(slotPending)
}

// Finish gives the answer to the requester, exactly once for each Reset. It
// returns false if the requester has abandoned the record, which is then the
// caller's; if it returns true the caller may not touch the record again.
func (s *Slot) Finish() bool {
	switch s.state.Swap(slotFinished) {
	case slotPending:
		return true
	case slotParked:
		s.wake <- struct{}{}
		return true
	case slotAbandoned:
		return false
	default:
		panic("mailbox: a slot was finished twice")
	}
}

// Done tells whether the slot is finished.
func (s *Slot) Done() bool { return s.state.Load() == slotFinished }

// Abandoned tells whether the requester has given up and the answer is still
// out. An engine may ask it before it starts something costly.
func (s *Slot) Abandoned() bool { return s.state.Load() == slotAbandoned }

// Wait returns nil once the slot is finished, or the context's error if that
// ends first: the record is then abandoned. Only one goroutine may wait, and it
// may not wait again after an error.
func (s *Slot) Wait(ctx context.Context) error {
	if s.state.Load() == slotFinished {
		return nil
	}
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
	}
	if !s.state.CompareAndSwap(slotPending, slotParked) {
		if state := s.state.Load(); state != slotFinished {
			panic(fmt.Sprintf("mailbox: wait for a slot that is %s", slotStates[state]))
		}
		return nil
	}
	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
	}
	if s.state.CompareAndSwap(slotParked, slotAbandoned) {
		return ctx.Err()
	}
	<-s.wake // finished in the same moment: the answer counts
	return nil
}
