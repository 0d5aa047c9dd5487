//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"sync"
)

// chunkBytes is the unit in which device memory is mapped: large enough that a
// pool has few mappings, small enough to move between pools.
// It is a multiple of the granularity of mappings, 2 MiB on the devices there are.
const chunkBytes = 32 << 20

// chunkKind tells which pools can use a chunk.
// A chunk cannot be cut, and whether it can be exported is decided when it is created.
type chunkKind struct {
	bytes  int64
	shared bool
}

// spareChunks are chunks that pools have returned for other pools to take. Pools
// exchange memory so, and no other program gets hold of it in between. Chunks
// that can be shared are kept apart: other processes may still have them mapped.
// The lock is held while chunks are released, and no other lock is taken under it.
type spareChunks struct {
	sync.Mutex
	chunks map[chunkKind][]uint64
}

// put adds a chunk that a pool has unmapped.
// Nothing uses the chunk: the streams were waited for before it was unmapped.
func (c *spareChunks) put(k chunkKind, handle uint64) {
	c.Lock()
	defer c.Unlock()
	if c.chunks == nil {
		c.chunks = map[chunkKind][]uint64{}
	}
	c.chunks[k] = append(c.chunks[k], handle)
}

// take removes the chunk that was added last, if there is one of the kind.
func (c *spareChunks) take(k chunkKind) (handle uint64, ok bool) {
	c.Lock()
	defer c.Unlock()
	// The last one was unmapped last; which one is taken makes no other difference.
	free := c.chunks[k]
	if len(free) == 0 {
		return 0, false
	}
	c.chunks[k] = free[:len(free)-1]
	return free[len(free)-1], true
}

// release returns all chunks to the driver and tells how many they were.
// It runs when memory is short, when a pool ends, and before free memory is told.
func (c *spareChunks) release(s *session) (n int) {
	c.Lock()
	defer c.Unlock()
	for k, free := range c.chunks {
		for _, handle := range free {
			// A chunk that the driver does not take back is lost to this process; the caller goes on.
			_ = s.do(fnMemRelease, "spare chunk", uintptr(handle)) // notes a lost device
			n++
		}
		delete(c.chunks, k)
	}
	return n
}

// kind is the kind of chunks that the pool uses.
func (p *pool) kind() chunkKind { return chunkKind{p.chunk, p.spec.Shared} }

// prop is the driver's description of the pool's chunks.
// The same description asks for the granularity and creates the chunks, as the driver wants.
func (p *pool) prop() allocationProp {
	// CU_MEM_ALLOCATION_TYPE_PINNED: memory that does not leave the device.
	a := allocationProp{kind: 1, location: location{onDevice, p.d.ordinal}}
	if p.spec.Shared {
		a.handleTypes = posixFD
	}
	return a
}

// reserve takes address space for the pool's largest size.
// There is far more address space than memory, so all pools can have their largest size.
func (p *pool) reserve(s *session) error {
	on := "pool " + p.spec.Name
	// Asked for here, or the first export would fail when the pool is full of blocks.
	if p.spec.Shared && p.d.attribute(s, attributePosixFD) == 0 {
		return fmt.Errorf("cuda: %s: device %d (%s) gives no memory to other processes: %w", on,
			p.d.ordinal, p.d.name, ErrNotShared)
	}
	s.out.prop = p.prop()
	// CU_MEM_ALLOC_GRANULARITY_MINIMUM. The recommended one may be larger; chunks are larger
	// than either.
	const minimum = 0
	if err := s.do(fnMemGetAllocationGranularity, on, address(&s.out.number[0]), address(&s.out.prop),
		minimum); err != nil {
		return err
	}
	unit := int64(s.out.number[0])
	most := roundUp(int64(p.spec.MaxDevicePages)*p.spec.PageBytes, unit)
	// A pool smaller than a chunk takes what it needs.
	p.chunk = min(roundUp(chunkBytes, unit), max(most, unit))
	return p.reserveSpace(s, roundUp(max(most, unit), p.chunk))
}

// reserveSpace reserves address space. It costs no memory; pages keep their
// addresses because the pool never needs more of it.
func (p *pool) reserveSpace(s *session, bytes int64) error {
	if err := s.do(fnMemAddressReserve, "pool "+p.spec.Name, address(&s.out.number[0]), uintptr(bytes),
		0, 0, 0); err != nil {
		return err
	}
	p.base, p.reserved = uintptr(s.out.number[0]), bytes
	return nil
}

// grow maps chunks until the pages have memory, and poisons those that are new.
// When it fails the pool is as before. The caller publishes the number of pages.
func (p *pool) grow(s *session, pages int) error {
	// Pages need not end with a chunk: the last chunk may have room for more already.
	had := len(p.chunks)
	need := int64(pages) * p.spec.PageBytes
	err := p.mapUpTo(s, need)
	if err == nil {
		err = p.poison(s, int64(p.spec.DevicePages)*p.spec.PageBytes, need)
	}
	if err != nil {
		// What was mapped goes to the driver and not to other pools: memory is short.
		err = errors.Join(err, p.shrinkTo(s, had))
		p.d.spare.release(s)
	}
	return err
}

// mapUpTo maps chunks until so many bytes have memory. What was mapped before an
// error stays mapped; the caller unmaps it.
// A chunk is taken and mapped one at a time, so an error leaves nothing half done.
func (p *pool) mapUpTo(s *session, bytes int64) error {
	for int64(len(p.chunks))*p.chunk < bytes {
		on := p.chunkName(len(p.chunks))
		handle, err := p.takeChunk(s, on)
		if err != nil {
			return err
		}
		if err := p.mapChunk(s, handle, on); err != nil {
			return errors.Join(err, s.do(fnMemRelease, on, uintptr(handle)))
		}
	}
	return nil
}

// poison fills the bytes [from, to) of the pool, so that a page which nothing has
// written does not look like one that something has.
// It waits for the fill: streams of the host know nothing of the device's own stream.
func (p *pool) poison(s *session, from, to int64) error {
	if from >= to {
		return nil
	}
	on := "pool " + p.spec.Name
	if err := s.do(fnMemsetD8Async, on, p.base+uintptr(from), poisonNew, uintptr(to-from),
		p.d.own); err != nil {
		return err
	}
	return s.do(fnStreamSynchronize, on, p.d.own)
}

// chunkName names a chunk in errors.
// The number counts from the start of the pool.
func (p *pool) chunkName(n int) string {
	return fmt.Sprintf("pool %s, chunk %d of %d bytes", p.spec.Name, n, p.chunk)
}

// mapChunk maps a chunk behind the others; when it fails nothing is mapped.
func (p *pool) mapChunk(s *session, handle uint64, on string) error {
	at := p.base + uintptr(int64(len(p.chunks))*p.chunk)
	if err := s.do(fnMemMap, on, at, uintptr(p.chunk), 0, uintptr(handle), 0); err != nil {
		return err
	}
	// A mapping has no access rights until they are set.
	s.out.access = accessDesc{location: location{onDevice, p.d.ordinal}, flags: readWrite}
	if err := s.do(fnMemSetAccess, on, at, uintptr(p.chunk), address(&s.out.access), 1); err != nil {
		return errors.Join(err, s.do(fnMemUnmap, on, at, uintptr(p.chunk)))
	}
	p.chunks = append(p.chunks, handle)
	return nil
}

// takeChunk returns a chunk that another pool has returned, or a new one. When there is
// no memory for a new one, chunks of other sizes may be what is missing.
func (p *pool) takeChunk(s *session, on string) (handle uint64, err error) {
	if handle, ok := p.d.spare.take(p.kind()); ok {
		return handle, nil
	}
	s.out.prop = p.prop()
	create := func() result {
		return s.call(fnMemCreate, address(&s.out.number[0]), uintptr(p.chunk), address(&s.out.prop), 0)
	}
	// s.call and not s.do: the first refusal is no error if releasing spare chunks helps.
	r := create()
	if r == outOfMemory && p.d.spare.release(s) > 0 {
		r = create()
	}
	return s.out.number[0], s.failure(fnMemCreate, r, on)
}

// shrinkTo unmaps chunks from the end; other pools may take them. Nothing may
// use them.
func (p *pool) shrinkTo(s *session, chunks int) error {
	for n := len(p.chunks) - 1; n >= chunks; n-- {
		on := p.chunkName(n)
		if err := s.do(fnMemUnmap, on, p.base+uintptr(int64(n)*p.chunk), uintptr(p.chunk)); err != nil {
			return err
		}
		// The owner of an imported chunk may give it to another pool; here it is of no other use.
		if p.imported {
			if err := s.do(fnMemRelease, on, uintptr(p.chunks[n])); err != nil {
				return err
			}
		} else {
			p.d.spare.put(p.kind(), p.chunks[n])
		}
		p.chunks = p.chunks[:n]
	}
	return nil
}

// free returns all memory of a pool to the driver and the system.
// It goes on behind errors: what can be given back is.
func (p *pool) free(s *session) error {
	problems := []error{p.shrinkTo(s, 0)}
	p.d.spare.release(s)
	// Address space with mappings in it cannot be freed. It costs no memory.
	if p.reserved != 0 && len(p.chunks) == 0 {
		problems = append(problems, s.do(fnMemAddressFree, "pool "+p.spec.Name, p.base,
			uintptr(p.reserved)))
		p.reserved = 0
	}
	problems = append(problems, p.host.free(s))
	return errors.Join(problems...)
}
