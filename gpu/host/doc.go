// Package host provides the machine's memory as a device, for hosts that compute on the CPU and for
// memory that other processes map. Nothing is modelled: copies take real time, and tickets pass
// when the bytes are there.
//
// # Memory
//
// Both tiers of a pool are memory of the machine. Address space for the largest size of a
// pool is reserved when it is created, and memory is committed and given back within it,
// so pages keep their addresses. Memory is one of three kinds:
//
//	anonymous   the default, of this process
//	shared      PoolSpec.Shared: a file in memory for each tier that other processes
//	            map, see Export; on Linux only
//	given       PoolSpec.Tensors and PoolSpec.HostMemory: of the host application, which
//	            keeps it; a device tier that is given is not resized
//
// Large pools ask for pages of 2 MiB. Pages of the system take memory when they are first
// touched. A new page holds zeros, or poison if Config.Poison asks for it.
//
// # Order
//
// A device has Config.Workers goroutines that copy. An operation runs when those before it
// on its stream have ended and its waits have passed. A batch is cut into parts that
// several workers copy at the same time; streams take turns. Kernels are Go functions, each
// in a goroutine of its own. A kernel may Submit, Launch, Fence, Wait and ask Done; it must
// not Close the device, which waits for it.
//
// # Work of others
//
// NewTicket queues an operation that another process, or a thread that isn't a kernel, carries out.
// The host application ends it with Complete:
//
//	             NewTicket                        Complete
//	stream ──▶ … ────┬──── the other one writes ────┬──▶ what was queued behind it
//	                 └ returns the ticket at once   └ nil: written; an error: failed
//
// A failed ticket orders work like a complete one: it passes, and what waits for it runs on
// whatever bytes are there. Sync returns its error. Whoever fails a ticket must make sure that
// nobody uses the pages' contents. If a client's work has its own order, give the client its own
// stream, so no other stream waits for it.
//
// # Ends
//
// Close drops what is queued, waits only for running parts and kernels, and gives the memory back:
// slices of HostBytes are then invalid. A killed process leaves nothing behind, since files of
// shared memory have no name.
package host
