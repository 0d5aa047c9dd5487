// Package offloader decides which contents stay in host memory when their device pages are evicted,
// and orders every transfer between pages. It is a plain state machine: it touches no bytes and
// never waits. It returns the copies to submit, with their streams and the tickets to wait for, and
// is then told the tickets of the copies.
//
// # The states of a host page
//
//	      taken for a victim, copied       onboarded, or the block is on the device again
//	free ──────────────────────────▶ sole ─────────────────────────────────▶ clean
//	 │ ◀────────────────────────────  ▲ ◀──────────────────────────────────────
//	 │   displaced, forgotten,        │    its device page is a victim again:
//	 │   onboarded with Free          │    nothing to copy
//	 │                                │
//	 └────────────────▶ ahead ────────┘
//	   copied before       its device page is a victim:
//	   it was needed       nothing to copy any more
//
// Clean and ahead pages become free when they are reclaimed for other contents or
// forgotten.
//
// A sole page holds the only contents of a block. A clean copy holds the same bytes as a device
// page, so it is displaced before any sole page, whatever its priority.
//
// An ahead copy is made before the device page is evicted. Decisions and counts treat its page as
// free, so copying ahead changes only when bytes are moved. Once host memory is full there are no
// free pages for ahead copies; PoolConfig.SparePages provides pages for them beyond those that may
// be sole or clean. When the device page of an ahead copy is evicted, the rule below chooses a page
// that makes room; the copy becomes sole where it is, and the chosen page becomes spare.
//
// A victim is a page evicted from the device. Its contents stay in host memory if their priority is
// at least Config.MinPriority and there is room: a free page, a clean copy, or a sole page that has
// no pins, isn't read by the Move, and whose priority isn't above the victim's. Among sole pages,
// the one of the lowest priority is displaced, then the least recently used, then the deepest.
//
// As in a device pool, an evict.Core chooses the sole page to displace, by PoolConfig.Policy and
// Config.Quotas. Clean copies are in the same order, below all priorities. If the policy predicts
// the next use, the Core is told what the device pool's policy knew about each victim, and may use
// that policy's ranking while a Move decides.
//
// # The states of a transfer
//
//	          Begin            Next               Submitted
//	decided ────────▶ planned ──────▶ submitted ───────────▶ queued ──▶ passed
//	                     ▲                │ refused             (its ticket passes)
//	                     │                ▼
//	                     └── later ones ─ failed ──▶ Finish undoes the decision
//
// For decisions, a transfer is over when its Move is finished; for the bytes, when its ticket
// passes. Until then the ledger keeps track of both pages: for each slot, that is, each page in
// each tier, it has the last write and the reads since then. A copy waits for the last write of its
// source, and for the last write and all reads of its destination. It then counts as a read of its
// source and a write of its destination.
//
// So a victim's device page can be given away at once: its next owner waits for the copy that reads
// the page. An onboard waits for an offload that is still writing its host page. Only streams wait;
// the CPU waits for nothing.
//
//	transfer   source        destination    who waits for the ticket
//	offload    device page   host page      the next owner of the device page
//	onboard    host page     device page    the sequence (WaitQuery); the host page is a clean copy
//	copy       either tier   device page    the sequence; the source keeps its owner
//
// Whole pages that are neighbours at both ends are copied as one run, up to a slice of 16 MiB
// (Config.SliceBytes). A Move that onboards more than a slice uses a second stream, so an urgent
// onboard waits for at most one slice of it. Ahead copies get host pages that make runs likely.
//
// Marks add the host's kernels to the ledger, and WaitQuery says what they must wait for.
//
// # What a failure leaves
//
// A copy that the device refuses isn't queued. Both pages keep their bytes, except that the
// destination of a partial copy is undefined. A refused run is submitted again page by page, so
// only the pages that can't be copied fail.
//
//	offload  the contents are lost and the host page is free; contents displaced for it are lost too
//	onboard  nothing has changed: the host page is still the only contents, with its pins
//	copy     the destination is undefined, and so is that of a copy from there in the same Move
//	ahead    there is no copy
//
// # Cost
//
// A Move allocates nothing once its records have grown. Package evict gives the cost of choosing a
// victim. A transfer or a mark takes one ledger record for each page it touches, about 150 bytes; a
// page in WaitQuery reads one if anything is under way in its pool.
package offloader
