package offloader

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Check verifies the invariants of host memory and the ledger and joins everything that
// is wrong:
//
//  1. byBlock and the blocks of the pages are inverse, and a free page has no block.
//  2. Every free page is in the ring once.
//  3. Every page that is not free, pinned or protected is in the order of its state, at
//     its index, and no page is displaced before the page above it in the heap, or in front of it in a queue.
//  4. Only sole pages have pins.
//  5. The counts equal a recount, and sole and clean pages are within the limit.
//  6. The account of a tenant counts its sole and clean pages.
//  7. Outside a Move nothing is protected, and everything has been submitted.
//  8. A record has at most one read of each stream, and every spilled read belongs to
//     one record or is unused.
//  9. The list of a piece has pages of one priority and one tenant, in the order of displacement, and a piece is in a level, once, exactly
//     if its list is not empty. Every page of an order with pieces is listed in a piece of the order, every sole page belongs to
//     a piece, and every piece in use has pages. The front of a level has members of it, each once.
//  10. Records and the pages that have one are inverse; all other records are unused.
func (o *Offloader) Check() error {
	var errs []error
	for i := range o.hosts {
		errs = append(errs, o.hosts[i].check(o.phase != idle)...)
	}
	if o.phase == idle && (o.cursor < len(o.items) || len(o.guarded) > 0 || len(o.deferred) > 0) {
		errs = append(errs, fmt.Errorf("idle with %d of %d items submitted, %d pages guarded, %d copies put off",
			o.cursor, len(o.items), len(o.guarded), len(o.deferred)))
	}
	return errors.Join(append(errs, o.ledger.check()...)...)
}

// problems collects the violations in one pool.
type problems struct {
	pool string
	errs []error
}

// add notes a violation.
func (e *problems) add(format string, args ...any) {
	e.errs = append(e.errs, fmt.Errorf("pool %s: %s", e.pool, fmt.Sprintf(format, args...)))
}

// check verifies one pool. Busy: a Move is under way, whose victims and sources are protected.
func (h *hostPool) check(busy bool) []error {
	e := &problems{pool: h.name}
	var counts [states]int
	pinned := 0
	for i := range h.pages {
		p, pg := messages.PageID(i), &h.pages[i]
		counts[pg.state]++
		if pg.pins > 0 {
			pinned++
		}
		h.checkPage(e, p)
		if pg.protected && !busy {
			e.add("host page %d is protected outside a Move", p)
		}
	}
	if h.pieces != nil && h.pieces.ranking != nil {
		e.add("a ranking is kept beyond the decisions that it was lent for")
	}
	if counts != h.counts || pinned != h.pinned {
		e.add("counts %v and %d pinned, pages say %v and %d", h.counts, h.pinned, counts, pinned)
	}
	if n := counts[sole] + counts[clean] + counts[loading]; n > h.limit {
		e.add("%d sole, clean and loading pages, %d are allowed", n, h.limit)
	}
	for b, p := range h.byBlock {
		if p != messages.NoPage && h.pages[p].block != protocol.BlockID(b) {
			e.add("block %d is on host page %d, which holds block %d", b, p, h.pages[p].block)
		}
	}
	h.checkRing(e)
	h.checkPieces(e)
	h.checkOrders(e)
	return e.errs
}

// checkPage verifies that a page is where its state says: invariants 1, 3 and 4.
func (h *hostPool) checkPage(e *problems, p messages.PageID) {
	pg := &h.pages[p]
	empty := pg.state == free || pg.state == loading
	if empty != (pg.block == protocol.NoBlock) {
		e.add("host page %d is %s and holds block %d", p, stateNames[pg.state], pg.block)
	}
	if !empty && h.find(pg.block) != p {
		e.add("host page %d holds block %d, which is on page %d", p, pg.block, h.find(pg.block))
	}
	if pg.pins < 0 || pg.pins > 0 && pg.state != sole {
		e.add("host page %d is %s and has %d pins", p, stateNames[pg.state], pg.pins)
	}
	if waits := !empty && pg.pins == 0 && !pg.protected; waits != (pg.heapIndex >= 0) {
		e.add("host page %d is %s with %d pins at index %d", p, stateNames[pg.state], pg.pins, pg.heapIndex)
	}
}

// checkRing verifies the ring of free pages: invariant 2.
func (h *hostPool) checkRing(e *problems) {
	seen := make([]bool, len(h.pages))
	for i := range h.size {
		p := h.idle[(h.head+i)%len(h.idle)]
		if h.pages[p].state != free || seen[p] {
			e.add("host page %d in the ring is %s, seen before: %t", p, stateNames[h.pages[p].state], seen[p])
		}
		seen[p] = true
	}
	if h.size != h.counts[free] {
		e.add("%d pages in the ring, %d free", h.size, h.counts[free])
	}
}

// checkOrders verifies the orders of all states, of which only sole pages have pieces.
func (h *hostPool) checkOrders(e *problems) {
	for s := range h.orders {
		h.checkOrder(e, pageState(s), &h.orders[s])
	}
	if h.accounts != nil {
		h.checkAccounts(e)
	}
}

// checkOrder verifies the heap and the queues of a state, or its pieces: invariants 3 and 9.
func (h *hostPool) checkOrder(e *problems, s pageState, r *order) {
	if r.pieces != nil {
		r.pieces.check(e, h, r)
		return
	}
	for i, p := range r.heap {
		pg := &h.pages[p]
		if pg.state != s || int(pg.heapIndex) != i || h.orderOf(p) != r {
			e.add("host page %d at index %d of the %s order is %s at %d of another", p, i, stateNames[s], stateNames[pg.state], pg.heapIndex)
		}
		if parent := r.heap[max(i-1, 0)/2]; i > 0 && displacedBefore(h.pages, p, parent) {
			e.add("host page %d is displaced before %d above it", p, parent)
		}
	}
	// The entries of the heap were right, but a page that says it is one of them may have been lost.
	inHeap := 0
	for p := range h.pages {
		if at := h.pages[p].heapIndex; h.pages[p].state == s && at >= 0 && at < queued && h.orderOf(messages.PageID(p)) == r {
			inHeap++
		}
	}
	if inHeap != len(r.heap) {
		e.add("%d pages are in the heap of the %s order, %d are said to be", len(r.heap), stateNames[s], inHeap)
	}
	r.queues.check(e, h, r)
}

// checkAccounts verifies what tenants have: invariant 6.
func (h *hostPool) checkAccounts(e *problems) {
	pages := make([]int, len(h.accounts.list))
	for p := range h.pages {
		if h.pages[p].state.counts() {
			pages[h.accounts.of[p]]++
		}
	}
	for t := range h.accounts.list {
		a := &h.accounts.list[t]
		if a.pages != pages[t] {
			e.add("tenant %d has %d host pages, counted %d", t, pages[t], a.pages)
		}
		for s := range a.orders {
			h.checkOrder(e, pageState(s), &a.orders[s])
		}
	}
}

// check verifies the pieces of one order of sole pages. Pages of other orders are left out.
func (s *pieces) check(e *problems, h *hostPool, r *order) {
	listed, members := 0, 0
	for k, l := range r.levels.list {
		if k > 0 && r.levels.list[k-1].priority >= l.priority {
			e.add("level %d follows level %d", l.priority, r.levels.list[k-1].priority)
		}
		for i, n := range l.members {
			q := &s.all[n]
			if q.level != l || int(q.spot) != i || q.head == messages.NoPage {
				e.add("piece %d at index %d of level %d is at %d and begins with page %d", n, i, l.priority, q.spot, q.head)
			}
			listed += s.checkPiece(e, h, r, n)
		}
		s.checkFront(e, l)
		members += len(l.members)
	}
	inOrder := 0
	for p := range h.pages {
		if pg := &h.pages[p]; pg.state == sole && pg.heapIndex >= 0 && h.orderOf(messages.PageID(p)) == r {
			inOrder++
		}
	}
	if listed != inOrder {
		e.add("%d pages are in pieces of an order with %d", listed, inOrder)
	}
	used := 0
	for n := range s.all {
		if s.all[n].pages > 0 {
			used++
		}
	}
	// A list of unused numbers that runs in a circle has too many.
	unused := 0
	for n := s.unused; n != noPiece && unused < len(s.all); n = s.all[n].spot {
		if s.all[n].pages > 0 {
			e.add("piece %d has %d pages and is unused", n, s.all[n].pages)
		}
		unused++
	}
	if used+unused+1 != len(s.all) || members > used || int(s.latest) >= len(s.all) {
		e.add("%d pieces of %d are in use and %d are not, an order has %d", used, len(s.all)-1, unused, members)
	}
}

// checkPieces verifies that each sole page belongs to a piece, and no other page to any.
//
// A page that belongs to a piece but may not be displaced is in no list, so the lists alone do not tell how many pages a piece has.
func (h *hostPool) checkPieces(e *problems) {
	if h.pieces == nil {
		return
	}
	pages := make([]int32, len(h.pieces.all))
	for p := range h.pages {
		pg := &h.pages[p]
		switch n := pg.pieceOf(); {
		case pg.state != sole:
			// Those in the heap of another state have their index there.
			if pg.heapIndex < 0 && n != noPiece {
				e.add("host page %d of piece %d is %s", p, n, stateNames[pg.state])
			}
		case n == noPiece || int(n) >= len(pages):
			e.add("host page %d is sole, of piece %d of %d", p, n, len(pages)-1)
		default:
			pages[n]++
		}
	}
	for n, counted := range pages {
		q := &h.pieces.all[n]
		if q.pages != counted {
			e.add("piece %d has %d pages, counted %d", n, counted, q.pages)
		}
		if listed := counted > 0 && q.head != messages.NoPage; listed != (q.level != nil) {
			e.add("piece %d of %d pages begins with page %d, in a level: %t", n, counted, q.head, q.level != nil)
		}
	}
}

// checkFront verifies that the pieces of a front are members of its level, each once.
func (s *pieces) checkFront(e *problems, l *level) {
	f := &l.front
	if f.chosen != noPiece && s.all[f.chosen].level != l {
		e.add("piece %d, which was chosen in level %d, is no member", f.chosen, l.priority)
	}
	for k, c := range f.list[:f.n] {
		if s.all[c.piece].level != l {
			e.add("piece %d at index %d of the front of level %d is no member", c.piece, k, l.priority)
		}
		if slices.ContainsFunc(f.list[:k], func(d candidate) bool { return d.piece == c.piece }) {
			e.add("piece %d is in the front of level %d twice", c.piece, l.priority)
		}
	}
}

// checkPiece verifies one piece and counts its pages.
func (s *pieces) checkPiece(e *problems, h *hostPool, r *order, n int32) (pages int) {
	q, before := &s.all[n], messages.NoPage
	for p := q.head; p != messages.NoPage; p = s.next[p] {
		if pages == int(q.pages) {
			e.add("the list of piece %d goes on behind its %d pages", n, pages)
			return pages
		}
		pg := &s.pages[p]
		if pg.state != sole || pg.heapIndex != n || pg.priority != q.level.priority || h.orderOf(p) != r {
			e.add("host page %d of piece %d is %s at %d with priority %d", p, n, stateNames[pg.state], pg.heapIndex, pg.priority)
		}
		if s.prev(p) != before {
			e.add("host page %d of piece %d is behind page %d, not %d", p, n, s.prev(p), before)
		}
		if before != messages.NoPage && s.pageBefore(p, before) {
			e.add("host page %d of piece %d is displaced before %d in front of it", p, n, before)
		}
		before, pages = p, pages+1
	}
	if q.tail != before {
		e.add("piece %d ends with page %d, not %d", n, before, q.tail)
	}
	return pages
}

// check verifies the records of pages with transfers under way: invariants 8 and 10.
func (l *ledger) check() []error {
	var errs []error
	owners := make([]int, len(l.spill))
	for n := l.unusedSpill; n != 0; n = l.spill[n-1].next {
		owners[n-1]++
	}
	live := 0
	for i := range l.pools {
		for tier := range l.pools[i].tiers {
			numbers := &l.pools[i].tiers[tier]
			if err := numbers.check(); err != nil {
				errs = append(errs, fmt.Errorf("pool %s: %s %w", l.pools[i].name, messages.Tier(tier), err))
			}
			for p := range messages.PageID(len(numbers.chunks) * recordChunkPages) {
				n := numbers.get(p)
				if n == 0 {
					continue
				}
				live++
				s, r := (Slot{messages.PoolID(i), messages.Tier(tier), p}), l.at(n-1)
				err := l.checkRecord(r, owners)
				if !r.used || r.slot != s {
					err = fmt.Errorf("record %d is of %v, in use: %v", n-1, r.slot, r.used)
				}
				if err != nil {
					errs = append(errs, fmt.Errorf("pool %s: %s page %d: %w", l.pools[i].name, s.Tier, p, err))
				}
			}
		}
	}
	unused := 0
	for n := l.free; n != 0 && unused <= int(l.n); n = l.at(n - 1).more {
		unused++
	}
	if live != l.inUse || live+unused != int(l.n) {
		errs = append(errs, fmt.Errorf("%d records of %d are in use, %d counted, %d unused", live, l.n, l.inUse, unused))
	}
	for i, n := range owners {
		if n != 1 {
			errs = append(errs, fmt.Errorf("spilled read %d has %d owners", i, n))
		}
	}
	return errs
}

// check verifies that the numbers of records and the pages that have one are inverse.
func (t *recordNumbers) check() error {
	for i, c := range t.chunks {
		if c == nil {
			continue
		}
		used := int32(0)
		for _, n := range c.of {
			if n != 0 {
				used++
			}
		}
		if c.used != used || used == 0 {
			return fmt.Errorf("pages from %d on: %d have records, counted %d", i*recordChunkPages, used, c.used)
		}
	}
	for _, c := range t.unused {
		if *c != (pageRecords{}) {
			return errors.New("pages: an unused chunk is not empty")
		}
	}
	return nil
}

// checkRecord verifies the reads of one record.
func (l *ledger) checkRecord(r *record, owners []int) error {
	var err error
	for n := r.more; n != 0; n = l.spill[n-1].next {
		owners[n-1]++
		t := l.spill[n-1].ticket
		twice := t.IsZero()
		for _, other := range r.reads {
			twice = twice || other.Stream == t.Stream
		}
		for m := l.spill[n-1].next; m != 0; m = l.spill[m-1].next {
			twice = twice || l.spill[m-1].ticket.Stream == t.Stream
		}
		if twice {
			err = fmt.Errorf("stream %d reads twice", t.Stream)
		}
	}
	if a, b := r.reads[0].Stream, r.reads[1].Stream; a == b && a != 0 {
		err = fmt.Errorf("stream %d reads twice", a)
	}
	return err
}
