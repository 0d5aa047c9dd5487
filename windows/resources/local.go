package resources

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
)

// Local is the device memory of the local resources: a slot for each running sequence, with all
// local resources of the model in it, so that one number finds them all. kvactor.Sequence.Slot is
// that number; the host runs no more than Options.MaxSequences at a time.
//
// What the last sequence has left in a slot is still there: the kernels of the next one write it
// first, and are queued behind those of the last, on the same stream or ordered by tickets.
type Local struct {
	device gpu.Device
	pool   gpu.Pool
	exists bool // there is memory; a plan without local resources needs none
}

// Allocate takes the memory of the local resources, Options.MaxSequences slots, in
// a pool of its own on the device. Close gives it back.
func (p *Plan) Allocate(device gpu.Device) (*Local, error) {
	l := &Local{device: device}
	if p.slotBytes == 0 {
		return l, nil
	}
	pool, err := device.CreatePool(gpu.PoolSpec{Name: "local", PageBytes: p.slotBytes,
		DevicePages: p.maxSequences})
	if err != nil {
		return nil, fmt.Errorf("resources: %d slots of %d bytes: %w", p.maxSequences, p.slotBytes, err)
	}
	l.pool, l.exists = pool, true
	return l, nil
}

// Pool is the pool on the device whose page n is slot n, false if there are no
// local resources.
func (l *Local) Pool() (gpu.Pool, bool) { return l.pool, l.exists }

// Close gives the memory back. Nothing may be under way on it.
func (l *Local) Close() error {
	if !l.exists {
		return nil
	}
	// A second Close does nothing, also after an error of the device.
	l.exists = false
	return l.device.DestroyPool(l.pool)
}
