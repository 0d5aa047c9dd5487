package sim

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// pool is the memory of one pool in both tiers.
type pool struct {
	spec  gpu.PoolSpec
	tiers [2]arena // by messages.Tier
}

// Memory is the device memory that pools have left.
func (d *Device) Memory() (gpu.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return gpu.Memory{}, d.err
	}
	return gpu.Memory{Free: d.config.MemoryBytes - d.used, Total: d.config.MemoryBytes}, nil
}

// CreatePool makes a pool. Its pages take memory when they are first touched.
func (d *Device) CreatePool(spec gpu.PoolSpec) (gpu.Pool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return 0, d.err
	}
	if spec.PageBytes <= 0 || spec.DevicePages < 0 || spec.HostPages < 0 {
		return 0, fmt.Errorf("sim: pool %s: %d device and %d host pages of %d bytes",
			spec.Name, spec.DevicePages, spec.HostPages, spec.PageBytes)
	}
	if len(spec.Tensors) > 0 {
		return 0, fmt.Errorf("sim: pool %s: tensors of the host: a simulated device has memory of its own only", spec.Name)
	}
	if given := spec.HostMemory; given != nil && int64(len(given)) < int64(spec.HostPages)*spec.PageBytes {
		return 0, fmt.Errorf("sim: pool %s: host memory of %d bytes for %d pages of %d", spec.Name, len(given), spec.HostPages, spec.PageBytes)
	}
	spec.MaxDevicePages = max(spec.MaxDevicePages, spec.DevicePages)
	if err := d.reserve(spec, spec.DevicePages); err != nil {
		return 0, err
	}
	poison := d.config.Poison == PoisonOn
	host := newArena(spec.PageBytes, spec.HostPages, poison)
	if spec.HostMemory != nil {
		host = overMemory(spec.PageBytes, spec.HostPages, spec.HostMemory)
	}
	d.pools = append(d.pools, &pool{spec: spec, tiers: [2]arena{
		messages.Primary:   newArena(spec.PageBytes, spec.DevicePages, poison),
		messages.Secondary: host,
	}})
	return gpu.Pool(len(d.pools) - 1), nil
}

// reserve takes device memory for more pages; a negative number returns some.
func (d *Device) reserve(spec gpu.PoolSpec, pages int) error {
	bytes := int64(pages) * spec.PageBytes
	if left := d.config.MemoryBytes - d.used; bytes > left {
		return fmt.Errorf("sim: pool %s: %d pages of %d bytes, %d bytes are left: %w",
			spec.Name, pages, spec.PageBytes, left, gpu.ErrOutOfMemory)
	}
	d.used += bytes
	return nil
}

// Resize changes the number of device pages of a pool.
func (d *Device) Resize(p gpu.Pool, devicePages int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	pool, err := d.pool(p)
	if err != nil {
		return err
	}
	if devicePages < 0 || devicePages > pool.spec.MaxDevicePages {
		return fmt.Errorf("sim: pool %s: resize to %d device pages, it was made for at most %d",
			pool.spec.Name, devicePages, pool.spec.MaxDevicePages)
	}
	going := touching{pool: p, tier: messages.Primary, from: messages.PageID(devicePages)}
	if err := d.idle(going); err != nil {
		return fmt.Errorf("sim: pool %s: resize to %d device pages: %w", pool.spec.Name, devicePages, err)
	}
	if err := d.reserve(pool.spec, devicePages-pool.spec.DevicePages); err != nil {
		return err
	}
	pool.spec.DevicePages = devicePages
	pool.tiers[messages.Primary].resize(devicePages)
	return nil
}

// DestroyPool frees a pool. Its number is not used again.
func (d *Device) DestroyPool(p gpu.Pool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	pool, err := d.pool(p)
	if err != nil {
		return err
	}
	for _, tier := range []messages.Tier{messages.Primary, messages.Secondary} {
		if err := d.idle(touching{pool: p, tier: tier}); err != nil {
			return fmt.Errorf("sim: pool %s: destroyed while %w", pool.spec.Name, err)
		}
	}
	d.used -= int64(pool.spec.DevicePages) * pool.spec.PageBytes
	d.pools[p] = nil
	return nil
}

// HostBytes is the memory of a host page, nil when there is no such page.
func (d *Device) HostBytes(p gpu.Pool, page messages.PageID) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if int(p) < 0 || int(p) >= len(d.pools) || d.pools[p] == nil {
		return nil
	}
	a := &d.pools[p].tiers[messages.Secondary]
	if page < 0 || int(page) >= a.pages {
		return nil
	}
	return a.page(page)
}

// pool finds a pool that has not been destroyed. A device that has ended has none.
func (d *Device) pool(p gpu.Pool) (*pool, error) {
	if d.err != nil {
		return nil, d.err
	}
	if int(p) < 0 || int(p) >= len(d.pools) || d.pools[p] == nil {
		return nil, fmt.Errorf("sim: no pool %d", p)
	}
	return d.pools[p], nil
}

// bytes is the memory of a range of a slot that was checked before.
func (d *Device) bytes(s gpu.Slot) []byte {
	return d.pools[s.Pool].tiers[s.Tier].page(s.Page)
}

// touching names pages of a pool and tier from one on.
type touching struct {
	pool gpu.Pool
	tier messages.Tier
	from messages.PageID
}

// slot tells whether a slot is among the pages.
func (t touching) slot(s gpu.Slot) bool {
	return s.Pool == t.pool && s.Tier == t.tier && s.Page >= t.from
}

// side is the last page of one side of a copy, the likeliest to be among t.
func side(s gpu.Slot, c *gpu.Copy) gpu.Slot {
	s.Page += messages.PageID(c.Count()) - 1
	return s
}

// op finds a page of t that an operation uses.
func (t touching) op(o *op) (gpu.Slot, bool) {
	for i := range o.copies {
		c := &o.copies[i]
		for _, s := range [...]gpu.Slot{side(c.Src, c), side(c.Dst, c)} {
			if t.slot(s) {
				return s, true
			}
		}
	}
	for _, set := range [][]gpu.Access{o.reads, o.writes} {
		for i := range set {
			if t.slot(set[i].Slot) {
				return set[i].Slot, true
			}
		}
	}
	return gpu.Slot{}, false
}

// idle refuses when an operation that has not ended uses one of the pages.
func (d *Device) idle(t touching) error {
	for _, s := range d.streams.All {
		for _, i := range s.queue.all() {
			o := &d.ops[i]
			if slot, ok := t.op(o); ok {
				return fmt.Errorf("%s %q, operation %d of stream %s, is under way on %s page %d",
					o.kind, o.label, o.seq, s.name, slot.Tier, slot.Page)
			}
		}
	}
	return nil
}
