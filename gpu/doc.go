// Package gpu is the engine's view of a device: pools of pages in device and host memory, streams
// that run work in order, batches of copies, and tickets: points on a stream that other work can
// wait for.
//
//	      host memory            link               device memory
//	┌───────────────────┐  ── onboard ──▶  ┌───────────────────────────┐
//	│ pool 0: 0 1 2 …   │                  │ pool 0: 0 1 2 3 4 5 …     │
//	│ pool 1: 0 1 …     │  ◀── offload ──  │ pool 1: 0 1 2 …      ↺ copy
//	└───────────────────┘                  └───────────────────────────┘
//
// # What may block
//
// Sync waits for work of streams. CreatePool, Resize and DestroyPool take as long as the operating
// system needs for memory, and wait for work on pages that go away; Close waits for everything.
// Submit, Fence, Wait and Done return at once. Work on one stream runs in the order of submission;
// only tickets order work on two streams, and the streams wait, not the CPU.
//
// # When bytes may be reused
//
// A slot is the memory of one page. A write to a slot must come after the slot's last write and
// after every read since then; a read must come after the last write. "Come after" means: later on
// the same stream; or after a Wait for a ticket that covers the other operation; or, for the host,
// after Sync or Done has said that the ticket passed; or any chain of these. Nothing in this
// package enforces the rule on a real device. Package gpu/check wraps any device and reports each
// access that breaks it; on a device of package gpu/sim such an access gives wrong bytes.
//
// # Backends
//
// gpu/host is the machine's memory: real bytes, real time. gpu/sim models a device, for tests and
// simulations: real bytes, virtual time. Both are plain Go and run kernels in Go. gpu/cuda drives
// an NVIDIA device through its driver library. A program imports those it wants, and Open finds
// them by name. gpu/group makes one device of several. gpu/devicetest has the tests that every
// backend must pass.
package gpu
