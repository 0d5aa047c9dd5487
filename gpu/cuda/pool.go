//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"sync"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/tensors"
	"github.com/kvactor/kvactor/messages"
)

// poisonNew is what new pages hold.
// As float16 it is −375, as bfloat16 −2·10¹⁸: both show in what is computed from them.
const poisonNew = 0xDD

// pool is one pool: device pages one behind the other at base, or pieces of them
// in the tensors of the host application; host pages one behind the other.
type pool struct {
	d *Device
	// spec is used under the device's lock; DevicePages follows the pool's size.
	// spec.DevicePages never counts a page without memory: it falls before memory is unmapped,
	// and rises after it was mapped.
	spec gpu.PoolSpec

	change   sync.Mutex // held while the pool's memory changes
	gone     bool       // destroyed, under change
	imported bool       // its memory is another process's
	base     uintptr    // reserved address space, 0 for an adopted pool
	// reserved is in bytes; chunks·chunk ≤ reserved.
	reserved      int64
	chunk         int64          // bytes of a mapping
	chunks        []uint64       // allocation handles, mapped in order from base on
	region        uint32         // of the device tier
	tensors       tensors.Layout // of an adopted pool
	tensorRegions []uint32       // by tensor
	host          hostMemory
}

// extent is a range of a page that is contiguous in memory.
// left is in bytes.
type extent struct {
	address uint64 // for the device
	left    int64
	region  uint32 // descriptors do not cross regions
}

// extent is the memory of a slot from an offset on.
func (p *pool) extent(s gpu.Slot, offset int64) extent {
	// The caller has checked page and offset: see checkRange.
	at := int64(s.Page)*p.spec.PageBytes + offset
	switch {
	case s.Tier == messages.Secondary:
		return p.host.extent(at, p.spec.PageBytes-offset)
	case p.tensors != nil:
		return p.tensorExtent(int64(s.Page), offset)
	default:
		return extent{uint64(p.base) + uint64(at), p.spec.PageBytes - offset, p.region}
	}
}

// pool finds a pool under the device's lock.
// Numbers of destroyed pools are not used again: a slot that names one is found out.
func (d *Device) pool(id gpu.Pool) (*pool, error) {
	if int(id) < 0 || int(id) >= len(d.pools) || d.pools[id] == nil {
		return nil, fmt.Errorf("cuda: no pool %d", id)
	}
	return d.pools[id], nil
}

// lookup finds a pool for a change of its memory.
func (d *Device) lookup(id gpu.Pool) (*pool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ending(); err != nil {
		return nil, err
	}
	return d.pool(id)
}

// beginChange finds a pool and starts a session for a change of its memory. It waits for
// changes that are under way; the pool may be gone after one. endChange ends the session.
func beginChange(d *Device, id gpu.Pool) (*pool, *session, error) {
	p, err := d.lookup(id)
	if err != nil {
		return nil, nil, err
	}
	s, err := d.beginUnlocked()
	if err != nil {
		return nil, nil, err
	}
	p.change.Lock()
	return p, s, nil
}

// endChange ends a session of beginChange.
func (p *pool) endChange(s *session) {
	p.change.Unlock()
	s.endUnlocked()
}

// CreatePool reserves address space for MaxDevicePages and maps memory for
// DevicePages, or adopts the tensors of the spec. Filling and registering host
// memory takes about a second for each GiB or two on one processor; several work
// at it, and the device serves other calls meanwhile.
func (d *Device) CreatePool(spec gpu.PoolSpec) (gpu.Pool, error) {
	s, err := d.beginUnlocked()
	if err != nil {
		return 0, err
	}
	defer s.endUnlocked()
	if spec.PageBytes <= 0 || spec.DevicePages < 0 || spec.HostPages < 0 {
		return 0, fmt.Errorf("cuda: pool %s: %d device and %d host pages of %d bytes",
			spec.Name, spec.DevicePages, spec.HostPages, spec.PageBytes)
	}
	// 0 means that the pool does not grow beyond its first size.
	spec.MaxDevicePages = max(spec.MaxDevicePages, spec.DevicePages)
	// Each piece of memory has a region number of its own: descriptors do not cross them.
	p := &pool{d: d, spec: spec, region: d.regions.Add(1)}
	// free undoes what create has done up to its failure; each of its parts checks for itself
	// whether it was reached.
	if err := p.create(s); err != nil {
		return 0, errors.Join(err, p.free(s))
	}
	return d.publish(p), nil
}

// create makes the memory of both tiers. Until publish no other call knows the pool.
func (p *pool) create(s *session) error {
	if len(p.spec.Tensors) > 0 {
		if err := p.adopt(s); err != nil {
			return err
		}
		return p.pin(s)
	}
	if err := p.reserve(s); err != nil {
		return err
	}
	// grow goes from DevicePages, which is 0 as long as nothing is mapped.
	pages := p.spec.DevicePages
	p.spec.DevicePages = 0
	if err := p.grow(s, pages); err != nil {
		return err
	}
	p.spec.DevicePages = pages
	return p.pin(s)
}

// publish gives a pool that is ready its number.
// A pool that is still being made is known to no other call, which may take seconds.
func (d *Device) publish(p *pool) gpu.Pool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pools = append(d.pools, p)
	return gpu.Pool(len(d.pools) - 1)
}

// Resize changes the number of device pages. The pages that go cannot be used
// any more from the beginning of the call on; their memory is unmapped when the
// work of all streams that was queued by then has passed. Memory that goes while
// something uses it ends the context. Other calls are served meanwhile.
// Host memory is not resized.
func (d *Device) Resize(id gpu.Pool, devicePages int) error {
	p, s, err := beginChange(d, id)
	if err != nil {
		return err
	}
	defer p.endChange(s)
	switch {
	case p.gone:
		return fmt.Errorf("cuda: no pool %d", id)
	case p.tensors != nil:
		return fmt.Errorf("pool %s: resize: %w", p.spec.Name, ErrAdopted)
	case p.imported:
		return fmt.Errorf("cuda: pool %s: resize: its memory is another process's", p.spec.Name)
	case devicePages < 0 || devicePages > p.spec.MaxDevicePages:
		return fmt.Errorf("cuda: pool %s: resize to %d device pages, it was made for at most %d",
			p.spec.Name, devicePages, p.spec.MaxDevicePages)
	// Growing disturbs no one: new memory is behind all that streams use.
	case devicePages >= p.spec.DevicePages:
		if err := p.grow(s, devicePages); err != nil {
			return err
		}
		p.setPages(devicePages)
		return nil
	}
	return p.shrink(s, devicePages)
}

// setPages publishes the number of device pages.
// Submissions read it under the same lock.
func (p *pool) setPages(n int) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.spec.DevicePages = n
}

// shrink takes pages from the end. When the streams cannot be waited for, the
// pages are gone but their memory stays mapped.
// A further Resize takes it up: mapUpTo and shrinkTo go by the chunks that are mapped.
func (p *pool) shrink(s *session, devicePages int) error {
	p.d.mu.Lock()
	p.spec.DevicePages = devicePages
	// Under the same lock as the new number: a submission sees either the old number, and its
	// work is waited for, or the new one, and is refused.
	events, err := p.d.quiesce(s)
	p.d.mu.Unlock()
	if err == nil {
		err = s.await(events)
	}
	if err != nil {
		return err
	}
	// A chunk that holds part of a page that stays is kept whole.
	// The pool then has a part of a chunk more than its pages need, until it grows again.
	keep := (int64(devicePages)*p.spec.PageBytes + p.chunk - 1) / p.chunk
	return p.shrinkTo(s, int(keep))
}

// DestroyPool frees a pool, after the work of the device's streams has passed.
// Memory of the host application is only forgotten.
// Tickets of copies from and to the pool stay valid.
func (d *Device) DestroyPool(id gpu.Pool) error {
	p, s, err := beginChange(d, id)
	if err != nil {
		return err
	}
	defer p.endChange(s)
	if p.gone {
		return fmt.Errorf("cuda: no pool %d", id)
	}
	// A change that waits for p.change finds the pool gone.
	p.gone = true
	d.mu.Lock()
	// From here on submissions that name the pool are refused.
	d.pools[id] = nil
	events, err := d.quiesce(s)
	d.mu.Unlock()
	if err == nil {
		err = s.await(events)
	}
	if err != nil {
		return err // its memory stays mapped: something may still use it
	}
	return p.free(s)
}

// HostBytes is the memory of a host page, nil when there is no such page.
// The bytes are those that the device reads and writes: a caller waits for its tickets.
func (d *Device) HostBytes(id gpu.Pool, page messages.PageID) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := d.pool(id)
	if err != nil || page < 0 || int(page) >= p.spec.HostPages {
		return nil
	}
	at := int64(page) * p.spec.PageBytes
	// The capacity ends with the page, so that an append cannot reach the next one.
	return p.host.bytes[at : at+p.spec.PageBytes : at+p.spec.PageBytes]
}

// Base is the device address of page 0 of a pool. Page p begins PageBytes × p
// bytes behind it. The address stays the same while the pool grows and shrinks,
// so a host's kernels take it once and page tables at each launch. An adopted
// pool has none: its host knows the addresses of its tensors.
func (d *Device) Base(id gpu.Pool) (address uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := d.pool(id)
	if err != nil {
		return 0, err
	}
	if p.tensors != nil {
		return 0, fmt.Errorf("pool %s: base: %w", p.spec.Name, ErrAdopted)
	}
	return uint64(p.base), nil
}
