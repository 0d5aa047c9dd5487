package pool

import "github.com/kvactor/kvactor/internal/protocol"

// scanReach is how many pages peekHeld looks at for each page that is wanted. It bounds the work of
// a pool whose used pages cache nothing.
const scanReach = 8

// peekVictims appends at most op.N pages that will be evicted next, in eviction order, and
// evicts none. The engine copies them to host memory while the link is not busy. See
// evict.Core.Peek for pools with quotas.
func (p *Pool) peekVictims(op *protocol.PoolOp) {
	p.peeked = p.order.Peek(op.N, p.peeked[:0])
	for _, i := range p.peeked {
		p.victims = append(p.victims, p.victim(i))
	}
	op.Count = len(p.peeked)
	p.peekHeld(op.N - op.Count)
}

// peekHeld appends at most n used pages that cache a block: they become cached when their
// holders release them. Which will be the first is not known, so the scan goes on where the
// last one ended, round all pages.
func (p *Pool) peekHeld(n int) {
	for reach := min(scanReach*n, len(p.pages)); n > 0 && reach > 0; reach-- {
		if p.scanNext >= len(p.pages) {
			p.scanNext = 0
		}
		if g := &p.pages[p.scanNext]; !g.unheld() && g.stored() {
			p.victims = append(p.victims, p.victim(int32(p.scanNext)))
			n--
		}
		p.scanNext++
	}
}
