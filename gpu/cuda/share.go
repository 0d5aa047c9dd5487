//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/memfd"
)

// Export is a pool as another process can map it: its shape, a file for each
// chunk of device memory, and one for host memory. The files are duplicates that
// belong to whoever has the Export: Close closes them. WriteExport and
// ReadExport carry it over a Unix socket.
//
// Memory that both processes have mapped exists as long as either maps it. But a
// chunk that leaves the pool may become part of another pool of its owner, so
// readers must have been told, and have updated, before the owner resizes.
// The driver does not tell readers: one that reads on reads another pool's pages.
type Export struct {
	Pool      string
	UUID      string // of the device: ordinals differ between processes
	PageBytes int64
	// Sizes are in bytes. Readers reserve SpaceBytes at once, so that their pages keep their
	// addresses, too, when the pool grows.
	ChunkBytes  int64
	SpaceBytes  int64 // address space for the pool's largest size
	DevicePages int
	HostPages   int
	Chunks      []*os.File `json:"-"`
	Host        *os.File   `json:"-"` // nil: no host tier
}

// Close closes the files. A pool that was imported stays mapped.
// A mapping holds its memory without the file.
func (e *Export) Close() error {
	var problems []error
	for _, f := range append(e.Chunks, e.Host) {
		if f != nil {
			problems = append(problems, f.Close())
		}
	}
	e.Chunks, e.Host = nil, nil
	return errors.Join(problems...)
}

// Export describes a pool that was created with PoolSpec.Shared as it is now. After
// a Resize another Export has its new chunks.
// Each file is a new descriptor of this process: many exports need many of them.
func (d *Device) Export(id gpu.Pool) (e *Export, err error) {
	p, err := d.lookup(id)
	if err != nil {
		return nil, err
	}
	s, err := d.beginUnlocked()
	if err != nil {
		return nil, err
	}
	defer s.endUnlocked()
	p.change.Lock()
	defer p.change.Unlock()
	if p.gone {
		return nil, fmt.Errorf("cuda: no pool %d", id)
	}
	if !p.spec.Shared || p.imported {
		return nil, fmt.Errorf("pool %s: export: %w", p.spec.Name, ErrNotShared)
	}
	e = &Export{
		Pool: p.spec.Name, UUID: d.UUID(), PageBytes: p.spec.PageBytes, ChunkBytes: p.chunk,
		SpaceBytes:  p.reserved,
		DevicePages: p.spec.DevicePages, HostPages: p.spec.HostPages,
	}
	for n, handle := range p.chunks {
		on := p.chunkName(n)
		// Not 0, which is a file.
		s.out.small = -1
		if err := s.do(fnMemExport, on, address(&s.out.small), uintptr(handle), posixFD, 0); err != nil {
			return nil, errors.Join(err, e.Close())
		}
		// Programs that the host starts get none of the files.
		syscall.CloseOnExec(int(s.out.small))
		e.Chunks = append(e.Chunks, os.NewFile(uintptr(s.out.small), on))
	}
	if p.host.file != nil {
		// A duplicate, since the pool needs its own file until it is destroyed.
		if e.Host, err = memfd.Duplicate(p.host.file); err != nil {
			return nil, errors.Join(fmt.Errorf("cuda: pool %s: host memory: %w", p.spec.Name, err),
				e.Close())
		}
	}
	return e, nil
}

// ImportPool maps a pool that another process has exported. It is a pool like
// others, but for Resize: it follows its owner by UpdateImport. What its pages
// hold and when they may be read is between the two processes. The export stays
// the caller's to close.
// A reader that only reads is not told apart by the driver: both may write.
func (d *Device) ImportPool(e *Export) (gpu.Pool, error) {
	s, err := d.beginUnlocked()
	if err != nil {
		return 0, err
	}
	defer s.endUnlocked()
	// Memory of another device would be far away, if it could be mapped at all.
	// An ordinal would not do: CUDA_VISIBLE_DEVICES may order the devices of the two processes
	// differently.
	if e.UUID != d.UUID() {
		return 0, fmt.Errorf("cuda: pool %s is on device %s, this is %s", e.Pool, e.UUID, d.UUID())
	}
	// The export came from another process: values that make no sense must not reach a mapping.
	if e.PageBytes <= 0 || e.ChunkBytes <= 0 || e.SpaceBytes < int64(len(e.Chunks))*e.ChunkBytes {
		return 0, fmt.Errorf("cuda: pool %s: an export of %d chunks of %d bytes in %d, pages of %d",
			e.Pool, len(e.Chunks), e.ChunkBytes, e.SpaceBytes, e.PageBytes)
	}
	p := &pool{d: d, imported: true, chunk: e.ChunkBytes, region: d.regions.Add(1), spec: gpu.PoolSpec{
		Name: e.Pool, PageBytes: e.PageBytes, HostPages: e.HostPages, Shared: true,
	}}
	// Space for the largest size at once, as its owner has it: addresses stay when it grows.
	err = p.reserveSpace(s, e.SpaceBytes)
	if err == nil {
		err = p.follow(s, e)
	}
	if err == nil {
		err = p.importHost(s, e)
	}
	if err != nil {
		return 0, errors.Join(err, p.free(s))
	}
	p.spec.DevicePages = e.DevicePages
	return d.publish(p), nil
}

// UpdateImport makes an imported pool what its owner's is now: chunks at the end
// come and go. Pages that go are waited for as in Resize. Before its owner shrinks
// a pool, a reader updates with the export it has and fewer DevicePages.
// It then tells the owner, by a channel of their own.
func (d *Device) UpdateImport(id gpu.Pool, e *Export) error {
	p, s, err := beginChange(d, id)
	if err != nil {
		return err
	}
	defer p.endChange(s)
	// An export of another pool has pages elsewhere, though its numbers may fit.
	if p.gone || !p.imported || p.spec.Name != e.Pool || p.chunk != e.ChunkBytes ||
		p.spec.PageBytes != e.PageBytes {
		return fmt.Errorf("cuda: pool %d was not imported from pool %s", id, e.Pool)
	}
	// First what goes, so that the owner can be told soon.
	if e.DevicePages < p.spec.DevicePages {
		if err := p.shrink(s, e.DevicePages); err != nil {
			return err
		}
	}
	if err := p.follow(s, e); err != nil {
		return err
	}
	p.setPages(e.DevicePages)
	return nil
}

// follow maps the chunks of an export that its pages need and that are not
// mapped yet.
func (p *pool) follow(s *session, e *Export) error {
	// Compared before anything is mapped: the loop below would run out of files.
	if int64(e.DevicePages)*e.PageBytes > int64(len(e.Chunks))*e.ChunkBytes {
		return fmt.Errorf("cuda: pool %s: %d pages in %d chunks", e.Pool, e.DevicePages, len(e.Chunks))
	}
	for n := len(p.chunks); int64(n)*p.chunk < int64(e.DevicePages)*e.PageBytes; n++ {
		on := p.chunkName(n)
		err := s.do(fnMemImport, on, address(&s.out.number[0]), e.Chunks[n].Fd(), posixFD)
		if err != nil {
			return err
		}
		// Kept before the next call writes to the same memory.
		handle := s.out.number[0]
		if err := p.mapChunk(s, handle, on); err != nil {
			return errors.Join(err, s.do(fnMemRelease, on, uintptr(handle)))
		}
	}
	return nil
}

// importHost maps and registers the host tier of the other process.
// Pages of the tier are as far apart as in the owner's, so copies may use them at once.
func (p *pool) importHost(s *session, e *Export) error {
	if e.Host == nil {
		p.spec.HostPages = 0
		return nil
	}
	bytes := roundUp(int64(e.HostPages)*e.PageBytes, p.d.systemPage)
	b, err := syscall.Mmap(int(e.Host.Fd()), 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("cuda: pool %s: host memory: %w", e.Pool, err)
	}
	// mapped: the pool unmaps it. It is not filled, since the owner's blocks are in it.
	p.host.bytes, p.host.mapped = b, true
	return p.cutAndPin(s)
}
