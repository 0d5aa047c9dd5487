package pool

import "github.com/kvactor/kvactor/messages"

// foresee appends the pages that go next, at most op.N, and changes nothing. It
// walks the lists, lowest priority first, and of each heap takes the top alone:
// pages out of order are few, and a guess is enough for whoever asks.
func (p *Pool) foresee(op *messages.PoolOp, victims []messages.Victim) []messages.Victim {
	left := op.N
	for i := range p.order.levels {
		l := &p.order.levels[i]
		if l.root != none && left > 0 {
			victims = append(victims, p.pages[l.root].victim(l.root))
			left--
		}
		for at := l.head; at != none && left > 0; at = p.pages[at].next {
			victims = append(victims, p.pages[at].victim(at))
			left--
		}
	}
	return victims
}
