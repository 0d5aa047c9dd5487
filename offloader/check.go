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
//  3. Every sole or clean page without pins is in the order, and every ahead page in the list of
//     these.
//  4. Only sole pages have pins.
//  5. The counts equal a recount, and sole and clean pages are within the limit.
//  6. What the order says of itself, see evict.Core.Check.
//  7. Outside a Move no page is guarded, and everything has been submitted.
//  8. A record has at most one read of each stream.
func (o *Offloader) Check() error {
	var errs []error
	for i := range o.hosts {
		errs = append(errs, o.hosts[i].check()...)
	}
	if o.phase == idle && (o.cursor < len(o.items) || len(o.guarded) > 0) {
		errs = append(errs, fmt.Errorf("idle with %d of %d items submitted, %d pages guarded",
			o.cursor, len(o.items), len(o.guarded)))
	}
	return errors.Join(append(errs, o.ledger.check()...)...)
}

// say notes a violation.
type say func(format string, args ...any)

// check verifies one pool.
func (h *hostPool) check() (errs []error) {
	say := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("pool %s: %w", h.name, fmt.Errorf(format, args...)))
	}
	var counts [states]int
	for i := range h.pages {
		p, pg := messages.PageID(i), &h.pages[i]
		counts[pg.state]++
		h.checkPage(say, p)
	}
	if counts != h.counts {
		say("counts %v, pages say %v", h.counts, counts)
	}
	if n := counts[sole] + counts[clean] + counts[loading]; n > h.limit {
		say("%d sole, clean and loading pages, %d are allowed", n, h.limit)
	}
	for b, p := range h.byBlock {
		if p != messages.NoPage && h.pages[p].block != protocol.BlockID(b) {
			say("block %d is on host page %d, which holds block %d", b, p, h.pages[p].block)
		}
	}
	h.checkRing(say)
	if err := h.order.Check(); err != nil {
		say("%w", err)
	}
	if h.ahead.Len() != counts[ahead] {
		say("%d ahead copies in the list, %d pages", h.ahead.Len(), counts[ahead])
	}
	return errs
}

// checkPage verifies that a page is where its state says: invariants 1, 3 and 4.
func (h *hostPool) checkPage(say say, p messages.PageID) {
	pg := &h.pages[p]
	empty := pg.state == free || pg.state == loading
	if empty != (pg.block == protocol.NoBlock) {
		say("host page %d is %s and holds block %d", p, stateNames[pg.state], pg.block)
	}
	if !empty && h.find(pg.block) != p {
		say("host page %d holds block %d, which is on page %d", p, pg.block, h.find(pg.block))
	}
	if pg.pins < 0 || pg.pins > 0 && pg.state != sole {
		say("host page %d is %s and has %d pins", p, stateNames[pg.state], pg.pins)
	}
	sorted := pg.state == sole || pg.state == clean
	if h.order.Page(int32(p)).Stored != sorted || h.order.Waits(int32(p)) != (sorted && pg.pins == 0) {
		say("host page %d is %s with %d pins, and may be displaced: %v",
			p, stateNames[pg.state], pg.pins, h.order.Waits(int32(p)))
	}
	if in := pg.state == ahead; in != (pg.at != nil) || in && pg.at.Value != p {
		say("host page %d is %s, among the ahead copies: %t", p, stateNames[pg.state], pg.at != nil)
	}
}

// checkRing verifies the ring of free pages: invariant 2.
func (h *hostPool) checkRing(say say) {
	seen := make([]bool, len(h.pages))
	for i := range h.size {
		p := h.idle[(h.head+i)%len(h.idle)]
		if h.pages[p].state != free || seen[p] {
			say("host page %d in the ring is %s, seen before: %t",
				p, stateNames[h.pages[p].state], seen[p])
		}
		seen[p] = true
	}
	if h.size != h.counts[free] {
		say("%d pages in the ring, %d free", h.size, h.counts[free])
	}
}

// check verifies the records of pages with transfers under way: invariant 8.
func (l *ledger) check() []error {
	var errs []error
	for s, r := range l.of {
		if err := r.check(); err != nil {
			errs = append(errs, fmt.Errorf("page %v: %w", s, err))
		}
	}
	return errs
}

// check verifies the reads of one record.
func (r *record) check() error {
	for i, t := range r.reads {
		if t.IsZero() ||
			slices.ContainsFunc(r.reads[:i],
				func(other messages.Ticket) bool { return other.Stream == t.Stream }) {
			return fmt.Errorf("stream %d reads twice", t.Stream)
		}
	}
	return nil
}
