package resources

import (
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// ErrNoSlot is returned when every slot has a sequence.
var ErrNoSlot = errors.New("resources: every slot has a sequence")

// Local is the device memory of the local resources: a slot for each running
// sequence, with all local resources of the model in it, so that one number finds them
// all. The host takes a slot when it admits a sequence and gives it back when
// it releases it; the engine does not know of it. One goroutine at a time uses a
// Local.
type Local struct {
	device gpu.Device
	pool   gpu.Pool
	exists bool // there is memory; a plan without local resources needs none
	slots  map[messages.SequenceID]int
	free   []int // the slot that was given back last is taken first
}

// Allocate takes the memory of the local resources, Options.MaxSequences slots, in
// a pool of its own on the device. Close gives it back.
func (p *Plan) Allocate(device gpu.Device) (*Local, error) {
	l := &Local{device: device, slots: make(map[messages.SequenceID]int, p.maxSequences)}
	for i := range p.maxSequences {
		// Slot 0 is taken first.
		l.free = append(l.free, p.maxSequences-1-i)
	}
	if p.slotBytes == 0 {
		return l, nil
	}
	pool, err := device.CreatePool(gpu.PoolSpec{Name: "local", PageBytes: p.slotBytes, DevicePages: p.maxSequences})
	if err != nil {
		return nil, fmt.Errorf("resources: %d slots of %d bytes: %w", p.maxSequences, p.slotBytes, err)
	}
	l.pool, l.exists = pool, true
	return l, nil
}

// Pool is the pool on the device whose page n is slot n, false if there are no
// local resources.
func (l *Local) Pool() (gpu.Pool, bool) { return l.pool, l.exists }

// Take gives a sequence a slot, ErrNoSlot if there is none. What the last sequence
// has left there is still in it: the host's kernels write it first.
func (l *Local) Take(id messages.SequenceID) (int, error) {
	if _, has := l.slots[id]; has {
		return 0, refusals.New(messages.ErrBadRequest, "sequence %v has a slot already", id)
	}
	if len(l.free) == 0 {
		return 0, ErrNoSlot
	}
	slot := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	l.slots[id] = slot
	return slot, nil
}

// Slot is the slot of a sequence, false if it has none.
func (l *Local) Slot(id messages.SequenceID) (int, bool) {
	slot, ok := l.slots[id]
	return slot, ok
}

// Release takes the slot of a sequence back. The kernels that use it must be
// queued before those of the next sequence, on the same stream or ordered by
// tickets.
func (l *Local) Release(id messages.SequenceID) error {
	slot, ok := l.slots[id]
	if !ok {
		return refusals.New(messages.ErrUnknownSequence, "sequence %v has no slot", id)
	}
	delete(l.slots, id)
	l.free = append(l.free, slot)
	return nil
}

// Close gives the memory back. Nothing may be under way on it.
func (l *Local) Close() error {
	if !l.exists {
		return nil
	}
	// A second Close does nothing, also after an error of the device.
	l.exists = false
	return l.device.DestroyPool(l.pool)
}
