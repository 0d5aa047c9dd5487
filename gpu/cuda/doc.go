// Package cuda is the backend for NVIDIA devices, through the driver library
// alone: no C compiler, no toolkit. Importing it makes gpu.Open("cuda", …)
// work; where libcuda.so.1 is missing that answers gpu.ErrNoDriver. It is the
// only package that links against the system's loader, so programs that do not
// import it stay static.
//
// It has run on an H100 and an H200. Tests run it on two imitations of the driver: one
// in Go, and one in C that is built against NVIDIA's own header (ctest). docs/gpu.md
// says what has run where, and how fast.
//
// # The interface and the driver
//
//	pool, device tier  address space reserved once for the largest size, memory
//	                   mapped into it by chunks, which pools exchange as they
//	                   shrink and grow; pages never change address. Or tensors
//	                   that the host application has allocated (PoolSpec.Tensors)
//	pool, host tier    anonymous memory that prefers the node near the device,
//	                   filled, then registered; or the host's (PoolSpec.HostMemory)
//	stream             a stream that does not block with the default one
//	batch              one cuMemcpyBatchAsync after merging neighbours, else a
//	                   loop of cuMemcpyAsync; Info says which. Pieces that stay
//	                   within the device go by a kernel, up to 1,364 in a launch
//	ticket             a 64-bit counter in registered memory that the stream
//	                   writes after each batch: Done is a few atomic loads; and an
//	                   event, for other streams and for Sync to wait on
//	the host's work    its streams with External, its events with ExternalEvent
//	other processes    Export and ImportPool, NewSharedEvent and OpenSharedEvent
//
// # Beside a host that owns the GPU
//
// The device uses the primary context, as the CUDA runtime and PyTorch do. Each call pushes it onto
// its thread's stack of contexts and pops it again, so a thread that works on another device keeps
// that device. Calls that no stream orders are made in relaxed capture mode, so they neither fail
// during a host's graph capture nor end it. Before each use of a host's stream, the device checks
// whether the stream is being captured; if so, the call answers ErrCapturing and queues nothing.
// The host must not begin a capture on a stream while a call that names the stream is under way.
//
// Memory that the host gives stays the host's: it is neither filled nor freed, and must outlive the
// pool. If the host has registered it, that registration is used.
//
// # What waits
//
// The device's lock covers bookkeeping and calls that queue work. Faulting,
// pinning, mapping, and waiting for streams before memory is unmapped happen
// without it, so Submit, Done and the rest are served meanwhile.
//
// All memory whose address reaches the driver is outside Go's heap: Go may move or free its stacks
// and heap slices while the driver still has their addresses.
//
// After an error that ends the context, wherever it occurs, the device is lost for good: every call
// answers gpu.ErrDeviceLost.
package cuda
