// Package pool keeps book of the device pages of one pool: who holds them, what
// they cache, and which goes next. It moves no bytes and knows no tokens.
//
// # The life of a page
//
//	         Take                        AttachPages
//	free ───────────▶ used ◀──────────────────────────────┐
//	 ▲                │  │ last reference or pin ends,     │
//	 │ nothing cached │  │ the page caches a block         │ Claim, AddPins
//	 ├────────────────┘  ▼                                 │
//	 │  DetachPages    cached ─────────────────────────────┘
//	 └──────────────────┤
//	                    │ Take, when nothing is free
//	                    └────────▶ used, and its contents are a victim
//
// A page is used while a sequence references it or a pin holds it, cached while
// nobody does but a block of the tree is attached to it, free otherwise. Whether
// a used page caches a block is a matter of its own: a page is attached as soon
// as its block is computed, while the sequence that computed it goes on.
//
// # The eviction rule
//
// Take a free page; if there is none, the cached page of the lowest priority,
// among those the least recently used, among those of the same use the one
// deepest in its prefix.
//
// What is left equal has the same priority, use and depth: no rule tells such
// pages apart, so the lower page number goes first. The order is thus a function
// of what is written on the pages and of nothing else: Unclaim puts a page back
// exactly where it was by linking it again, and a pool rebuilt from the facts
// evicts like the one that was lost.
//
// # Quotas
//
// A pool may be divided between tenants. Then the page that goes when there is no
// free one is
//
//	the tenant has its quota, or more, and cached pages   the first of its own
//	else some tenant with cached pages is over its quota   the first of all of theirs
//	else                                                   the first of all
//
// first meaning the rule above. See accounts; without quotas there are none, and
// nothing costs more.
//
// # The order, and what it costs
//
// There is one level for each of the 101 priorities and a bitmap of the levels
// that are not empty. References end in order of use, the last page of a prefix
// first, so pages nearly always arrive at a level in the order in which they will
// leave it: they are appended to a list. A page that belongs somewhere before the
// list's end (it was unclaimed, or its priority changed) goes to the level's heap
// instead, until a look ahead (Foresee) lines it up. The next victim is the lesser of
// the list's head and the heap's root.
//
//	level 35   list  4 ─ 9 ─ 3 ─ 2        victims: 4, 7, 9, 1, 3, 2
//	           heap  7 ─ 1
//
// In a pool that is too large for a processor's caches the pages of a list have
// hints at those some places behind them, so that their records are fetched ahead.
//
// List and heap are linked through the pages themselves (the heap is a pairing
// heap), so that a page costs 32 bytes and nothing is ever allocated. Claim,
// Drop and Take of n pages cost O(n), with a heap's amortised O(log) for each
// page that did not arrive in order, and with quotas O(log tenants) for each page
// whose tenant has another first page afterwards; HeldBlocks, Resize, Check and String walk
// over all pages.
//
// # Shelter
//
// A prefill in chunks reserves at its admission what it may come to hold. The
// reserve counts as taken, so its own pages must not: they are sheltered, and
// PoolPages.Held leaves them out unless a pin or another sequence holds them too.
// Several prefills may shelter one page; then it is held by more than one, and
// counts.
//
// # Priorities that end
//
// A priority may hold until a moment (PoolOp.Until) and be the default one from
// then on. The pool hears of the time with its work and lets them end: pages
// with one priority until one moment share a term, with a list and a heap of its
// own, and a term that ends goes to the default level as a whole. So a million
// pages that end together cost as much as one, and each cached page that has had a
// term O(log terms of its level) more when it goes. See term.
//
// # Faults
//
// The pool is told what to do by the coordinator, which knows what is there. So
// an operation that cannot be right is a bug and panics with the facts. Page
// numbers and shapes of a whole PoolWork are checked before anything changes.
package pool
