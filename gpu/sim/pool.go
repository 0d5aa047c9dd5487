package sim

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
	"github.com/kvactor/kvactor/messages"
)

// pool is the memory of one pool in both tiers.
// The number of device pages is spec.DevicePages and that of the primary arena; both
// change in Resize only. The host tier keeps its size.
type pool struct {
	spec  gpu.PoolSpec
	tiers [2]arena // by messages.Tier
}

// memory is the memory of a device: its pools in both tiers.
type memory struct {
	bytes int64 // of the device tier
	used  int64 // the sum over the pools of DevicePages × PageBytes
	// A pool that was destroyed leaves nil: numbers are not used again, so that a stale one
	// is refused instead of taken for another pool's.
	pools []*pool
}

// Memory is the device memory that pools have left.
func (d *Device) Memory() (gpu.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams.Err != nil {
		return gpu.Memory{}, d.streams.Err
	}
	return gpu.Memory{Free: d.memory.bytes - d.memory.used, Total: d.memory.bytes}, nil
}

// CreatePool makes a pool. Its pages take memory when they are first touched.
// The memory is reserved at once all the same, so that an engine that asks for too much is
// refused here, as on hardware, and not in the middle of its work.
func (d *Device) CreatePool(spec gpu.PoolSpec) (gpu.Pool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams.Err != nil {
		return 0, d.streams.Err
	}
	if spec.PageBytes <= 0 || spec.DevicePages < 0 || spec.HostPages < 0 {
		return 0, fmt.Errorf("sim: pool %s: %d device and %d host pages of %d bytes",
			spec.Name, spec.DevicePages, spec.HostPages, spec.PageBytes)
	}
	if len(spec.Tensors) > 0 {
		return 0,
			fmt.Errorf("sim: pool %s: tensors of the host: a simulated device has memory of its own only",
				spec.Name)
	}
	if given := spec.HostMemory; given != nil &&
		int64(len(given)) < int64(spec.HostPages)*spec.PageBytes {
		return 0, fmt.Errorf("sim: pool %s: host memory of %d bytes for %d pages of %d", spec.Name,
			len(given), spec.HostPages, spec.PageBytes)
	}
	// 0 means that the pool does not grow beyond its first size.
	spec.MaxDevicePages = max(spec.MaxDevicePages, spec.DevicePages)
	if err := d.memory.reserve(spec, spec.DevicePages); err != nil {
		return 0, err
	}
	// Memory of the host keeps its contents: it may be a store that is opened again.
	poison := d.config.Poison == PoisonOn
	host := newArena(spec.PageBytes, spec.HostPages, poison)
	if spec.HostMemory != nil {
		host = overMemory(spec.PageBytes, spec.HostPages, spec.HostMemory)
	}
	d.memory.pools = append(d.memory.pools, &pool{spec: spec, tiers: [2]arena{
		messages.Primary:   newArena(spec.PageBytes, spec.DevicePages, poison),
		messages.Secondary: host,
	}})
	return gpu.Pool(len(d.memory.pools) - 1), nil
}

// reserve takes device memory for more pages; a negative number returns some.
func (m *memory) reserve(spec gpu.PoolSpec, pages int) error {
	bytes := int64(pages) * spec.PageBytes
	if left := m.bytes - m.used; bytes > left {
		return fmt.Errorf("sim: pool %s: %d pages of %d bytes, %d bytes are left: %w",
			spec.Name, pages, spec.PageBytes, left, gpu.ErrOutOfMemory)
	}
	m.used += bytes
	return nil
}

// Resize changes the number of device pages of a pool.
// It waits for nothing: pages that are in use are an error, where hardware would wait for
// the work. A program that forgets to order its resize is found that way. Contents of the
// pages that stay are kept.
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
	going := inprocess.Touching{Pool: p, Tier: messages.Primary, From: messages.PageID(devicePages)}
	// Before anything changes: a refused resize leaves the pool as it is.
	if err := d.streams.Idle(going); err != nil {
		return fmt.Errorf("sim: pool %s: resize to %d device pages: %w", pool.spec.Name, devicePages, err)
	}
	if err := d.memory.reserve(pool.spec, devicePages-pool.spec.DevicePages); err != nil {
		return err
	}
	pool.spec.DevicePages = devicePages
	pool.tiers[messages.Primary].resize(devicePages)
	return nil
}

// DestroyPool frees a pool. Its number is not used again.
// Host memory that the application gave stays the application's.
func (d *Device) DestroyPool(p gpu.Pool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	pool, err := d.pool(p)
	if err != nil {
		return err
	}
	for _, tier := range []messages.Tier{messages.Primary, messages.Secondary} {
		if err := d.streams.Idle(inprocess.Touching{Pool: p, Tier: tier}); err != nil {
			return fmt.Errorf("sim: pool %s: destroyed while %w", pool.spec.Name, err)
		}
	}
	d.memory.used -= int64(pool.spec.DevicePages) * pool.spec.PageBytes
	d.memory.pools[p] = nil
	return nil
}

// HostBytes is the memory of a host page, nil when there is no such page.
// It answers after Lose and Close too: what has been offloaded is in memory of the
// process. The slice is shared: who reads it while a copy writes the page has a race.
func (d *Device) HostBytes(p gpu.Pool, page messages.PageID) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	pool, err := d.memory.pool(p)
	if err != nil {
		return nil
	}
	// The memory of a page stays where it is while the arena grows, so the slice stays valid.
	a := &pool.tiers[messages.Secondary]
	if page < 0 || int(page) >= len(a.pages) {
		return nil
	}
	return a.page(page)
}

// pool finds a pool that has not been destroyed. A device that has ended has none.
func (d *Device) pool(p gpu.Pool) (*pool, error) {
	if d.streams.Err != nil {
		return nil, d.streams.Err
	}
	return d.memory.pool(p)
}

// pool finds a pool that has not been destroyed.
func (m *memory) pool(p gpu.Pool) (*pool, error) {
	if int(p) < 0 || int(p) >= len(m.pools) || m.pools[p] == nil {
		return nil, fmt.Errorf("sim: no pool %d", p)
	}
	return m.pools[p], nil
}

// page is the memory of a slot that was checked before.
func (m *memory) page(s gpu.Slot) []byte { return m.pools[s.Pool].tiers[s.Tier].page(s.Page) }

// pageSizes are those of the two pools of a copy that was checked before.
func (m *memory) pageSizes(c *gpu.Copy) gpu.PageSizes {
	return gpu.PageSizes{Src: m.pools[c.Src.Pool].spec.PageBytes,
		Dst: m.pools[c.Dst.Pool].spec.PageBytes}
}

// checkRange refuses bytes that are not in a page of a pool as it is now.
func (m *memory) checkRange(s gpu.Slot, offset, bytes int64) error {
	p, err := m.pool(s.Pool)
	if err != nil {
		return err
	}
	pages := [2]int{len(p.tiers[messages.Primary].pages), len(p.tiers[messages.Secondary].pages)}
	return inprocess.Shape{Name: p.spec.Name, PageBytes: p.spec.PageBytes, Pages: pages}.Within(s,
		offset, bytes)
}
