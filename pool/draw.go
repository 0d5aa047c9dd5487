package pool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// String draws the pool: its counts, the used pages, the cached pages in eviction
// order, the free pages in the order in which they will be taken. The drawing is
// canonical: it does not depend on how lists and heaps divide the pages.
func (p *Pool) String() string {
	var b strings.Builder
	c := p.Counts()
	tokens := ""
	if n := p.cache.whole.blockTokens; n > 0 {
		tokens = fmt.Sprintf(" of %d tokens", n)
	}
	fmt.Fprintf(&b, "pool %s: %d pages%s, %d used, %d cached, %d free, %d held\n", p.name, c.Total, tokens, c.Used, c.Cached, c.Free, c.Held)
	if p.cache.accounts != nil {
		for t := range p.cache.accounts.list {
			a := p.Account(protocol.Tenant(t))
			fmt.Fprintf(&b, "  tenant %d: quota %d, %d used, %d cached\n", t, a.Quota, a.Used, a.Cached)
		}
	}
	// Used pages come by number: they are in no list, so there is no other order to show.
	for i := range p.pages {
		if p.pages[i].state == used {
			fmt.Fprintf(&b, "  used  %d%s%s\n", i, p.pages[i].holders(p.cache.priority(int32(i))), p.cache.drawMore(int32(i)))
		}
	}
	for _, i := range p.cache.sorted() {
		g := &p.pages[i]
		fmt.Fprintf(&b, "  cached %d: block %d depth %d priority %d use %d%s%s\n", i, g.block, g.depth, p.cache.priority(i), g.use, p.cache.drawMore(i), p.cache.drawPiece(i))
	}
	if p.free.n > 0 {
		b.WriteString("  free ")
		for i := p.free.head; i != none; i = p.pages[i].next {
			fmt.Fprintf(&b, " %d", i)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// holders draws the holders of a used page and what it caches.
func (g *page) holders(priority messages.Priority) string {
	s := fmt.Sprintf(": references %d", g.references())
	if n := g.coveredReferences(); n > 0 {
		s += fmt.Sprintf(" covered %d", n)
	}
	if g.pins() > 0 {
		s += fmt.Sprintf(" pins %d", g.pins())
	}
	if g.stored() {
		s += fmt.Sprintf(" block %d depth %d priority %d use %d", g.block, g.depth, priority, g.use)
	}
	return s
}

// drawMore draws when the priority of a page ends, if ever, and its tenant, if there
// are quotas.
func (c *cache) drawMore(i int32) (s string) {
	if end := c.until(i); end != 0 {
		s = fmt.Sprintf(" until %v", end)
	}
	if c.accounts != nil {
		s += fmt.Sprintf(" tenant %d", c.accounts.of[i])
	}
	return s
}

// sorted lists the cached pages in eviction order, as if there were no quotas.
//
// Sorting the pages independently of their lists is what makes the drawing canonical: two
// pools that evict alike are drawn alike, so tests can compare the text.
func (c *cache) sorted() []int32 {
	if c.pieces != nil {
		return c.cachedPieces()
	}
	pages := c.whole.cached()
	if c.accounts != nil {
		for t := range c.accounts.list {
			pages = append(pages, c.accounts.list[t].order.cached()...)
		}
	}
	slices.SortFunc(pages, func(a, b int32) int {
		switch {
		case a == b:
			return 0
		case c.evictedBefore(a, b):
			return -1
		default:
			return 1
		}
	})
	return pages
}

// cachedPieces lists the cached pages of a pool with the policy forecast, by priority,
// then piece by piece, the deepest page first.
//
// A victim is the least of the pieces that a choice compares, so there is no eviction order to show.
func (c *cache) cachedPieces() (pages []int32) {
	for n := 1; n < len(c.pieces.all); n++ {
		for i := c.pieces.all[n].head; i != none; i = c.pages[i].next {
			pages = append(pages, i)
		}
	}
	slices.SortStableFunc(pages, func(a, b int32) int {
		return int(c.priority(a)) - int(c.priority(b))
	})
	return pages
}

// drawPiece draws the piece of a cached page and what the policy expects of it.
func (c *cache) drawPiece(i int32) string {
	if c.pieces == nil {
		return ""
	}
	n := c.pieces.of(i)
	q := &c.pieces.all[n]
	u := &c.pieces.uses[n]
	f, last := u.features(), q.marks.has(withEnd)
	if last && i != q.head {
		f = c.pieces.beforeLast(q, f)
	}
	s := fmt.Sprintf(" piece %d uses %d value %.3g", n, q.marks.uses(), c.pieces.policy.Value(f, c.pieces.lastOf(u.time)))
	if last && i == q.head {
		s += " last"
	}
	if q.marks.has(superseded) {
		s += " superseded"
	}
	if q.children > 0 {
		s += fmt.Sprintf(" children %d", q.children)
	}
	return s
}

// evictedBefore tells whether page a is evicted before page b, as if there were no
// quotas.
func (c *cache) evictedBefore(a, b int32) bool {
	x, y := c.priority(a), c.priority(b)
	return x < y || x == y && c.whole.before(a, b)
}

// cached lists the pages of all levels, in no order within one.
func (o *order) cached() (pages []int32) {
	o.each(func(_ messages.Priority, l *level) bool {
		pages = o.listed(&l.list, pages)
		for _, id := range l.ranked {
			pages = o.listed(&o.terms.all[id-1].list, pages)
		}
		return true
	})
	return pages
}

// listed appends the pages of a list and its heap.
func (o *order) listed(l *list, pages []int32) []int32 {
	for i := l.head; i != none; i = o.pages[i].next {
		pages = append(pages, i)
	}
	return o.below(l.root, pages)
}

// below appends the siblings from first on and all pages below them.
func (o *order) below(first int32, pages []int32) []int32 {
	for i := first; i != none; i = o.pages[i].next {
		pages = o.below(o.pages[i].child, append(pages, i))
	}
	return pages
}
