package gpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/transfer"
)

// Errors of a device.
var (
	ErrNoDriver    = errors.New("gpu: no driver")
	ErrOutOfMemory = errors.New("gpu: out of memory")
	ErrCopyFailed  = errors.New("gpu: copy failed")
	ErrDeviceLost  = errors.New("gpu: device lost")
	ErrClosed      = errors.New("gpu: device is closed")
	ErrInUse       = errors.New("gpu: in use")
)

// Stream names an in-order queue of a device. The zero Stream is none.
type Stream = messages.StreamID

// MaxStreams is the number of streams that a device has at one time.
const MaxStreams = 1024

// Ticket is a point on a stream.
type Ticket = messages.Ticket

// Pool is a device's handle of one pool of pages, device and host tier.
type Pool int32

// Slot is the memory of one page: its Pool, its Tier and its Page.
type Slot transfer.Slot[Pool]

// PoolSpec sizes a pool.
type PoolSpec struct {
	Name        string
	PageBytes   int64
	DevicePages int
	HostPages   int
	// MaxDevicePages bounds later growth; 0 means DevicePages.
	MaxDevicePages int
	// Tensors, if there are any, are the device memory of the pool: the host
	// application has allocated it and keeps it. A page is one piece in each
	// tensor, as with a KV tensor for each layer; its bytes are those of the
	// pieces one behind the other, PageBytes in all, and so it lies in host memory.
	// Such a pool is not resized. gpu/sim refuses it; on gpu/host, where an address is one
	// of this process, kernels in Go reach the pages of a single tensor only.
	Tensors []Tensor
	// HostMemory, if not nil, is the memory of the host tier, at least HostPages ×
	// PageBytes from a multiple of the system's page on. The host application keeps
	// it mapped until the pool has been destroyed.
	HostMemory []byte
	// Shared asks for memory that can be given to other processes, where the
	// backend can do that.
	Shared bool
}

// Tensor is device memory of the host application that holds a piece of each
// page: that of page p is the PageBytes bytes at Address + p × Stride.
type Tensor struct {
	Address   uint64
	PageBytes int64
	Stride    int64
	Rank      int // whose memory it is, on a device that stands for several; else 0
}

// Copy moves bytes from one slot to another, or whole pages of a run that begins there.
// Its fields are those of transfer.Copy.
type Copy transfer.Copy[Slot]

// Batch is a set of copies that are submitted in one call. No destination may
// overlap another destination or a source of the batch. Reads of all copies
// come after all Waits. The slices are the caller's and may be reused when
// Submit has returned.
type Batch struct {
	Label  string   // for reports
	Waits  []Ticket // those of the stream itself change nothing
	Copies []Copy
}

// Memory is the memory that pools can have, in bytes.
type Memory struct {
	Free, Total int64 // of the device
	// HostFree is what the machine can still give for host pages, of all devices together; 0: not
	// known, or not taken until pages are written.
	HostFree int64
}

// Info describes a device.
type Info struct {
	Name    string
	Backend string // "host", "sim", "cuda"
	Link    string // name of the link profile
	// Copies is how a batch reaches the device: "batch", in one call; "loop", in
	// one for each piece, which is slower for small pages; "simulated".
	Copies string
	// Local is how pieces move within the device: "kernel", many in one launch; "" if as
	// Copies says.
	Local string
	// Completion is how Done learns that a ticket has passed: "counters", without
	// asking the driver; "events", by asking; "simulated".
	Completion string
	// Ranks is how many devices it stands for, each of which holds its share of every
	// page (package gpu/group); 0 means that it is one device.
	Ranks int
}

// Device moves pages. What is queued is ordered on the streams, by tickets. Sync waits
// for work of streams. CreatePool, Resize and DestroyPool take as long as the operating
// system needs for memory, and wait for work on pages that go; Close waits for
// everything. Methods may be called from several goroutines, and none delays the others.
type Device interface {
	Info() Info
	Memory() (Memory, error)
	// NewStream makes a stream; the name is for reports.
	NewStream(name string) (Stream, error)
	// DestroyStream gives a stream back. Everything that was queued on it must
	// have passed, else the error is ErrInUse and nothing changes. Its tickets
	// stay valid: they have passed. Its number is not used again.
	DestroyStream(Stream) error
	// CreatePool reserves and maps the pages of a pool. New pages hold poison, or zeros
	// where the system gives them.
	CreatePool(PoolSpec) (Pool, error)
	// Resize changes the number of device pages of a pool; pages at the end go
	// or come, the others keep number and bytes. Nothing may be under way on
	// pages that go.
	Resize(p Pool, devicePages int) error
	// DestroyPool frees a pool; nothing may be under way on it.
	DestroyPool(Pool) error
	// Submit queues a batch on a stream, after Waits and after all that the
	// stream was given before. An error is a *CopyError for a copy that the
	// device refused: those before it are queued, those from it on are not, and
	// the ticket covers the ones that are. Of a run that was refused some pages
	// may be queued; then there is a ticket, which covers them. A device that
	// cannot tell what a refused call has done waits until it is over, so that no
	// copy from the refused one on is under way when Submit returns.
	Submit(s Stream, b *Batch) (Ticket, error)
	// Fence returns the point after all that was queued on the stream so far.
	Fence(Stream) (Ticket, error)
	// Wait makes what is queued on the stream later wait for the tickets.
	Wait(s Stream, tickets ...Ticket) error
	// Done tells whether a ticket has passed.
	Done(Ticket) bool
	// Sync blocks until the ticket has passed or the context ends.
	Sync(context.Context, Ticket) error
	// HostBytes is the memory of a host page; on a device that stands for several, the
	// share of the first (see Sharded). The caller orders its access by tickets that it
	// has seen pass.
	HostBytes(p Pool, page messages.PageID) []byte
	Close() error
}

// CopyError is the failure of one copy of a batch.
type CopyError struct {
	Index int // in Batch.Copies
	Copy  Copy
	Err   error
}

// Error states which copy failed and why.
func (e *CopyError) Error() string {
	return fmt.Sprintf("copy %d, %s: %v", e.Index, e.Copy.Where(), e.Err)
}

// Unwrap returns the cause.
func (e *CopyError) Unwrap() error { return e.Err }

// Access is a part of a slot that a kernel touches; Bytes 0 means the whole page.
type Access struct {
	Slot          Slot
	Offset, Bytes int64
}

// Kernel is work of the host application on a stream: on gpu/host and gpu/sim
// a Go function that runs when the stream comes to it.
type Kernel struct {
	Label string
	Waits []Ticket
	// Reads and Writes list what Run touches. gpu/check finds missing order by them, and gpu/host
	// and gpu/sim refuse to shrink or destroy a pool while a kernel uses pages that go. Run gets
	// every page that it asks for, listed or not.
	Reads  []Access
	Writes []Access
	Nanos  int64 // its duration on a simulated device
	// Run gets the bytes of slots. It runs once, later, when everything it
	// waits for is done; the memory it sees is valid until it returns. On a device that
	// stands for several it runs once on each, perhaps at the same time.
	Run func(PageBytes)
	// RunRank, if not nil, runs instead of Run and is told on which device of several;
	// a device that is one is rank 0.
	RunRank func(rank int, bytes PageBytes)
}

// PageBytes returns the bytes of a page to a kernel.
type PageBytes func(Slot) []byte

// Known refuses a ticket that no stream of the device has issued: to wait for one would hang, or
// fail what waits for it. Devices that cannot tell know every ticket.
func Known(d Device, t Ticket) error {
	if k, ok := d.(interface{ Known(Ticket) error }); ok && !t.IsZero() {
		return k.Known(t)
	}
	return nil
}

// Launcher is a device that runs kernels written in Go: gpu/host, gpu/sim, and
// wrappers around them.
type Launcher interface {
	Launch(Stream, Kernel) (Ticket, error)
}
