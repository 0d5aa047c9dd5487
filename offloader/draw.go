package offloader

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/messages"
)

// String draws host memory and every slot on which something may be under way. The
// ticket s2:7 is the point 7 of stream 2.
func (o *Offloader) String() string {
	var b strings.Builder
	for i := range o.hosts {
		o.hosts[i].draw(&b)
		o.ledger.draw(&b, messages.PoolID(i))
	}
	return b.String()
}

// draw draws the host memory of one pool.
//
// The counts are those of Counts, in which ahead copies are free. The pages are drawn by
// their states, ahead copies as well, and free pages are left out.
func (h *hostPool) draw(b *strings.Builder) {
	c := h.count()
	fmt.Fprintf(b, "pool %s: host pages %d: %d used, %d cached, %d free\n",
		h.name, c.Total, c.Used, c.Cached, c.Free)
	for i := range h.pages {
		pg := &h.pages[i]
		switch pg.state {
		case free:
			continue
		case sole:
			g := h.order.Page(int32(i))
			fmt.Fprintf(b, "  %d sole block %d depth %d priority %d use %d",
				i, pg.block, g.Depth, g.Priority, g.Use)
		case clean:
			g := h.order.Page(int32(i))
			fmt.Fprintf(b, "  %d clean block %d depth %d stamp %d", i, pg.block, g.Depth, g.Use.Moment())
		default:
			fmt.Fprintf(b, "  %d %s block %d", i, stateNames[pg.state], pg.block)
		}
		if pg.pins > 0 {
			fmt.Fprintf(b, " pins %d", pg.pins)
		}
		if h.order.Divided() && pg.state.counts() {
			fmt.Fprintf(b, " tenant %d", h.order.Page(int32(i)).Tenant)
		}
		b.WriteString(h.order.DrawKnown(int32(i)))
		b.WriteByte('\n')
	}
}

// draw draws the records of the pages of one pool with a transfer or a kernel under way, by
// tier and page.
func (l *ledger) draw(b *strings.Builder, id messages.PoolID) {
	slots := slices.SortedFunc(maps.Keys(l.of), func(a, b Slot) int {
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Page, b.Page))
	})
	for _, s := range slots {
		if s.Pool != id {
			continue
		}
		r := l.of[s]
		var parts []string
		if !r.written.IsZero() {
			parts = append(parts, "written "+point(r.written))
		}
		for _, t := range r.reads {
			parts = append(parts, "read "+point(t))
		}
		if len(parts) > 0 {
			fmt.Fprintf(b, "  %s %d: %s\n", s.Tier, s.Page, strings.Join(parts, ", "))
		}
	}
}

// point draws a ticket.
func point(t messages.Ticket) string { return fmt.Sprintf("s%d:%d", t.Stream, t.Seq) }
