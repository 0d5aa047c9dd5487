package check

import (
	"slices"

	"github.com/kvactor/kvactor/gpu"
)

// HostRead opens a scope in which the host reads a host page; end closes it.
// What is submitted to write the page before end is not ordered after it.
func (d *Device) HostRead(s gpu.Slot) (end func()) { return d.hostAccess(s, (*Device).use) }

// HostWrite opens a scope in which the host writes a host page; end closes it.
func (d *Device) HostWrite(s gpu.Slot) (end func()) { return d.hostAccess(s, (*Device).write) }

func (d *Device) hostAccess(s gpu.Slot, do func(*Device, gpu.Access)) (end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hostSeq++
	seq := d.hostSeq
	d.open = append(d.open, seq)
	d.now = access{actor: host, seq: seq, what: hosting}
	do(d, gpu.Access{Slot: s})
	d.settle()
	return func() { d.endHost(seq) }
}

// endHost ends a scope: streams that are given work from now on come after all
// host accesses before the oldest scope that is still open.
func (d *Device) endHost(seq uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.open, seq); i >= 0 {
		d.open = slices.Delete(d.open, i, i+1)
	}
	d.actors[host].clock.raise(host, d.hostEnded())
}

func (d *Device) hostEnded() uint64 {
	if len(d.open) == 0 {
		return d.hostSeq
	}
	return slices.Min(d.open) - 1
}
