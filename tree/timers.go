package tree

import (
	"time"

	"github.com/kvactor/kvactor/internal/heap"
	"github.com/kvactor/kvactor/internal/protocol"
)

// timers know when the priorities of blocks end, in a heap of the blocks whose priority has an
// end.
type timers struct {
	now  time.Duration // never goes back; no timer has ended by now, once a message has begun
	heap []timer
	// by block, as far as any ever had an end: its index in heap plus one; 0: it has none
	slot    []int32
	started uint64 // timers so far
}

// timer waits for the end of one block's priority.
type timer struct {
	at    time.Duration
	order uint64 // the timers before it, for ties
	block protocol.BlockID
}

// next returns the earliest end of a priority, or NoExpiry.
func (t *timers) next() time.Duration {
	if len(t.heap) == 0 {
		return protocol.NoExpiry
	}
	return t.heap[0].at
}

// of returns when the block's priority ends; false if it does not.
func (t *timers) of(b protocol.BlockID) (time.Duration, bool) {
	if !t.runs(b) {
		return 0, false
	}
	return t.heap[t.slot[b]-1].at, true
}

// runs tells whether the priority of b has an end.
func (t *timers) runs(b protocol.BlockID) bool { return int(b) < len(t.slot) && t.slot[b] != 0 }

// start makes the priority of b end a duration from now, instead of at the end it had. With
// duration 0 it has no end, and so it is if the end is beyond the clock.
func (t *timers) start(b protocol.BlockID, duration time.Duration) {
	t.stop(b)
	end := t.now + duration
	// An end that overflows is taken for none; it is 292 years away.
	if duration == 0 || end < t.now || end == protocol.NoExpiry {
		return
	}
	for int(b) >= len(t.slot) {
		t.slot = append(t.slot, 0)
	}
	t.started++
	heap.Push(&t.heap, timerOrder{t}, timer{at: end, order: t.started, block: b})
}

// stop makes the priority of b one without an end.
func (t *timers) stop(b protocol.BlockID) {
	if t.runs(b) {
		heap.Remove(&t.heap, timerOrder{t}, int(t.slot[b])-1)
	}
}

// timerOrder is the order of the heap: the earliest end first, and of equal ends
// the timer that was started first.
type timerOrder struct{ *timers }

// Before compares two timers.
func (o timerOrder) Before(a, b timer) bool {
	return a.at < b.at || a.at == b.at && a.order < b.order
}

// Moved notes where the timer of a block is: heap.Removed becomes 0.
func (o timerOrder) Moved(x timer, i int) { o.slot[x.block] = int32(i) + 1 }
