package sim

import (
	"time"

	"github.com/kvactor/kvactor/gpu"
)

// Counters is what a device has done since it was made. Operations count when
// they have ended.
type Counters struct {
	Directions [gpu.Directions]Traffic
	Kernels    int64
}

// Traffic is what went one way.
type Traffic struct {
	Calls  int64 // operations, one for each stretch of a batch that goes one way
	Copies int64 // pages and parts of pages
	// Descriptors are the pieces that the engine moved: neighbours are one.
	Descriptors int64
	Bytes       int64
	Busy        time.Duration // of the engine
}

// add counts a copy operation that has ended.
func (c *Counters) add(o *op) {
	t := &c.Directions[o.direction]
	t.Calls += o.calls
	for i := range o.copies {
		t.Copies += int64(o.copies[i].Count())
	}
	t.Descriptors += o.descriptors
	t.Bytes += o.bytes
	// From start to end, and not the work alone: an engine that is slowed down by the other
	// direction is busy all the same.
	t.Busy += time.Duration(o.end - o.started)
}

// Plus adds up what two devices have done.
func (c Counters) Plus(d Counters) Counters {
	for way := range c.Directions {
		t, u := &c.Directions[way], &d.Directions[way]
		t.Calls, t.Copies, t.Descriptors = t.Calls+u.Calls, t.Copies+u.Copies, t.Descriptors+u.Descriptors
		t.Bytes, t.Busy = t.Bytes+u.Bytes, t.Busy+u.Busy
	}
	c.Kernels += d.Kernels
	return c
}

// Counters returns what the device has done so far.
// They are a copy; a caller takes the difference of two to see what one phase has done.
func (d *Device) Counters() Counters {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counters
}

// Busy is the part of virtual time, 0 to 1, in which the engine of each
// direction had work, since the device was made, with what is under way.
func (d *Device) Busy() [gpu.Directions]float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var busy [gpu.Directions]float64
	// No time has passed: the quotient would be no number.
	if d.now == 0 {
		return busy
	}
	for e := range busy {
		t := int64(d.counters.Directions[e].Busy)
		// An operation under way counts up to now, so that a long one does not look like an idle engine.
		if o := d.engines[e]; o != nil {
			t += d.now - o.started
		}
		busy[e] = float64(t) / float64(d.now)
	}
	return busy
}

// Pending counts the copies and operations that have not ended.
// It is the number that Config.MaxPending bounds.
func (d *Device) Pending() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pending
}
