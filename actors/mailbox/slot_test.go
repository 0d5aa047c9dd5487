package mailbox_test

import (
	"context"
	"sync/atomic"
)

// slot is where the answer to one request arrives, as in the records of the
// engine's facade: a flag that is looked at first, and a channel for those who have
// to wait. The zero slot is ready for use.
type slot struct {
	state atomic.Uint32
	wake  chan struct{} // capacity 1; made by the first Wait that blocks
}

const (
	pending uint32 = iota
	parked
	finished
)

// Reset makes the slot ready for the next request.
func (s *slot) Reset() { s.state.Store(pending) }

// Done tells whether the answer is there.
func (s *slot) Done() bool { return s.state.Load() == finished }

// Finish tells the requester that the answer is there, once for each Reset.
func (s *slot) Finish() {
	switch s.state.Swap(finished) {
	case parked:
		s.wake <- struct{}{}
	case finished:
		panic("a slot was finished twice")
	}
}

// Wait returns when the slot is finished, or with the context's error; the slot may
// not be used again then.
func (s *slot) Wait(ctx context.Context) error {
	if s.Done() {
		return nil
	}
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
	}
	if !s.state.CompareAndSwap(pending, parked) {
		return nil
	}
	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
