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
// A free page is taken first; if there is none, the cached page of the lowest
// priority, among these the least recently used, among those of the same use the
// deepest in its prefix.
//
// Pages that are equal in all three are taken by page number. The order is thus a
// function of the pages' records alone: Unclaim puts a page back exactly where it
// was, and a pool that is rebuilt from the facts evicts like the one that failed.
//
// # Quotas
//
// A pool may be divided between tenants. Then the page that is evicted when no page
// is free is, with "first" by the rule above,
//
//	if the tenant has reached its quota and has cached pages   the first of its own
//	else if tenants over their quotas have cached pages        the first of theirs
//	else                                                       the first of all
//
// See accounts. A pool without quotas has no accounts and pays nothing for them.
//
// # The eviction order and its cost
//
// There is one level for each of the 101 priorities, and a bitmap of the levels that
// have pages. References end in order of use, and those of a sequence from its last
// page on, so pages nearly always arrive at a level in the order in which they will
// be evicted: they are appended to a list. A page that belongs before the end of the
// list, because it was unclaimed or its priority has changed, is put into the heap of
// the level. The next victim is the head of the list or the root of the heap.
//
//	level 35   list  4 ─ 9 ─ 3 ─ 2        victims: 4, 7, 9, 1, 3, 2
//	           heap  7 ─ 1
//
// Lists and heaps are linked through the records of the pages, so a page costs 32
// bytes and nothing is allocated.
//
//	Claim, Drop, Take of n pages       O(n)
//	  a page that arrives out of order   amortised O(log pages) more
//	  a page that has a term             O(log terms of its level) more
//	  with quotas                        O(log tenants) more for each page that
//	                                     changes a tenant's first page
//	PeekVictims of n pages             O(n), as above
//	HeldBlocks, Resize, Rebuild, Check O(pages)
//
// # The parts
//
//	Pool       the records of the pages, who holds them, and the operations
//	freePages  the list of free pages
//	cache      the cached pages and which of them is evicted next
//	  orders     one order, or with quotas one for each account; terms; the clock
//	    order      the levels with their lists, heaps and ranked terms
//	  pieces     with the policy forecast: the pages by their next use
//	    checkpoints  in a pool of states: which of them follows which
//
// The parts share the records, since a page is in one list at a time; each alone changes its
// own heads, counts and indices.
//
// # Reservations
//
// A chunked prefill reserves at admission the pages that it may come to hold, and the
// engine counts the reservation as taken. So the pages that the prefill takes must
// not count as held as well: they are marked as covered by the reservation
// (CoveredByReservation), and PoolPages.Held leaves them out. A covered page that a
// pin or another sequence holds too does count.
//
// # Priorities that end
//
// A priority may hold until a moment (PoolOp.Until) and be the default one from then
// on. The pool learns the time from each PoolWork. Pages with one priority until one
// moment share a term, which has a list and a heap of its own and moves to the
// default level as a whole when it ends, so a million pages that end together cost as
// much as one. See term.
//
// # Faults
//
// The coordinator, which tells the pool what to do, knows which page holds what. An
// operation that cannot be right is therefore a bug: it panics and states the facts.
// Page numbers and shapes of a whole PoolWork are checked before anything changes.
// After a panic the pool is rebuilt from the owners of its pages (Rebuild).
package pool
