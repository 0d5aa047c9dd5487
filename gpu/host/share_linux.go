package host

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
	"github.com/kvactor/kvactor/gpu/internal/memfd"
	"github.com/kvactor/kvactor/messages"
)

// Export is a pool as another process can map it: its shape, and a file for each tier, in
// which page p begins at p × PageBytes. The shape is plain JSON; the files travel over a Unix
// socket as ancillary data. They are duplicates that belong to whoever has the Export:
// Close closes them.
//
// Nobody can change the size of a file, so a process that has mapped SpaceBytes of it never
// faults. Pages that the owner has given back are zero.
type Export struct {
	Pool      string
	PageBytes int64
	// SpaceBytes is the size of the file of the device tier, whatever part of it the pages
	// take now.
	SpaceBytes  int64
	DevicePages int
	HostPages   int
	Device      *os.File `json:"-"` // nil: the pool has no device tier
	Host        *os.File `json:"-"` // nil: no host tier
}

// Close closes the files. What was mapped stays mapped.
func (e *Export) Close() error {
	var problems []error
	for _, f := range []*os.File{e.Device, e.Host} {
		if f != nil {
			problems = append(problems, f.Close())
		}
	}
	e.Device, e.Host = nil, nil
	return errors.Join(problems...)
}

// Export describes a pool that was created with PoolSpec.Shared as it is now. After a
// Resize only the number of pages is another: whoever has the files needs no new ones.
func (d *Device) Export(id gpu.Pool) (*Export, error) {
	d.change.Lock()
	defer d.change.Unlock()
	p, err := d.own(id)
	if err != nil {
		return nil, err
	}
	if !p.spec.Shared {
		return nil, fmt.Errorf("pool %s: export: %w", p.spec.Name, ErrNotShared)
	}
	e := &Export{
		Pool: p.spec.Name, PageBytes: p.spec.PageBytes,
		SpaceBytes:  int64(len(p.tiers[messages.Primary].bytes)),
		DevicePages: p.spec.DevicePages, HostPages: p.spec.HostPages,
	}
	for tier, to := range []**os.File{messages.Primary: &e.Device, messages.Secondary: &e.Host} {
		if f := p.tiers[tier].file; f != nil {
			if *to, err = memfd.Duplicate(f); err != nil {
				return nil, errors.Join(fmt.Errorf("host: pool %s: %w", p.spec.Name, err), e.Close())
			}
		}
	}
	return e, nil
}

// ImportPool maps a pool that another process has exported. It is a pool like others, but
// for Resize: it follows its owner by UpdateImport. What its pages hold and when they may
// be read is between the two processes. The export stays the caller's to close. A file
// that is too small, or that its owner could shrink, is refused.
func (d *Device) ImportPool(e *Export) (gpu.Pool, error) {
	d.change.Lock()
	defer d.change.Unlock()
	p := &pool{imported: true, spec: gpu.PoolSpec{
		Name: e.Pool, PageBytes: e.PageBytes, Shared: true,
		DevicePages: e.DevicePages, HostPages: e.HostPages,
	}}
	if p.spec.PageBytes > 0 {
		p.spec.MaxDevicePages = int(e.SpaceBytes / e.PageBytes)
	}
	if err := checkSpec(&p.spec); err != nil {
		return 0, err
	}
	if e.DevicePages > p.spec.MaxDevicePages {
		return 0, fmt.Errorf("host: pool %s: an export of %d pages of %d bytes in %d",
			e.Pool, e.DevicePages, e.PageBytes, e.SpaceBytes)
	}
	var err error
	if p.tiers[messages.Primary], err = mapFile(e.Device, e.SpaceBytes); err == nil {
		p.tiers[messages.Secondary], err = mapFile(e.Host, int64(e.HostPages)*e.PageBytes)
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("host: pool %s: %w", e.Pool, err), p.release())
	}
	return d.publish(p)
}

// mapFile maps the first bytes of a file of another process.
func mapFile(f *os.File, bytes int64) (r region, err error) {
	if bytes == 0 {
		return r, nil
	}
	if f == nil {
		return r, fmt.Errorf("%d bytes without a file: %w", bytes, ErrNotShared)
	}
	if err := memfd.Check(f, bytes); err != nil {
		return r, err
	}
	const use = syscall.PROT_READ | syscall.PROT_WRITE
	r.bytes, err = syscall.Mmap(int(f.Fd()), 0, int(bytes), use, syscall.MAP_SHARED)
	r.committed = int64(len(r.bytes))
	return r, err
}

// UpdateImport makes the number of pages of an imported pool what its owner's is now. Work
// under way on pages that go is an error. Before its owner shrinks a pool, a reader updates
// with the export it has and fewer DevicePages, and then tells the owner.
func (d *Device) UpdateImport(id gpu.Pool, e *Export) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := d.pool(id)
	if err != nil {
		return err
	}
	if !p.imported || p.spec.Name != e.Pool || p.spec.PageBytes != e.PageBytes {
		return fmt.Errorf("host: pool %d was not imported from pool %s", id, e.Pool)
	}
	if n := e.DevicePages; n < 0 || n > p.spec.MaxDevicePages {
		return fmt.Errorf("host: pool %s: %d device pages, there is space for %d", e.Pool, n,
			p.spec.MaxDevicePages)
	}
	going := inprocess.Touching{Pool: id, Tier: messages.Primary, From: messages.PageID(e.DevicePages)}
	if err := d.streams.Idle(going); err != nil {
		return fmt.Errorf("host: pool %s: update to %d device pages: %w", p.spec.Name, e.DevicePages, err)
	}
	p.spec.DevicePages = e.DevicePages
	return nil
}
