// Package offloader decides which contents stay in host memory when their device pages are evicted,
// and orders every transfer between pages. It is a plain state machine: it touches no bytes and
// never waits. It returns the copies to submit, with the stream and the tickets to wait for, and is
// told the ticket that passes when they are done.
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
// page, so it is displaced before any sole page, whatever its priority. An ahead copy is a clean
// copy that was made before the device page was evicted. Decisions and counts treat its page as
// free, so copying ahead changes only when bytes are moved. Once host memory is full there are no
// free pages for ahead copies; PoolConfig.SparePages provides pages for them beyond those that may
// be sole or clean. When the device page of an ahead copy is evicted, room is made by the rule
// below, the copy becomes sole in its place, and the page that made room becomes spare.
//
// The contents of a victim, a page evicted from the device, stay in host memory if their priority
// is at least Config.MinPriority and one of these pages is there: a free page, a clean copy, or a
// sole page without pins that the Move doesn't read and whose priority isn't above the victim's.
// Among sole pages, the one of the lowest priority is displaced, then the least recently used, then
// the deepest.
//
// As in a device pool, an evict.Core chooses the sole page that goes first, by PoolConfig.Policy
// and Config.Quotas. Clean copies are in the same order, below all priorities. If the policy
// predicts the next use, the Core is told what the device pool's policy knew about each victim, and
// may use that policy's ranking while a Move decides.
//
// # The states of a transfer
//
//	          Begin            Next               Submitted
//	decided ────────▶ planned ──────▶ submitted ───────────▶ queued ──▶ passed
//	                     ▲                │ refused             (its ticket passes)
//	                     │                ▼
//	                     └── later ones ─ failed ──▶ Finish undoes the decision
//
// For decisions, a transfer is over when its Move is finished. For the bytes, it is over when its
// ticket passes. Until then the transfer holds both pages through the ledger, which has the last
// write and the later reads of each slot, that is, of each page in each tier. A copy waits for the
// last write of its source, and for the last write and all reads of its destination. It then counts
// as a read of its source and a write of its destination.
//
// So a victim's device page can be given away at once: its next owner waits, on its stream, for the
// copy that reads the page. An onboard waits for an offload that is still writing its host page.
// All these waits are on the streams; the CPU waits for nothing.
//
//	transfer   source        destination    who waits for the ticket
//	offload    device page   host page      the next owner of the device page
//	onboard    host page     device page    the sequence (WaitQuery); the host page is a clean copy
//	copy       either tier   device page    the sequence; the source keeps its owner
//
// Whole pages that are neighbours at both ends are copied as one run, up to a slice of
// 16 MiB (Config.SliceBytes). A Move that onboards more than a slice uses a second
// stream, so that an urgent onboard waits for at most one slice of it. Ahead copies are
// given host pages that make runs likely.
//
// Kernels of the host are added to the ledger by Marks, and learn what to wait for from
// WaitQuery.
//
// # What a failure leaves
//
// A copy that the device refuses isn't queued. The bytes of both pages are as before, except that
// the destination of a partial copy is undefined. A refused run is submitted again page by page, so
// only the pages that can't be copied fail.
//
//	offload  the contents are lost and the host page is free; contents displaced for it are lost too
//	onboard  nothing has changed: the host page is still the only contents, with its pins
//	copy     the destination is undefined, and so is that of a copy from there in the same Move
//	ahead    there is no copy
//
// # Cost
//
// A Move allocates nothing once its records have grown. Package evict gives the cost of a victim. A
// transfer and a mark cost one ledger record for each page they touch; a page in WaitQuery costs
// one if anything is under way in its pool. A record costs about 150 bytes.
package offloader
