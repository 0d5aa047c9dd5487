package tree

import (
	"time"

	"github.com/kvactor/kvactor/internal/heap"
	"github.com/kvactor/kvactor/internal/protocol"
)

// timers know when the priorities of blocks end. The pools know it too and end
// those of device pages by themselves, so at its end a block has to be looked at
// only if an event has to be made of it, or if contents of it lie in host memory.
// Only such blocks are watched, in a heap. What is noted of other blocks is brought
// up to date when it is needed (attributes.expireNow): a million blocks of one prompt
// that end at once cost nothing at that moment.
type timers struct {
	// now never goes back. A block has ended if until ≤ now.
	now   time.Duration
	until []time.Duration // by block, as far as any ever had an end; 0: never
	// slot[heap[i].block] is i + 1, and heap[i].at is until[heap[i].block].
	heap    []timer // of the blocks that are watched
	slot    []int32 // by block: its index in heap plus one; 0: it is not watched
	started uint64  // timers so far
}

// timer waits for the end of one block's priority.
type timer struct {
	at    time.Duration
	order uint64 // the timers before it, for ties
	block protocol.BlockID
}

// next returns the earliest end of a block that is watched, or NoExpiry.
func (t *timers) next() time.Duration {
	if len(t.heap) == 0 {
		return protocol.NoExpiry
	}
	return t.heap[0].at
}

// none tells that no block has ever had an end, so that most work on timers can be
// left out. until never gets shorter: an engine that has once used durations pays for
// them from then on.
func (t *timers) none() bool { return len(t.until) == 0 }

// of returns when the block's priority ends; false if it does not, or has ended.
func (t *timers) of(b protocol.BlockID) (time.Duration, bool) {
	if int(b) >= len(t.until) || t.until[b] <= t.now {
		return 0, false
	}
	return t.until[b], true
}

// ended tells whether the end of a block's priority has come but is not noted yet.
func (t *timers) ended(b protocol.BlockID) bool {
	return int(b) < len(t.until) && t.until[b] != 0 && t.until[b] <= t.now
}

// start makes the priority of b end a duration after now, instead of at the end it
// had. With duration 0 it has no end, and so it is if the end is beyond the clock. It
// ends the watch of the old end, too: a caller that needs a watch calls watch
// afterwards.
func (t *timers) start(b protocol.BlockID, now, duration time.Duration) {
	t.stop(b)
	end := now + duration
	// An end that overflows is taken for none; it is 292 years away.
	if duration == 0 || end < now || end == protocol.NoExpiry {
		return
	}
	for int(b) >= len(t.until) {
		t.until = append(t.until, 0)
	}
	t.until[b] = end
}

// watch puts b into the heap, if its priority has an end.
func (t *timers) watch(b protocol.BlockID) {
	// A block whose end has passed is not watched: expireNow finds it when the
	// priority is read.
	end, timed := t.of(b)
	if !timed || t.watched(b) {
		return
	}
	for int(b) >= len(t.slot) {
		t.slot = append(t.slot, 0)
	}
	t.started++
	heap.Push(&t.heap, timerOrder{t}, timer{at: end, order: t.started, block: b})
}

// watched tells whether b is in the heap.
func (t *timers) watched(b protocol.BlockID) bool { return int(b) < len(t.slot) && t.slot[b] != 0 }

// stop makes the priority of b one without an end.
func (t *timers) stop(b protocol.BlockID) {
	if t.none() {
		return
	}
	if int(b) < len(t.until) {
		t.until[b] = 0
	}
	if t.watched(b) {
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
