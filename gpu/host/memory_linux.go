package host

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/kvactor/kvactor/gpu/internal/memfd"
)

const (
	// adviseHuge is MADV_HUGEPAGE.
	adviseHuge = 14
	// hugeBytes is the size of a large page of the system. Regions of that size and more are
	// committed by multiples of it, so that large pages can be used to the end.
	hugeBytes = 2 << 20
	// keepSize and punchHole are FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE.
	keepSize, punchHole = 1, 2
)

// region is the memory of one tier of a pool: address space, of which the first committed
// bytes can be used. Access to the rest is a fault.
type region struct {
	bytes     []byte // all of the address space
	committed int64
	file      *os.File // of shared memory: as long as the address space
	given     bool     // the memory is the host application's
}

// reserve takes address space. The memory is zero when it is committed.
func reserve(name string, space int64, shared bool) (r region, err error) {
	if space == 0 {
		return r, nil
	}
	space = roundUp(space, r.chunk(space))
	if !shared {
		const flags = syscall.MAP_ANON | syscall.MAP_PRIVATE | syscall.MAP_NORESERVE
		r.bytes, err = syscall.Mmap(-1, 0, int(space), syscall.PROT_NONE, flags)
	} else if r.file, err = memfd.Create(name, space); err == nil {
		fd := int(r.file.Fd())
		r.bytes, err = syscall.Mmap(fd, 0, int(space), syscall.PROT_NONE, syscall.MAP_SHARED)
	}
	if err != nil {
		return r, fmt.Errorf("%d bytes of address space: %w", space, err)
	}
	if space >= hugeBytes {
		// Where the system has none it refuses, or gives small ones.
		_ = syscall.Madvise(r.bytes, adviseHuge)
	}
	return r, nil
}

// chunk is the unit by which a region of so much space is committed.
func (r *region) chunk(space int64) int64 {
	if space >= hugeBytes {
		return hugeBytes
	}
	return int64(os.Getpagesize())
}

// commit makes the first bytes of a region usable, and only grows.
func (r *region) commit(bytes int64) error {
	end := roundUp(bytes, r.chunk(int64(len(r.bytes))))
	if end <= r.committed {
		return nil
	}
	const use = syscall.PROT_READ | syscall.PROT_WRITE
	if err := syscall.Mprotect(r.bytes[r.committed:end], use); err != nil {
		return err
	}
	r.committed = end
	return nil
}

// shrink gives the bytes [to, from) back; if they are used again, they are zero.
func (r *region) shrink(to, from int64) error {
	// The rest of the last page of the system stays.
	page := int64(os.Getpagesize())
	hole := min(roundUp(to, page), from)
	clear(r.bytes[to:hole])
	from = roundUp(from, page)
	if hole == from {
		return nil
	}
	var err error
	if r.file != nil {
		err = syscall.Fallocate(int(r.file.Fd()), keepSize|punchHole, hole, from-hole)
	} else {
		err = syscall.Madvise(r.bytes[hole:from], syscall.MADV_DONTNEED)
	}
	if err != nil {
		return fmt.Errorf("host: giving %d bytes back: %w", from-hole, err)
	}
	end := roundUp(to, r.chunk(int64(len(r.bytes))))
	if end < r.committed {
		err = syscall.Mprotect(r.bytes[end:r.committed], syscall.PROT_NONE)
		r.committed = end
	}
	return err
}

// release gives everything back. Memory that another process has mapped goes with that.
func (r *region) release() error {
	if r.given {
		return nil
	}
	var err error
	if r.bytes != nil {
		err = syscall.Munmap(r.bytes)
	}
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
	}
	*r = region{}
	return err
}

// roundUp is the least multiple of unit from n on.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// systemMemory is the machine's memory in bytes.
func systemMemory() int64 {
	var s syscall.Sysinfo_t
	if syscall.Sysinfo(&s) != nil {
		return machineMemory
	}
	return int64(uint64(s.Totalram) * uint64(s.Unit)) //nolint:unconvert // 32 bits on some processors
}
