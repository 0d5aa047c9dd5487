package tree

import (
	"time"

	"github.com/kvactor/kvactor/messages"
)

// timer ends the priority of a block at a moment.
type timer struct {
	at    time.Duration
	order uint64 // in which the timers were started
	block messages.BlockID
}

// timers is a heap of the timers, the earliest first, those of one moment in the
// order in which they were started. slot, which grows with the first timer only, is where each block's timer
// stands plus one; 0: it has none.
type timers struct {
	heap    []timer
	slot    []int32
	started uint64 // timers so far
}

// next is the moment of the earliest timer.
func (t *timers) next() time.Duration {
	if len(t.heap) == 0 {
		return messages.NoExpiry
	}
	return t.heap[0].at
}

// of is when the block's timer ends.
func (t *timers) of(b messages.BlockID) (time.Duration, bool) {
	if int(b) >= len(t.slot) || t.slot[b] == 0 {
		return 0, false
	}
	return t.heap[t.slot[b]-1].at, true
}

// start gives b a timer that ends a duration after now, in place of one it has.
// Duration 0 is for ever, and so is an end beyond the clock.
func (t *timers) start(b messages.BlockID, now, duration time.Duration) {
	t.stop(b)
	end := now + duration
	if duration == 0 || end < now || end == messages.NoExpiry {
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

// stop takes away the timer of b if it has one.
func (t *timers) stop(b messages.BlockID) {
	if int(b) >= len(t.slot) || t.slot[b] == 0 {
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
