//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"syscall"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

const (
	// chunkBytes is the unit in which device memory is mapped: large enough
	// that a pool has few mappings, small enough to move between pools.
	chunkBytes = 32 << 20
	// pieceBytes bounds one registration of host memory: kernels 6.11 to 6.13
	// cannot pin more than 2 GiB at once.
	pieceBytes = 1 << 30
	systemPage = 4096
	// poisonNew is what new pages hold.
	poisonNew = 0xDD
)

// pool is one pool: device pages one behind the other at base, host pages
// likewise in host.
type pool struct {
	spec       gpu.PoolSpec
	base       uintptr // reserved address space
	reserved   int64
	chunk      int64    // bytes of a mapping
	chunks     []uint64 // allocation handles, mapped in order from base on
	host       []byte
	registered int64 // bytes of host that are registered so far
	hostPiece  int64 // bytes of a registered piece: whole pages and system pages
}

// piece is the registered piece that a slot lies in; device memory is one.
func (p *pool) piece(s gpu.Slot) int64 {
	if s.Tier == messages.Primary {
		return -1
	}
	return int64(s.Page) * p.spec.PageBytes / p.hostPiece
}

// addressOf is the address of a byte of a slot; registered host memory has the
// same for the host and the device.
func (d *Device) addressOf(s gpu.Slot, offset int64) uint64 {
	p := d.pools[s.Pool]
	at := int64(s.Page)*p.spec.PageBytes + offset
	if s.Tier == messages.Primary {
		return uint64(p.base) + uint64(at)
	}
	return uint64(address(&p.host[at]))
}

func (d *Device) pool(p gpu.Pool) (*pool, error) {
	if int(p) < 0 || int(p) >= len(d.pools) || d.pools[p] == nil {
		return nil, fmt.Errorf("cuda: no pool %d", p)
	}
	return d.pools[p], nil
}

// CreatePool reserves address space for MaxDevicePages and maps memory for
// DevicePages. Filling and registering host memory takes about a second for
// each GiB or two.
func (d *Device) CreatePool(spec gpu.PoolSpec) (gpu.Pool, error) {
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	if spec.PageBytes <= 0 || spec.DevicePages < 0 || spec.HostPages < 0 {
		return 0, fmt.Errorf("cuda: pool %s: %d device and %d host pages of %d bytes",
			spec.Name, spec.DevicePages, spec.HostPages, spec.PageBytes)
	}
	spec.MaxDevicePages = max(spec.MaxDevicePages, spec.DevicePages)
	p := &pool{spec: spec}
	id := len(d.pools)
	d.pools = append(d.pools, p)
	err := d.reserve(p)
	if err == nil {
		err = d.grow(p, spec.DevicePages)
	}
	if err == nil {
		err = d.pin(p)
	}
	if err != nil {
		d.destroy(id)
		return 0, err
	}
	return gpu.Pool(id), nil
}

// reserve takes address space for the pool's largest size.
func (d *Device) reserve(p *pool) error {
	d.out.prop = allocationProp{kind: 1, location: location{onDevice, d.ordinal}}
	on := "pool " + p.spec.Name
	const minimum = 0
	r := d.driver.call(fnMemGetAllocationGranularity, address(&d.out.number[0]), address(&d.out.prop), minimum)
	if err := d.failure(fnMemGetAllocationGranularity, r, on); err != nil {
		return err
	}
	unit := int64(d.out.number[0])
	most := roundUp(int64(p.spec.MaxDevicePages)*p.spec.PageBytes, unit)
	p.chunk = min(roundUp(chunkBytes, unit), max(most, unit))
	p.reserved = roundUp(max(most, unit), p.chunk)
	r = d.driver.call(fnMemAddressReserve, address(&d.out.number[0]), uintptr(p.reserved), 0, 0, 0)
	if err := d.failure(fnMemAddressReserve, r, on); err != nil {
		p.reserved = 0
		return err
	}
	p.base = uintptr(d.out.number[0])
	return nil
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// grow maps chunks until the pages have memory, and poisons them. When it
// fails the pool is as before.
func (d *Device) grow(p *pool, pages int) error {
	had := len(p.chunks)
	need := int64(pages) * p.spec.PageBytes
	for int64(len(p.chunks))*p.chunk < need {
		if err := d.mapChunk(p); err != nil {
			d.shrinkTo(p, had)
			d.releaseSpare()
			return err
		}
	}
	from := int64(p.spec.DevicePages) * p.spec.PageBytes
	if had == 0 {
		from = 0
	}
	if need > from {
		r := d.driver.call(fnMemsetD8Async, p.base+uintptr(from), poisonNew, uintptr(need-from), d.own)
		if r == success {
			r = d.driver.call(fnStreamSynchronize, d.own)
		}
		if err := d.failure(fnMemsetD8Async, r, "pool "+p.spec.Name); err != nil {
			d.shrinkTo(p, had)
			d.releaseSpare()
			return err
		}
	}
	p.spec.DevicePages = pages
	return nil
}

// mapChunk maps one more chunk behind the others.
func (d *Device) mapChunk(p *pool) error {
	on := fmt.Sprintf("pool %s, chunk %d of %d bytes", p.spec.Name, len(p.chunks), p.chunk)
	handle, err := d.takeChunk(p.chunk, on)
	if err != nil {
		return err
	}
	at := p.base + uintptr(int64(len(p.chunks))*p.chunk)
	r := d.driver.call(fnMemMap, at, uintptr(p.chunk), 0, uintptr(handle), 0)
	if err := d.failure(fnMemMap, r, on); err != nil {
		d.driver.call(fnMemRelease, uintptr(handle))
		return err
	}
	d.out.access = accessDesc{location: location{onDevice, d.ordinal}, flags: readWrite}
	r = d.driver.call(fnMemSetAccess, at, uintptr(p.chunk), address(&d.out.access), 1)
	if err := d.failure(fnMemSetAccess, r, on); err != nil {
		d.driver.call(fnMemUnmap, at, uintptr(p.chunk))
		d.driver.call(fnMemRelease, uintptr(handle))
		return err
	}
	p.chunks = append(p.chunks, handle)
	return nil
}

// takeChunk gives a chunk that a pool has let go, or a new one. Pools exchange
// chunks so, and no other program gets hold of memory on its way between two.
func (d *Device) takeChunk(bytes int64, on string) (handle uint64, err error) {
	if free := d.spare[bytes]; len(free) > 0 {
		handle = free[len(free)-1]
		d.spare[bytes] = free[:len(free)-1]
		return handle, nil
	}
	d.out.prop = allocationProp{kind: 1, location: location{onDevice, d.ordinal}}
	r := d.driver.call(fnMemCreate, address(&d.out.number[0]), uintptr(bytes), address(&d.out.prop), 0)
	if r == outOfMemory && len(d.spare) > 0 { // those of other sizes may be what is missing
		d.releaseSpare()
		r = d.driver.call(fnMemCreate, address(&d.out.number[0]), uintptr(bytes), address(&d.out.prop), 0)
	}
	return d.out.number[0], d.failure(fnMemCreate, r, on)
}

// shrinkTo unmaps chunks from the end; others may take them.
func (d *Device) shrinkTo(p *pool, chunks int) {
	for n := len(p.chunks) - 1; n >= chunks; n-- {
		d.driver.call(fnMemUnmap, p.base+uintptr(int64(n)*p.chunk), uintptr(p.chunk))
		d.spare[p.chunk] = append(d.spare[p.chunk], p.chunks[n])
		p.chunks = p.chunks[:n]
	}
}

// releaseSpare gives the chunks that no pool has back to the driver.
func (d *Device) releaseSpare() {
	for _, free := range d.spare {
		for _, handle := range free {
			d.driver.call(fnMemRelease, uintptr(handle))
		}
	}
	clear(d.spare)
}

// pin makes the pool's host memory: mapped near the device, filled, which gives
// it its memory, and registered by pieces of whole pages.
func (d *Device) pin(p *pool) error {
	bytes := int64(p.spec.HostPages) * p.spec.PageBytes
	if bytes == 0 {
		p.hostPiece = 1
		return nil
	}
	var err error
	if p.host, err = mapMemory(roundUp(bytes, systemPage)); err != nil {
		return fmt.Errorf("pool %s: %w: %w", p.spec.Name, gpu.ErrOutOfMemory, err)
	}
	d.bind(p.host)
	for i := range p.host {
		p.host[i] = poisonNew
	}
	unit := p.spec.PageBytes / gcd(p.spec.PageBytes, systemPage) * systemPage
	p.hostPiece = max(1, pieceBytes/unit) * unit
	for p.registered < int64(len(p.host)) {
		n := min(p.hostPiece, int64(len(p.host))-p.registered)
		r := d.driver.call(fnMemHostRegister, address(&p.host[p.registered]), uintptr(n), portableMapped)
		on := fmt.Sprintf("pool %s, host pages from %d on", p.spec.Name, p.registered/p.spec.PageBytes)
		if err := d.failure(fnMemHostRegister, r, on); err != nil {
			return err
		}
		p.registered += n
	}
	return nil
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// bind asks the system to take memory from the node near the device. It is a
// wish: where it fails, copies are slower, not wrong.
func (d *Device) bind(b []byte) {
	const bindMode, maxNode = 2, 64
	if d.numa < 0 || d.numa >= maxNode {
		return
	}
	d.out.number[0] = 1 << d.numa
	_, _, _ = syscall.Syscall6(syscall.SYS_MBIND, address(&b[0]), uintptr(len(b)), bindMode,
		address(&d.out.number[0]), maxNode+1, 0)
}

// unpin gives host memory back.
func (d *Device) unpin(p *pool) {
	for at := int64(0); at < p.registered; at += p.hostPiece {
		d.driver.call(fnMemHostUnregister, address(&p.host[at]))
	}
	if p.host != nil {
		_ = syscall.Munmap(p.host)
	}
	p.host, p.registered = nil, 0
}

// Resize changes the number of device pages. Shrinking waits for the device's
// streams first: memory that goes while something uses it ends the context.
func (d *Device) Resize(id gpu.Pool, devicePages int) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	p, err := d.pool(id)
	if err != nil {
		return err
	}
	if devicePages < 0 || devicePages > p.spec.MaxDevicePages {
		return fmt.Errorf("cuda: pool %s: resize to %d device pages, it was made for at most %d",
			p.spec.Name, devicePages, p.spec.MaxDevicePages)
	}
	if devicePages >= p.spec.DevicePages {
		return d.grow(p, devicePages)
	}
	d.drain()
	p.spec.DevicePages = devicePages
	d.shrinkTo(p, int((int64(devicePages)*p.spec.PageBytes+p.chunk-1)/p.chunk))
	return nil
}

// DestroyPool frees a pool, after the device's streams have come to rest.
func (d *Device) DestroyPool(id gpu.Pool) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if _, err := d.pool(id); err != nil {
		return err
	}
	d.drain()
	d.destroy(int(id))
	return nil
}

func (d *Device) destroy(i int) {
	p := d.pools[i]
	if p == nil {
		return
	}
	d.pools[i] = nil
	d.shrinkTo(p, 0)
	d.releaseSpare()
	if p.reserved != 0 {
		d.driver.call(fnMemAddressFree, p.base, uintptr(p.reserved))
	}
	d.unpin(p)
}

// HostBytes is the memory of a host page, nil when there is no such page.
func (d *Device) HostBytes(id gpu.Pool, page messages.PageID) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := d.pool(id)
	if err != nil || page < 0 || int(page) >= p.spec.HostPages {
		return nil
	}
	at := int64(page) * p.spec.PageBytes
	return p.host[at : at+p.spec.PageBytes : at+p.spec.PageBytes]
}

// Base is the device address of page 0 of a pool. Page p begins PageBytes × p
// bytes behind it. The address stays the same while the pool grows and shrinks,
// so a host's kernels take it once and page tables at each launch.
func (d *Device) Base(id gpu.Pool) (address uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := d.pool(id)
	if err != nil {
		return 0, err
	}
	return uint64(p.base), nil
}
