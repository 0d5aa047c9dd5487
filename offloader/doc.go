// Package offloader decides which contents go on in host memory when their device
// pages are evicted, and orders every transfer between pages. It is a plain state
// machine: it touches no byte and never waits. It returns the copies to submit, the
// stream for each and the tickets to wait for, and is told the ticket at which they
// are done.
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
// A sole page holds the only contents of a block. A clean copy holds the same bytes as
// a device page, so it is displaced before any sole page, whatever its priority. An
// ahead copy is a clean copy that was made before the device page was evicted.
// Decisions and counts take its page for free, so copying ahead changes when bytes are
// moved and nothing else. Once host memory is full there are no free pages for ahead
// copies; PoolConfig.SparePages provides pages for them beyond those that may be sole
// or clean. When the device page of an ahead copy is evicted, room is made by the rule
// below, the copy becomes sole where it is, and the page that made room is spare.
//
// The contents of a victim, a page evicted from the device, go on in host memory if
// their priority is at least Config.MinPriority and there is a free page, a clean copy,
// or a sole page without pins that the Move does not read and whose priority is not
// above the victim's. Of several sole pages the one of the lowest priority is
// displaced, of these the least recently used, of these the deepest.
//
// Which sole page goes first, with PoolConfig.Policy and Config.Quotas, is the question that
// a device pool has too, so an evict.Core answers it. Clean copies are in the same order, below
// all priorities. Where the policy predicts the next use, the Core is told what the device
// pool's policy knew of each victim, and is lent what ranks it while a Move decides.
//
// # The states of a transfer
//
//	          Begin            Next               Submitted
//	decided ────────▶ planned ──────▶ submitted ───────────▶ queued ──▶ passed
//	                     ▲                │ refused             (its ticket passes)
//	                     │                ▼
//	                     └── later ones ─ failed ──▶ Finish undoes the decision
//
// For decisions a transfer is over when its Move is finished. For the bytes it is over
// when its ticket passes. Until then the transfer holds both pages, through the ledger:
// the ledger has the last write and the reads since for each slot, that is for each tier
// and page. A copy waits for the last write of its source and for the last write and all
// reads of its destination. It is then itself a read of the one and a write of the other.
//
// So the device page of a victim can be given away at once: its next owner waits, on its
// stream, for the copy that reads the page. An onboard from a host page that is still
// being written by an offload waits for that offload. All of these waits are on the
// streams; the CPU waits for nothing.
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
// A copy that the device refuses is not queued. The bytes of both pages are as before,
// except that the destination of a partial copy is undefined. A run that is refused is
// submitted again page by page, so that only pages fail that cannot be copied.
//
//	offload  the contents are lost and the host page is free; contents displaced for it are lost too
//	onboard  nothing has changed: the host page is still the only contents, with its pins
//	copy     the destination is undefined, and so is that of a copy from there in the same Move
//	ahead    there is no copy
//
// # Cost
//
// A Move allocates nothing once its records have grown. A victim costs what package evict says
// of its order. A transfer and a mark cost one ledger record for each page that they touch, a
// page in WaitQuery one if anything is under way in its pool. A record costs about 150 bytes.
package offloader
