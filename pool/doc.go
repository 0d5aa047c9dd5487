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
// A page is used while a sequence references it or a pin holds it. A page without holders is cached
// if a block of the tree is attached to it, and free otherwise. A used page may cache a block, too:
// a block is attached as soon as it has been computed, while its sequence goes on.
//
// # The eviction rule
//
// A free page is taken first; if there is none, a cached page of the lowest priority. Among those,
// one that no match can use goes first, then the least recently used, then the deepest in its
// prefix.
//
// Ties are broken by page number. So the order depends only on what is known of the pages, and
// Unclaim puts a page back exactly where it was. Other policies (see package evict) change only the
// order within a priority.
//
// # The parts
//
//	Pool        who holds each page, which block it caches, and the operations
//	evict.Core  what is known of the contents, and which cached page is evicted next:
//	            priorities, tenants and their quotas, the policy
//
// An operation costs O(1) for each of its pages, plus what package evict takes to keep the order.
// Resize, Rebuilt, HeldBlocks and Check cost O(pages).
//
// # Reservations
//
// At admission a chunked prefill reserves the pages it may come to hold, and the engine counts the
// reservation as taken. So the pages that the prefill then takes must not count as held, too: they
// are marked as covered by the reservation (CoveredByReservation), and PoolPages.Held leaves them
// out, unless a pin or another sequence also holds them.
//
// # Faults
//
// The coordinator tells the pool what to do, and knows which page holds what. So an impossible
// operation is a bug: the pool panics and states the facts. It checks the page numbers and shapes
// of a whole PoolWork before it changes anything. After a panic the pool is rebuilt from the owners
// of its pages (Rebuilt).
package pool
