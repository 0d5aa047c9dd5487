package tree

import (
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
)

// timers know when the priorities of blocks end. The pools know it too and let
// those of device pages end by themselves, so nothing has to be done for a block
// at its moment but where it is told in an event, or where contents lie in host
// memory: only such blocks are watched. What is written on others is brought up
// to date when somebody looks at it.
type timers struct {
	now     time.Duration
	until   []time.Duration // by block, grown with the first; 0: for ever
	heap    []timer         // of the blocks that are watched
	slot    []int32         // by block: its place in the heap plus one; 0: it is not watched
	started uint64          // timers so far
}

// timer waits for the moment of a block.
type timer struct {
	at    time.Duration
	order uint64 // in which the timers were started
	block protocol.BlockID
}

// next is the earliest moment of a block that is watched.
func (t *timers) next() time.Duration {
	if len(t.heap) == 0 {
		return protocol.NoExpiry
	}
	return t.heap[0].at
}

// none tells that no block has ever had a timer.
func (t *timers) none() bool { return len(t.until) == 0 }

// of is when the block's priority ends.
func (t *timers) of(b protocol.BlockID) (time.Duration, bool) {
	if int(b) >= len(t.until) || t.until[b] <= t.now {
		return 0, false
	}
	return t.until[b], true
}

// passed tells whether the moment of a block has come and nobody has looked since.
func (t *timers) ended(b protocol.BlockID) bool {
	return int(b) < len(t.until) && t.until[b] != 0 && t.until[b] <= t.now
}

// start gives b a moment that is a duration after now, in place of one it has.
// Duration 0 is for ever, and so is an end beyond the clock.
func (t *timers) start(b protocol.BlockID, now, duration time.Duration) {
	t.stop(b)
	end := now + duration
	if duration == 0 || end < now || end == protocol.NoExpiry {
		return
	}
	for int(b) >= len(t.until) {
		t.until = append(t.until, 0)
	}
	t.until[b] = end
}

// watch waits for the moment of b, if it has one.
func (t *timers) watch(b protocol.BlockID) {
	end, timed := t.of(b)
	if !timed || t.watched(b) {
		return
	}
	for int(b) >= len(t.slot) {
		t.slot = append(t.slot, 0)
	}
	t.started++
	t.heap = append(t.heap, timer{at: end, order: t.started, block: b})
	t.slot[b] = int32(len(t.heap))
	t.up(len(t.heap) - 1)
}

func (t *timers) watched(b protocol.BlockID) bool { return int(b) < len(t.slot) && t.slot[b] != 0 }

// stop makes the priority of b one for ever.
func (t *timers) stop(b protocol.BlockID) {
	if int(b) < len(t.until) {
		t.until[b] = 0
	}
	if !t.watched(b) {
		return
	}
	i := int(t.slot[b]) - 1
	last := len(t.heap) - 1
	t.swap(i, last)
	t.heap = t.heap[:last]
	t.slot[b] = 0
	if i < last {
		t.up(i)
		t.down(i)
	}
}

func (t *timers) less(i, j int) bool {
	a, b := t.heap[i], t.heap[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (t *timers) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.slot[t.heap[i].block] = int32(i) + 1
	t.slot[t.heap[j].block] = int32(j) + 1
}

func (t *timers) up(i int) {
	for i > 0 && t.less(i, (i-1)/2) {
		t.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (t *timers) down(i int) {
	for {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(t.heap) && t.less(c, least) {
				least = c
			}
		}
		if least == i {
			return
		}
		t.swap(i, least)
		i = least
	}
}
