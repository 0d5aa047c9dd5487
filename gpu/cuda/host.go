//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
	"github.com/kvactor/kvactor/gpu/internal/memfd"
)

const (
	// pieceBytes bounds one registration of host memory. Kernels 6.11 to 6.13
	// cannot pin more than 2 GiB at once; smaller pieces are pinned in parallel.
	pieceBytes = 256 << 20
	// pinners bounds the goroutines that fill and pin memory: faulting scales to a
	// few processors, then the kernel's locks are in the way.
	pinners    = 8
	adviseHuge = 14 // MADV_HUGEPAGE
	// hostRegistered is CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED.
	hostRegistered result = 712
)

// hostMemory is the host tier of a pool: registered by pieces of whole pages.
// No copy crosses two pieces.
// Pages that adjoin across two pieces are two descriptors.
type hostMemory struct {
	// bytes is rounded up to pages of the system. file is set for shared memory only, which
	// exports duplicate.
	bytes  []byte
	mapped bool     // the memory is the pool's to unmap
	file   *os.File // of shared memory
	piece  int64    // bytes of a piece
	pieces []hostPiece
}

// hostPiece is one registration.
// Host memory has to be registered, or the device could read it only through a copy by the
// driver, which would wait on the caller's thread.
type hostPiece struct {
	// device is the piece's address for the device. It is the host's address only
	// where attribute 91 says so; elsewhere (WSL 2) the host's address in a batch
	// copy ends the context with error 700 (SGLang issue 40232).
	device     uint64
	registered bool // by us; else the host application has done it
	region     uint32
}

// extent is the memory of a host page from an offset on; pages lie within pieces.
// at is in bytes from the start of the tier.
func (h *hostMemory) extent(at, left int64) extent {
	p := &h.pieces[at/h.piece]
	return extent{p.device + uint64(at%h.piece), left, p.region}
}

// pin makes the pool's host memory: the host application's, or mapped near the
// device; filled, so that the system backs it with
// physical memory; registered.
func (p *pool) pin(s *session) error {
	bytes := int64(p.spec.HostPages) * p.spec.PageBytes
	if bytes == 0 {
		return nil
	}
	if err := p.mapHost(roundUp(bytes, p.d.systemPage)); err != nil {
		return err
	}
	return p.cutAndPin(s)
}

// cutAndPin cuts the memory into pieces and pins them. A piece is whole pages of
// the pool and of the system: neither a page nor a system page may be in two
// registrations.
func (p *pool) cutAndPin(s *session) error {
	h := &p.host
	// The least common multiple of both sizes of pages.
	unit := p.spec.PageBytes / gcd(p.spec.PageBytes, p.d.systemPage) * p.d.systemPage
	h.piece = max(1, pieceBytes/unit) * unit
	h.pieces = make([]hostPiece, (int64(len(h.bytes))+h.piece-1)/h.piece)
	return p.pinPieces(s)
}

// mapHost finds the memory. Memory of the host application holds what the host
// has put there and is not filled.
// Its length is that of the host's slice, and its start a page of the system.
func (p *pool) mapHost(bytes int64) error {
	h := &p.host
	if given := p.spec.HostMemory; given != nil {
		if int64(len(given)) < int64(p.spec.HostPages)*p.spec.PageBytes ||
			uintptr(unsafe.Pointer(&given[0]))%uintptr(p.d.systemPage) != 0 {
			return fmt.Errorf(
				"cuda: pool %s: host memory of %d bytes at %p: %d pages of %d bytes are needed, from a "+
					"multiple of %d on",
				p.spec.Name, len(given), &given[0], p.spec.HostPages, p.spec.PageBytes, p.d.systemPage)
		}
		// The end need not be a multiple of the system's pages: the driver registers the pages
		// that the bytes touch.
		h.bytes = given[:min(bytes, int64(len(given)))]
		return nil
	}
	var err error
	if p.spec.Shared {
		h.file, h.bytes, err = mapShared(p.spec.Name, bytes)
	} else {
		h.bytes, err = mapMemory(bytes)
	}
	if err != nil {
		return fmt.Errorf("pool %s: %w: %w", p.spec.Name, gpu.ErrOutOfMemory, err)
	}
	h.mapped = true
	p.d.preferNode(h.bytes)
	// Pages of 2 MiB are filled and pinned in less than half of the time. Where the system has
	// none it refuses, or gives small ones.
	_ = syscall.Madvise(h.bytes, adviseHuge)
	return nil
}

// mapShared maps memory that other processes can map through the file.
func mapShared(name string, bytes int64) (*os.File, []byte, error) {
	file, err := memfd.Create(name, bytes)
	if err != nil {
		return nil, nil, err
	}
	b, err := syscall.Mmap(int(file.Fd()), 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%d bytes of shared memory: %w", bytes, err),
			file.Close())
	}
	return file, b, nil
}

// pinPieces fills and registers the pieces, several at a time, each worker on a
// thread of its own. It runs without the device's lock: pinning a gigabyte takes
// a second or two.
// An error of one worker does not end the others: free knows which pieces are registered.
func (p *pool) pinPieces(s *session) error {
	h := &p.host
	next := make(chan int, len(h.pieces))
	for i := range h.pieces {
		next <- i
	}
	close(next)
	// The channel has all pieces before a worker starts, so no worker waits for another.
	workers := min(len(h.pieces), pinners, runtime.GOMAXPROCS(0))
	if workers == 1 {
		return p.pinFrom(s, next)
	}
	problems := make([]error, workers)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			// A session of its own: contexts and answers belong to a thread.
			own, err := p.d.beginAnyway()
			if err != nil {
				problems[w] = err
				return
			}
			defer own.end()
			problems[w] = p.pinFrom(own, next)
		})
	}
	group.Wait()
	return errors.Join(problems...)
}

// pinFrom pins pieces until there are no more, or one fails.
// The others go on with theirs: free undoes what was done.
func (p *pool) pinFrom(s *session, next <-chan int) error {
	for i := range next {
		if err := p.pinPiece(s, i); err != nil {
			return err
		}
	}
	return nil
}

// pinPiece fills and registers one piece and asks for its device address. Filling
// comes first: it makes the system allocate the pages, by this thread and by the
// policy of preferNode, instead of inside of the driver's call.
// portableMapped makes the registration good for all contexts and gives it a device address.
func (p *pool) pinPiece(s *session, i int) error {
	h := &p.host
	at := int64(i) * h.piece
	memory := h.bytes[at:min(at+h.piece, int64(len(h.bytes)))]
	if h.mapped && !p.imported {
		inprocess.Fill(memory, poisonNew)
	}
	on := fmt.Sprintf("pool %s, host pages from %d on", p.spec.Name, at/p.spec.PageBytes)
	r := s.call(fnMemHostRegister, address(&memory[0]), uintptr(len(memory)), portableMapped)
	h.pieces[i].registered = r == success
	// Memory of the host application's that the driver reaches already is refused: with a code
	// of its own if the host has registered it, as an invalid value if the driver has allocated
	// it (seen with driver 580), as it does for PyTorch. Memory of the pool's own is neither.
	known := !h.mapped && (r == hostRegistered || r == invalidValue)
	refused := s.failure(fnMemHostRegister, r, on)
	if refused != nil && !known {
		return refused
	}
	if err := s.do(fnMemHostGetDevicePointer, on, address(&s.out.number[0]), address(&memory[0]),
		0); err != nil {
		return errors.Join(refused, err)
	}
	if known {
		if err := p.registeredWhole(s, memory, on); err != nil {
			return err
		}
	}
	h.pieces[i].device, h.pieces[i].region = s.out.number[0], p.d.regions.Add(1)
	return nil
}

// registeredWhole refuses memory that the host application has registered in part, or
// whose device addresses do not follow one another: a copy would end the context.
func (p *pool) registeredWhole(s *session, memory []byte, on string) error {
	last := len(memory) - 1
	if err := s.do(fnMemHostGetDevicePointer, on+", last byte", address(&s.out.number[1]),
		address(&memory[last]), 0); err != nil {
		return err
	}
	if s.out.number[1] != s.out.number[0]+uint64(last) {
		return fmt.Errorf("cuda: %s: the host has registered the memory in parts", on)
	}
	return nil
}

// preferNode asks the system to take memory from the node near the device, and
// from another one when that is full. It is not MPOL_BIND, under which a full
// node ends the process. Where it fails copies are slower, not wrong.
func (d *Device) preferNode(b []byte) {
	const preferred, maxNode = 1, 64
	if d.numa < 0 || d.numa >= maxNode {
		return
	}
	// A set of nodes, one bit each. The kernel reads one bit less than it is told, hence + 1.
	nodes := uint64(1) << d.numa
	_, _, _ = syscall.Syscall6(syscall.SYS_MBIND, address(&b[0]), uintptr(len(b)), preferred,
		uintptr(unsafe.Pointer(&nodes)), maxNode+1, 0)
}

// free unregisters the memory and unmaps it, if the pool has mapped it.
// A registration of the host application's own is left to it.
func (h *hostMemory) free(s *session) error {
	var problems []error
	for i := range h.pieces {
		if p := &h.pieces[i]; p.registered {
			problems = append(problems, s.do(fnMemHostUnregister, "host memory",
				address(&h.bytes[int64(i)*h.piece])))
			p.registered = false
		}
	}
	if h.mapped {
		problems = append(problems, syscall.Munmap(h.bytes))
	}
	if h.file != nil {
		problems = append(problems, h.file.Close())
	}
	*h = hostMemory{}
	return errors.Join(problems...)
}
