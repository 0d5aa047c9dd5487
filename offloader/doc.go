// Package offloader decides what goes on in host memory and orders every
// transfer between pages. It is a plain state machine: it never touches a byte
// and never waits. It says which copies to submit to which stream after which
// tickets, and is told the ticket at which they are done.
//
// # A host page
//
//	      taken for a victim, copied       onboarded, or the device took its place
//	free ──────────────────────────▶ sole ─────────────────────────────────▶ clean
//	 │ ◀────────────────────────────  ▲ ◀──────────────────────────────────────
//	 │   displaced, forgotten,        │    its device page is a victim again:
//	 │   onboarded to be free         │    nothing to copy
//	 │                                │
//	 └────────────────▶ ahead ────────┘
//	   copied while        its device page is a victim:
//	   nobody waited       nothing to copy any more
//
// Clean and ahead pages that are reclaimed for others or forgotten are free.
//
// A sole page is the only contents of a block. A clean copy says the same as a
// device page, so losing it loses nothing: it goes before any sole page,
// whatever its priority. An ahead copy is a clean one that nobody asked for;
// decisions and counts take its page for free, so that copying ahead changes
// the time things take and nothing else. Host memory is full after a while, so
// PoolConfig.SparePages are there for ahead copies beyond what may be sole or
// clean: when the device page is evicted, room is made by the rule below, the
// ahead copy becomes sole where it lies, and the page that made room is spare.
//
// The contents of a victim, a page evicted from the device, go on in host
// memory if its priority reaches Config.MinPriority and there is a free page, a
// clean copy, or a sole page that nobody pins, that the Move does not read, and
// whose priority is not above the victim's. Of several the one with the lowest
// priority goes, of these the least recently used, of these the deepest.
//
// With Config.Quotas host memory is divided between tenants, see accounts.
//
// # A transfer
//
//	          Begin            Next               Submitted
//	decided ────────▶ planned ──────▶ submitted ───────────▶ queued ──▶ over
//	                     ▲                │ refused             (its ticket passes)
//	                     │                ▼
//	                     └── those after ─ failed ──▶ Finish undoes the decision
//
// For decisions a transfer is over when its Move is finished. For the bytes it
// is over when its ticket passes; until then both pages are its own, and the
// ledger keeps it so: it has for each slot, that is tier and page, the last
// write and the reads since. A copy comes after the last write of its source
// and after the last write and all reads of its destination; then it is
// itself a read of the one and a write of the other. So the page of a victim
// may be given away at once: whoever writes there waits for the copy that reads
// it out. An onboard from a page that is still being offloaded waits for that
// offload. All that is waited for is on the streams; the CPU goes on.
//
//	transfer   source        destination    holds both until its ticket
//	offload    device page   host page      next owner of the device page waits
//	onboard    host page     device page    its sequence waits (Ready); the host page is a clean copy
//	copy       either tier   device page    the source stays whose it was
//
// Pages that are neighbours on both sides go as one copy, a run, up to a slice of
// 16 MiB (Config.SliceBytes). Onboards of more than a slice go on a stream of
// their own, so that an urgent one waits for a slice of them at most. Copies ahead
// of demand are given the host pages that make runs likely.
//
// Kernels of the host enter the ledger by Marks and are told what to wait for
// in Ready.
//
// # Failure
//
// A copy that the device refuses has not been queued, and the bytes of both
// pages are as they were, but for a partial copy, whose destination is
// undefined. A run that is refused comes again page by page, so that the pages
// fail that cannot be copied and no others.
//
//	offload  the contents are lost, the host page is free; what was displaced for it is lost too
//	onboard  nothing has changed: the host page is still the only contents, pins included
//	copy     the destination is undefined; so is that of a copy from there in the same Move
//	ahead    there is no copy
//
// # Cost
//
// A Move allocates nothing once the records have grown. A victim costs
// O(log host pages); a transfer and a mark cost a look at one record for each page
// that they touch, a page in Ready one if anything is under way in its pool. Four
// bytes a page say which record is its; there are records for the pages on which
// something is under way, of 80 bytes, and a few more.
package offloader
