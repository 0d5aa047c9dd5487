package host

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
	"github.com/kvactor/kvactor/gpu/internal/tensors"
	"github.com/kvactor/kvactor/messages"
)

// pool is the memory of one pool in both tiers. A tier is one region, in which page p
// begins at p × PageBytes; a device tier of tensors has a layout instead.
//
// The spec's page counts are those of now and change under mu; DevicePages × PageBytes is
// within the committed bytes of the device tier's region.
type pool struct {
	spec     gpu.PoolSpec
	tiers    [2]region // by messages.Tier
	tensors  tensors.Layout
	imported bool
}

// whole tells whether pages of a tier are one piece.
func (p *pool) whole(t messages.Tier) bool { return t == messages.Secondary || len(p.tensors) <= 1 }

// at is the memory from a byte of a tier on, counted as if its pages lay one behind the
// other: at most so many bytes, and no more than lie in one piece. The caller has checked that they
// are in pages.
func (p *pool) at(t messages.Tier, from, bytes int64) []byte {
	if t == messages.Secondary || p.tensors == nil {
		return p.tiers[t].bytes[from : from+bytes : from+bytes]
	}
	_, address, left := p.tensors.Find(from/p.spec.PageBytes, from%p.spec.PageBytes)
	return given(address, min(bytes, left))
}

// page is the memory of a page that is one piece.
func (p *pool) page(t messages.Tier, page messages.PageID) []byte {
	return p.at(t, int64(page)*p.spec.PageBytes, p.spec.PageBytes)
}

// given is memory of the host application at an address.
func given(address uint64, bytes int64) []byte {
	at := uintptr(address)
	// The address comes from outside, as a number.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), bytes)
}

// shape is what copies are checked against.
func (p *pool) shape() inprocess.Shape {
	pages := [2]int{p.spec.DevicePages, p.spec.HostPages}
	return inprocess.Shape{Name: p.spec.Name, PageBytes: p.spec.PageBytes, Pages: pages}
}

// release gives the memory of a pool back.
func (p *pool) release() error {
	return errors.Join(p.tiers[messages.Primary].release(), p.tiers[messages.Secondary].release())
}

// CreatePool makes a pool. Address space for its largest size is reserved at once.
func (d *Device) CreatePool(spec gpu.PoolSpec) (gpu.Pool, error) {
	d.change.Lock()
	defer d.change.Unlock()
	spec.MaxDevicePages = max(spec.MaxDevicePages, spec.DevicePages)
	if err := checkSpec(&spec); err != nil {
		return 0, err
	}
	p := &pool{spec: spec}
	if len(spec.Tensors) > 0 {
		var err error
		if p.tensors, err = adopt(&spec); err != nil {
			return 0, err
		}
	}
	if err := d.account(p, spec.DevicePages); err != nil {
		return 0, err
	}
	if err := d.fill(p); err != nil {
		err = errors.Join(err, p.release())
		return 0, errors.Join(err, d.account(p, -spec.DevicePages))
	}
	return d.publish(p)
}

// publish gives a pool its number.
func (d *Device) publish(p *pool) (gpu.Pool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams.Err != nil {
		return 0, errors.Join(d.streams.Err, p.release())
	}
	// A pool that was destroyed leaves nil: numbers are not used again, so that a stale one is
	// refused instead of taken for another pool's.
	d.pools = append(d.pools, p)
	return gpu.Pool(len(d.pools) - 1), nil
}

// checkSpec refuses sizes that make no sense.
func checkSpec(s *gpu.PoolSpec) error {
	most := int64(max(1, s.MaxDevicePages, s.HostPages))
	if s.PageBytes <= 0 || s.DevicePages < 0 || s.HostPages < 0 || s.PageBytes > math.MaxInt64/most {
		return fmt.Errorf("host: pool %s: %d device pages, up to %d, and %d host pages of %d bytes",
			s.Name, s.DevicePages, s.MaxDevicePages, s.HostPages, s.PageBytes)
	}
	if m := s.HostMemory; m != nil && int64(len(m)) < int64(s.HostPages)*s.PageBytes {
		return fmt.Errorf("host: pool %s: host memory of %d bytes for %d pages of %d",
			s.Name, len(m), s.HostPages, s.PageBytes)
	}
	if s.Shared && (s.HostMemory != nil || len(s.Tensors) > 0) {
		return fmt.Errorf("pool %s: shared: %w, which can share it", s.Name, ErrAdopted)
	}
	return nil
}

// adopt lays the device tier over tensors of the host application.
func adopt(s *gpu.PoolSpec) (tensors.Layout, error) {
	if s.MaxDevicePages != s.DevicePages {
		return nil, fmt.Errorf("pool %s: at most %d device pages: %w and has room for %d",
			s.Name, s.MaxDevicePages, ErrAdopted, s.DevicePages)
	}
	layout, err := tensors.New(s)
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	for i, t := range s.Tensors {
		if t.Rank != 0 {
			return nil, fmt.Errorf("host: pool %s: tensor %d is of rank %d, this is one device",
				s.Name, i, t.Rank)
		}
	}
	return layout, nil
}

// account takes device memory for more pages; a negative number returns some.
func (d *Device) account(p *pool, pages int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if pages > 0 && d.streams.Err != nil {
		return d.streams.Err
	}
	if p.tensors != nil || p.imported {
		return nil
	}
	bytes := int64(pages) * p.spec.PageBytes
	if left := d.config.MemoryBytes - d.used; bytes > left {
		return fmt.Errorf("host: pool %s: %d pages of %d bytes, %d bytes are left: %w",
			p.spec.Name, pages, p.spec.PageBytes, left, gpu.ErrOutOfMemory)
	}
	d.used += bytes
	return nil
}

// fill makes the memory of a pool that is not given.
func (d *Device) fill(p *pool) (err error) {
	s := &p.spec
	if p.tensors == nil {
		space, bytes := int64(s.MaxDevicePages)*s.PageBytes, int64(s.DevicePages)*s.PageBytes
		if p.tiers[messages.Primary], err = d.make(s, "device", space, bytes); err != nil {
			return err
		}
	}
	bytes := int64(s.HostPages) * s.PageBytes
	if s.HostMemory != nil {
		p.tiers[messages.Secondary] = region{bytes: s.HostMemory[:bytes:bytes], given: true}
		return nil
	}
	p.tiers[messages.Secondary], err = d.make(s, "host", bytes, bytes)
	return err
}

// make makes a region of so much address space and commits the first bytes of it.
func (d *Device) make(s *gpu.PoolSpec, tier string, space, bytes int64) (region, error) {
	r, err := reserve(s.Name+" "+tier, space, s.Shared)
	if err == nil {
		err = d.grow(&r, 0, bytes)
	}
	if err != nil {
		return region{}, errors.Join(fmt.Errorf("host: pool %s: %w", s.Name, err), r.release())
	}
	return r, nil
}

// grow commits the bytes [from, to) of a region.
func (d *Device) grow(r *region, from, to int64) error {
	if err := r.commit(to); err != nil {
		return fmt.Errorf("%w: %w", gpu.ErrOutOfMemory, err)
	}
	if d.config.Poison {
		inprocess.Fill(r.bytes[from:to], PoisonNew)
	}
	return nil
}

// Resize changes the number of device pages of a pool. It waits for nothing: work under way
// on pages that go is an error.
func (d *Device) Resize(id gpu.Pool, devicePages int) error {
	d.change.Lock()
	defer d.change.Unlock()
	p, err := d.own(id)
	if err != nil {
		return err
	}
	if p.tensors != nil {
		return fmt.Errorf("pool %s: resize: %w", p.spec.Name, ErrAdopted)
	}
	if devicePages < 0 || devicePages > p.spec.MaxDevicePages {
		return fmt.Errorf("host: pool %s: resize to %d device pages, it was made for at most %d",
			p.spec.Name, devicePages, p.spec.MaxDevicePages)
	}
	before, r := int64(p.spec.DevicePages)*p.spec.PageBytes, &p.tiers[messages.Primary]
	after := int64(devicePages) * p.spec.PageBytes
	more := devicePages - p.spec.DevicePages
	if more >= 0 {
		if err := d.account(p, more); err != nil {
			return err
		}
		if err := d.grow(r, before, after); err != nil {
			return errors.Join(fmt.Errorf("host: pool %s: %w", p.spec.Name, err), d.account(p, -more))
		}
		return d.setPages(id, p, devicePages)
	}
	if err := d.setPages(id, p, devicePages); err != nil {
		return err
	}
	return errors.Join(r.shrink(after, before), d.account(p, more))
}

// setPages changes what is a page of a pool; pages that go must be idle.
func (d *Device) setPages(id gpu.Pool, p *pool, devicePages int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams.Err != nil {
		return d.streams.Err
	}
	going := inprocess.Touching{Pool: id, Tier: messages.Primary, From: messages.PageID(devicePages)}
	if err := d.streams.Idle(going); err != nil {
		return fmt.Errorf("host: pool %s: resize to %d device pages: %w", p.spec.Name, devicePages, err)
	}
	p.spec.DevicePages = devicePages
	return nil
}

// DestroyPool frees a pool. Its number is not used again; given memory stays the host
// application's.
func (d *Device) DestroyPool(id gpu.Pool) error {
	d.change.Lock()
	defer d.change.Unlock()
	p, err := d.remove(id)
	if err != nil {
		return err
	}
	return errors.Join(p.release(), d.account(p, -p.spec.DevicePages))
}

// remove takes an idle pool from the device.
func (d *Device) remove(id gpu.Pool) (*pool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := d.pool(id)
	if err != nil {
		return nil, err
	}
	for _, tier := range []messages.Tier{messages.Primary, messages.Secondary} {
		if err := d.streams.Idle(inprocess.Touching{Pool: id, Tier: tier}); err != nil {
			return nil, fmt.Errorf("host: pool %s: destroyed while %w", p.spec.Name, err)
		}
	}
	d.pools[id] = nil
	return p, nil
}

// HostBytes is the memory of a host page, nil when there is no such page. It answers after
// Lose, too, but not after Close.
func (d *Device) HostBytes(id gpu.Pool, page messages.PageID) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := d.find(id)
	if err != nil || page < 0 || int(page) >= p.spec.HostPages {
		return nil
	}
	return p.page(messages.Secondary, page)
}

// own finds a pool that is this process's to change.
func (d *Device) own(id gpu.Pool) (*pool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := d.pool(id)
	if err == nil && p.imported {
		err = fmt.Errorf("pool %s: %w", p.spec.Name, ErrImported)
	}
	return p, err
}

// pool finds a pool of a device that has not ended.
func (d *Device) pool(id gpu.Pool) (*pool, error) {
	if d.streams.Err != nil {
		return nil, d.streams.Err
	}
	return d.find(id)
}

// find finds a pool that has not been destroyed.
func (d *Device) find(id gpu.Pool) (*pool, error) {
	if int(id) < 0 || int(id) >= len(d.pools) || d.pools[id] == nil {
		return nil, fmt.Errorf("host: no pool %d", id)
	}
	return d.pools[id], nil
}

// within refuses bytes that are not in a page of a pool as it is now.
func (d *Device) within(s gpu.Slot, offset, bytes int64) error {
	p, err := d.find(s.Pool)
	if err != nil {
		return err
	}
	return p.shape().Within(s, offset, bytes)
}
