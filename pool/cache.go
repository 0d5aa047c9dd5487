package pool

import (
	"slices"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// cache is the cached pages of a pool: those that cache a block and have no holder. It
// knows which of them is evicted next: by their orders, or with the policy forecast by
// their pieces, which then have the places in the levels of the orders.
type cache struct {
	orders
	pieces *pieces   // nil: the policy is priority_lru
	n      int       // cached pages: the sum of order.n over the orders
	ahead  lookAhead // scratch space of peek
}

// advance moves the clock and ends the priorities whose moment has come: O(log) for each
// term, whatever the number of its pages.
//
// The time never goes back: a PoolWork with an earlier time could bring back priorities that
// have ended.
func (c *cache) advance(now time.Duration) {
	if c.pieces != nil {
		c.pieces.advance(now)
		c.pieces.waiting = false
	}
	c.now = max(c.now, now)
	if c.now >= c.nextEnd {
		c.endPriorities(c.expire)
	}
}

// expire ends the terms of an order whose moment has come.
func (c *cache) expire(o *order) {
	if c.pieces != nil {
		c.pieces.endTerms(o, c.now)
		return
	}
	o.expire(c.now)
}

// link adds a cached page to the eviction order of the pool or of its tenant.
//
// The page's state is used and its use, depth and priority are final: the order compares
// them, and a linked page must not change in any of the three.
func (c *cache) link(i int32) {
	c.n++
	if c.pieces != nil {
		c.pieces.link(c.of(i), i)
		return
	}
	c.orders.push(i)
}

// unlink removes a cached page from its eviction order; the page is used then.
func (c *cache) unlink(i int32) {
	c.n--
	if c.pieces != nil {
		c.pieces.unlink(c.of(i), i)
		return
	}
	c.orders.remove(i)
}

// forget ends what is known of the contents of a page that is in no list: its term and its
// piece.
func (c *cache) forget(i int32) {
	c.removeTerm(i)
	if s := c.pieces; s != nil {
		if s.checkpoints != nil {
			s.checkpoints.forget(i)
		}
		s.remove(i)
	}
}

// evict makes a cached page used and forgets its contents. The page stays on the account of
// its tenant.
func (c *cache) evict(i int32) {
	c.unlink(i)
	c.forget(i)
}

// front is the page of the checkpoint that the one of a page follows, for policies that ask for it; else NoPage.
func (c *cache) front(i int32) messages.PageID {
	if c.pieces == nil || c.pieces.checkpoints == nil {
		return messages.NoPage
	}
	return messages.PageID(c.pieces.checkpoints.of[i].front)
}

// noteVictim notes the piece of a page, which is about to be evicted, as that of the victims up to an index.
func (c *cache) noteVictim(i int32, end int) {
	if s := c.pieces; s != nil {
		s.note(&s.uses[s.of(i)], end)
	}
}

// reset empties the cache of a pool with these pages.
func (c *cache) reset(pages []page) {
	c.n = 0
	if c.pieces != nil {
		c.pieces.empty()
		c.pieces.checkpoints.resize(len(pages))
	}
	c.orders.reset(pages)
}

// linkPieces links the cached pages of a pool with the policy forecast after a reset.
func (c *cache) linkPieces() {
	if c.pieces == nil {
		return
	}
	for _, i := range c.pieces.reset(c.pages) {
		c.link(i)
	}
}

// resize changes the number of pages; reset follows.
func (c *cache) resize(pages int) {
	c.orders.resize(pages)
}

// move takes along what is known of a page beside its record, which has been moved.
func (c *cache) move(from, to int) {
	c.orders.move(from, to)
	if s := c.pieces; s != nil {
		s.checkpoints.move(int32(from), int32(to))
	}
}

// next is the cached page that is evicted when a tenant takes one, or none; of a pool with
// quotas.
func (c *cache) next(t protocol.Tenant) int32 {
	if c.pieces != nil {
		return c.pieces.next(&c.accounts.list[t])
	}
	return c.accounts.next(t)
}

// surplus is the cached page that is evicted when no tenant takes it, as when the
// pool shrinks.
func (c *cache) surplus() int32 {
	switch {
	case c.pieces != nil:
		return c.pieces.next(nil)
	case c.accounts == nil:
		return c.whole.first()
	default:
		return c.accounts.surplus()
	}
}

// forCheckpoint is the page that a checkpoint of a tenant replaces, whose priority is at
// most floor, or none. With quotas the first page of each group of tenants is the cheapest
// of the group, so if that one is worth too much, the group has no victim.
func (c *cache) forCheckpoint(t protocol.Tenant, floor messages.Priority) int32 {
	// In order of preference: the tenant's own page if it is full, those of tenants over
	// their quotas, and all others. If one is worth too much the next is tried, whereas Take
	// must have a page at any price and looks no further than accounts.next.
	if c.pieces != nil {
		return c.pieces.checkpoints.victimFor(t, floor)
	}
	candidates := [3]int32{c.whole.first(), none, none}
	if a := c.accounts; a != nil {
		own := &a.list[t]
		candidates = [3]int32{none, a.over.firstPage(), a.within.firstPage()}
		if own.full() {
			candidates[0] = own.first
		}
	}
	for _, i := range candidates {
		if i != none && c.priority(i) <= floor {
			return i
		}
	}
	return none
}

// take evicts n pages of a pool without quotas, gives them a record and appends them to the
// operation's pages and their contents to the victims. There must be so many cached pages.
func (c *cache) take(op *protocol.PoolOp, n int, record page, victims []protocol.Victim) []protocol.Victim {
	end := len(op.Pages) + n
	if s := c.pieces; s != nil {
		op.Pages, victims = slices.Grow(op.Pages, n), slices.Grow(victims, n)
		for left := n; left > 0; left = end - len(op.Pages) - s.single {
			victims = c.takeFromPiece(op, left, &record, victims)
		}
		op.Pages = op.Pages[:end]
		slices.Reverse(op.Pages[end-s.single:])
		s.single = 0
	}
	for len(op.Pages) < end {
		victims = c.takeFromList(op, end-len(op.Pages), record, victims)
		if len(op.Pages) == end {
			break
		}
		// The page at the head of the list is not the first: a page of the heap or of a term
		// comes before it. It is taken alone, and then the list may go on.
		i := c.whole.first()
		victims = append(victims, c.victim(i))
		c.evict(i)
		c.pages[i] = record
		op.Pages = append(op.Pages, messages.PageID(i))
	}
	return victims
}
