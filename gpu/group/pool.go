package group

import (
	"errors"
	"fmt"
	"math"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// pool is a pool of the group: one of each rank, with equal pages.
type pool struct {
	name  string
	on    []gpu.Pool // by rank
	pages int        // on the device, now; belongs to the holder of Device.changes
}

// noPool is a number that no device gives to a pool.
const noPool gpu.Pool = math.MaxInt32

// CreatePool makes a pool of equal size on each rank. Host memory and tensors of the
// application are those of all ranks: HostMemory has a part for each rank, in order and
// of equal size, of which each begins at a multiple of the system's page, and a Tensor
// says whose it is by its Rank.
func (d *Device) CreatePool(spec gpu.PoolSpec) (gpu.Pool, error) {
	if err := d.ending(); err != nil {
		return 0, err
	}
	specs, err := d.split(spec)
	if err != nil {
		return 0, err
	}
	d.changes.Lock()
	defer d.changes.Unlock()
	p := &pool{name: spec.Name, on: make([]gpu.Pool, len(d.members)), pages: spec.DevicePages}
	// At once on all ranks: memory is allocated and pinned in the time that the slowest rank takes.
	errs := d.each(func(r int, m gpu.Device) (err error) {
		p.on[r], err = m.CreatePool(specs[r])
		return err
	})
	if err := d.first(errs); err != nil {
		// A group has a pool on all ranks or on none.
		for r, m := range d.members {
			if errs[r] == nil {
				_ = m.DestroyPool(p.on[r]) // nothing has been done on it
			}
		}
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pools = append(d.pools, p)
	return gpu.Pool(len(d.pools) - 1), nil
}

// split makes the spec of each rank.
func (d *Device) split(spec gpu.PoolSpec) ([]gpu.PoolSpec, error) {
	ranks := len(d.members)
	specs := make([]gpu.PoolSpec, ranks)
	for r := range specs {
		// Sizes are those of one rank already.
		specs[r] = spec
		specs[r].Tensors = nil
	}
	for i, t := range spec.Tensors {
		if t.Rank < 0 || t.Rank >= ranks {
			return nil, fmt.Errorf("group: pool %s: tensor %d is of rank %d, there are %d", spec.Name, i,
				t.Rank, ranks)
		}
		own := t
		own.Rank = 0 // the rank has no ranks
		specs[t.Rank].Tensors = append(specs[t.Rank].Tensors, own)
	}
	for r := range specs {
		// A rank without tensors would allocate memory that the host does not know of.
		if len(spec.Tensors) > 0 && len(specs[r].Tensors) == 0 {
			return nil, fmt.Errorf("group: pool %s: rank %d has no tensor", spec.Name, r)
		}
	}
	// Without host memory of the application each rank allocates its own.
	if spec.HostMemory != nil {
		part := len(spec.HostMemory) / ranks
		if int64(part) < int64(spec.HostPages)*spec.PageBytes {
			return nil,
				fmt.Errorf("group: pool %s: host memory of %d bytes for %d pages of %d on each of %d ranks",
					spec.Name, len(spec.HostMemory), spec.HostPages, spec.PageBytes, ranks)
		}
		for r := range specs {
			// The capacity ends with the part, so that no rank can reach that of the next one.
			specs[r].HostMemory = spec.HostMemory[r*part : (r+1)*part : (r+1)*part]
		}
	}
	return specs, nil
}

// Resize changes the number of device pages on every rank. When one refuses, the others
// get the pages back that they had, so that all have the same number.
func (d *Device) Resize(id gpu.Pool, devicePages int) error {
	if err := d.ending(); err != nil {
		return err
	}
	d.changes.Lock()
	defer d.changes.Unlock()
	p, err := d.findPool(id)
	if err != nil {
		return err
	}
	errs := d.each(func(r int, m gpu.Device) error { return m.Resize(p.on[r], devicePages) })
	if err := d.first(errs); err != nil {
		for r, m := range d.members {
			if errs[r] != nil {
				continue
			}
			// Pages that went were free, so new ones in their place are as good. A rank whose memory
			// another process has taken meanwhile cannot follow, and that ends the group.
			if undo := m.Resize(p.on[r], p.pages); undo != nil {
				return errors.Join(err, d.fail(r, undo))
			}
		}
		return err
	}
	// Not before all ranks have the new size: a refusal goes back to the old one.
	p.pages = devicePages
	return nil
}

// DestroyPool frees a pool on every rank. If a rank has work under way on it, the ranks
// before that one have freed theirs, and the group has ended. A group that has ended frees
// the pools of the ranks that still answer.
func (d *Device) DestroyPool(id gpu.Pool) error {
	ended := d.ending()
	if errors.Is(ended, gpu.ErrClosed) {
		return ended
	}
	d.changes.Lock()
	defer d.changes.Unlock()
	p, err := d.findPool(id)
	if err != nil {
		return errors.Join(ended, err)
	}
	// The reason why the group has ended comes first, then what the ranks refuse.
	problems := []error{ended}
	for r, m := range d.members {
		// A dead rank answers only errors, so it is not asked.
		if d.dead[r].Load() {
			continue
		}
		if err := m.DestroyPool(p.on[r]); err != nil {
			// The first rank stands for all: what it refuses, no rank has done yet.
			if r == 0 && ended == nil {
				return d.refused(r, err)
			}
			problems = append(problems, d.fail(r, err))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// The number is not used again: a stale one is refused.
	d.pools[id] = nil
	return errors.Join(problems...)
}

// findPool returns a pool that has not been destroyed.
func (d *Device) findPool(id gpu.Pool) (*pool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if int(id) < 0 || int(id) >= len(d.pools) || d.pools[id] == nil {
		// A destroyed pool is refused here, so that no rank is asked with a stale number.
		return nil, fmt.Errorf("group: no pool %d", id)
	}
	// The pool may be used without mu: its numbers never change after CreatePool.
	return d.pools[id], nil
}

// poolOn is the number of a pool on one rank; noPool for one that there is not, which
// the rank then refuses. It is called under mu.
func (d *Device) poolOn(rank int, id gpu.Pool) gpu.Pool {
	if int(id) < 0 || int(id) >= len(d.pools) || d.pools[id] == nil {
		return noPool
	}
	return d.pools[id].on[rank]
}

// PoolOf is the number of a pool on one rank, for what a backend offers beyond
// gpu.Device, such as exports.
func (d *Device) PoolOf(rank int, id gpu.Pool) (gpu.Pool, error) {
	p, err := d.findPool(id)
	if err != nil {
		return 0, err
	}
	return p.on[rank], nil
}

// HostBytes is the share of rank 0 of a host page; see HostShare.
func (d *Device) HostBytes(id gpu.Pool, page messages.PageID) []byte {
	return d.HostShare(0, id, page)
}

// HostShare is the memory of one rank's share of a host page, nil if there is no such
// page or rank.
func (d *Device) HostShare(rank int, id gpu.Pool, page messages.PageID) []byte {
	p, err := d.findPool(id)
	if err != nil || rank < 0 || rank >= len(d.members) {
		return nil
	}
	return d.members[rank].HostBytes(p.on[rank], page)
}

// HostRead tells the ranks that watch accesses that the host reads a host page, all
// shares of it, until end is called.
func (d *Device) HostRead(s gpu.Slot) (end func()) {
	return d.hostAccess(s, gpu.HostRead)
}

// HostWrite tells the ranks that watch accesses that the host writes a host page, all
// shares of it, until end is called.
func (d *Device) HostWrite(s gpu.Slot) (end func()) {
	return d.hostAccess(s, gpu.HostWrite)
}

// hostAccess opens a scope on each rank that watches accesses.
func (d *Device) hostAccess(s gpu.Slot, open func(gpu.Device, gpu.Slot) func()) (end func()) {
	var ends []func()
	for r, m := range d.members {
		// A host access is of all shares: the engine reads and writes host pages whole.
		ends = append(ends, open(m, d.slotOn(r, s)))
	}
	// Scopes of different ranks are independent, so their order does not matter.
	return func() {
		for _, end := range ends {
			end()
		}
	}
}
