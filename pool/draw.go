package pool

import (
	"fmt"
	"slices"
	"strings"
)

// String draws the pool: its counts, the used pages, the cached ones level by
// level in the order of their eviction, the free ones in the order in which
// they will be taken. The drawing is canonical: pools that behave alike look
// alike, whichever way list and heap share the pages.
func (p *Pool) String() string {
	var b strings.Builder
	c := p.Counts()
	fmt.Fprintf(&b, "pool %s: %d pages, %d used, %d cached, %d free, %d held\n", p.name, c.Total, c.Used, c.Cached, c.Free, c.Held)
	for i := range p.pages {
		if p.pages[i].place == used {
			fmt.Fprintf(&b, "  used  %d%s\n", i, p.pages[i].holders())
		}
	}
	for priority := range levels {
		for _, i := range p.order.sorted(priority) {
			g := &p.pages[i]
			fmt.Fprintf(&b, "  cached %d: block %d depth %d priority %d use %d\n", i, g.block, g.depth, priority, g.use)
		}
	}
	if p.freeN > 0 {
		b.WriteString("  free ")
		for i := p.freeHead; i != none; i = p.pages[i].next {
			fmt.Fprintf(&b, " %d", i)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// holders draws who holds a used page and what it caches.
func (g *page) holders() string {
	s := fmt.Sprintf(": references %d", g.references)
	if g.shelters > 0 {
		s += fmt.Sprintf(" shelters %d", g.shelters)
	}
	if g.pins > 0 {
		s += fmt.Sprintf(" pins %d", g.pins)
	}
	if g.stored() {
		s += fmt.Sprintf(" block %d depth %d priority %d use %d", g.block, g.depth, g.priority, g.use)
	}
	return s
}

// sorted lists the pages of a level in the order of their eviction.
func (o *order) sorted(priority int) []int32 {
	var pages []int32
	l := &o.levels[priority]
	for i := l.head; i != none; i = o.pages[i].next {
		pages = append(pages, i)
	}
	pages = o.below(l.root, pages)
	slices.SortFunc(pages, func(a, b int32) int {
		switch {
		case a == b:
			return 0
		case o.before(a, b):
			return -1
		default:
			return 1
		}
	})
	return pages
}

// below appends the siblings from first on and all below them.
func (o *order) below(first int32, pages []int32) []int32 {
	for i := first; i != none; i = o.pages[i].next {
		pages = o.below(o.pages[i].child, append(pages, i))
	}
	return pages
}
