// Package cuda is the backend for NVIDIA devices, through the driver library
// alone: no C compiler, no toolkit. Importing it makes gpu.Open("cuda", …)
// work; where libcuda.so.1 is missing that answers gpu.ErrNoDriver. It is the
// only package that links against the system's loader, so programs that do not
// import it stay static.
//
// How the interface maps to the driver:
//
//	pool, device tier  address space reserved once for the largest size, memory
//	                   mapped into it by chunks, which pools exchange as they
//	                   shrink and grow; pages never change address
//	pool, host tier    anonymous memory near the device, filled, then registered
//	stream             a stream that does not block with the default one
//	batch              one cuMemcpyBatchAsync after merging neighbours, else a
//	                   loop of cuMemcpyAsync
//	ticket             a 64-bit counter in registered memory that the stream
//	                   writes after each batch: Done is one atomic load; and an
//	                   event, for other streams and for Sync to wait on
//
//	the host's work    its streams with External, its events with ExternalEvent
//
// A driver's context is current for one thread and goroutines change threads,
// so each call locks the device and its thread, makes the context current, does
// all driver calls of the batch and lets go.
//
// All memory whose address reaches the driver is outside of Go's heap: stacks
// and slices of the heap move or go while a number that was their address stays.
//
// Failures that poison the context make the device lost for good.
package cuda
