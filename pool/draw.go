package pool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/internal/protocol"
)

// String draws the pool: its counts, the used pages, the cached pages in eviction
// order, the free pages in the order in which they will be taken. The drawing is
// canonical: two pools that evict alike are drawn alike. Scripts print it, and so do panics
// of broken invariants; it costs a sort of all cached pages.
func (p *Pool) String() string {
	var b strings.Builder
	c := p.Counts()
	tokens := ""
	if n := p.options.BlockTokens; n > 0 {
		tokens = fmt.Sprintf(" of %d tokens", n)
	}
	fmt.Fprintf(&b, "pool %s: %d pages%s, %d used, %d cached, %d free, %d held\n",
		p.name, c.Total, tokens, c.Used, c.Cached, c.Free, c.Held)
	if p.order.Divided() {
		for t := range p.order.Quotas() {
			a := p.Account(protocol.Tenant(t))
			fmt.Fprintf(&b, "  tenant %d: quota %d, %d used, %d cached\n", t, a.Quota, a.Used, a.Cached)
		}
	}
	for i := range p.pages {
		if g := &p.pages[i]; !g.unheld() {
			fmt.Fprintf(&b, "  used  %d: %s\n", i, p.drawHolders(int32(i)))
		}
	}
	for _, i := range p.order.Sorted() {
		fmt.Fprintf(&b, "  cached %d: block %d %s\n", i, p.pages[i].block, p.order.Draw(i))
	}
	if len(p.free) > 0 {
		b.WriteString("  free ")
		for _, i := range slices.Backward(p.free) {
			fmt.Fprintf(&b, " %d", i)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// drawHolders draws the holders of a used page, and what it caches.
func (p *Pool) drawHolders(i int32) string {
	g := &p.pages[i]
	s := fmt.Sprintf("references %d", g.references)
	if g.covered > 0 {
		s += fmt.Sprintf(" covered %d", g.covered)
	}
	if g.pins > 0 {
		s += fmt.Sprintf(" pins %d", g.pins)
	}
	if g.stored() {
		return s + fmt.Sprintf(" block %d %s", g.block, p.order.Draw(i))
	}
	if p.order.Divided() {
		s += fmt.Sprintf(" tenant %d", p.order.Page(i).Tenant)
	}
	return s
}
