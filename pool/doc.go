// Package pool records for every device page of one pool who holds it, which block
// it caches, and which page is evicted next. It moves no bytes and knows no tokens.
//
// # The states of a page
//
//	        Take                         AttachPages (stays used)
//	free ────────────▶ used ◀──────────────────────────────────┐
//	 ▲                 │  │ last reference or pin ends,         │ Claim, AddPins
//	 │ ...and caches   │  ▼ and the page caches a block         │
//	 │ no block        │ cached ────────────────────────────────┘
//	 ├─────────────────┘  │  │
//	 │   DetachPages      │  │ Take, when no page is free:
//	 └────────────────────┘  └──────▶ used; the old contents are a victim
//
// A page is used while a sequence references it or a pin holds it. A page without
// holders is cached if a block of the tree is attached to it, and free otherwise. A
// used page may cache a block as well: the block is attached as soon as it has been
// computed, while the sequence that computed it goes on.
//
// # The eviction rule
//
// A free page is taken first; if there is none, the cached page of the lowest priority. Among
// those, one that no match can use goes first, then the least recently used, then the deepest in
// its prefix.
//
// Ties are broken by page number. The order is thus a function of what is known of the pages alone:
// Unclaim puts a page back exactly where it was, and a pool that is rebuilt from the facts evicts
// like the one that failed. Other policies (see package evict) change only the order within a
// priority.
//
// # The parts
//
//	Pool        who holds each page, which block it caches, and the operations
//	evict.Core  what is known of the contents, and which cached page is evicted next:
//	            priorities and when they end, tenants and their quotas, the policy
//
// An operation costs O(1) for each of its pages, and what package evict says of the order.
// Resize, Rebuilt, HeldBlocks and Check cost O(pages).
//
// # Reservations
//
// A chunked prefill reserves at admission the pages that it may come to hold, and the
// engine counts the reservation as taken. So the pages that the prefill takes must
// not count as held as well: they are marked as covered by the reservation
// (CoveredByReservation), and PoolPages.Held leaves them out. A covered page that a
// pin or another sequence holds too does count.
//
// # Faults
//
// The coordinator, which tells the pool what to do, knows which page holds what. An
// operation that cannot be right is therefore a bug: it panics and states the facts.
// Page numbers and shapes of a whole PoolWork are checked before anything changes.
// After a panic the pool is rebuilt from the owners of its pages (Rebuilt).
package pool
