package forecast

import (
	"errors"
	"fmt"
	"math"
)

// Check verifies the invariants and joins everything that is wrong:
//
//  1. The tables of watched blocks, session ends and the guard's blocks have exactly the
//     entries of their lists.
//  2. The list of the guard has every block once; all other places are free.
//  3. Weights are finite. Variances are positive and not above those at the start. The terms of
//     predictions are the weights.
//  4. The clock is not behind the engine's time, and nothing was watched in the future.
func (p *Policy) Check() error {
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	n := 0
	for i := range p.watch.ring {
		e := &p.watch.ring[i]
		if e.signature == 0 {
			continue
		}
		n++
		if at := p.watch.index.find(e.signature); at != int32(i) || e.since > p.clock.now || e.bin > bins {
			say("watched block %x at %d since %d is found at %d, the clock is %d", e.signature, i, e.since, at, p.clock.now)
		}
	}
	if n != p.watch.index.n {
		say("%d blocks are watched, the table has %d", n, p.watch.index.n)
	}
	n = 0
	for i := range p.sessions.ring {
		e := &p.sessions.ring[i]
		if e.signature == 0 {
			continue
		}
		n++
		if at := p.sessions.index.find(e.signature); at != int32(i) {
			say("session end %x at %d is found at %d", e.signature, i, at)
		}
	}
	if n != p.sessions.index.n {
		say("%d session ends, the table has %d", n, p.sessions.index.n)
	}
	if p.clock.now < p.clock.engine {
		say("the clock %d is behind the engine's time %d", p.clock.now, p.clock.engine)
	}
	return errors.Join(append(append(errs, p.guard.check()...), p.model.check()...)...)
}

// check verifies the list of sampled blocks that LRU would have cached.
func (g *guard) check() (errs []error) {
	listed, last := 0, int32(-1)
	for at := g.head; at >= 0 && listed <= len(g.pages); at = g.pages[at].next {
		e := &g.pages[at]
		if found := g.index.find(e.signature); e.prev != last || found != at {
			errs = append(errs, fmt.Errorf("guard: block %x at %d follows %d and says %d, found at %d", e.signature, at, last, e.prev, found))
		}
		last = at
		listed++
	}
	free := 0
	for at := g.free; at >= 0 && free <= len(g.pages); at = g.pages[at].next {
		free++
	}
	if last != g.tail || listed != g.index.n || listed+free != len(g.pages) {
		errs = append(errs, fmt.Errorf("guard: %d blocks up to %d, the tail is %d, the table has %d, %d places of %d are free", listed, last, g.tail, g.index.n, free, len(g.pages)))
	}
	return errs
}

// check verifies that everything is a number.
func (m *model) check() (errs []error) {
	bad := func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }
	for i := range m.weight {
		for v := range m.weight[i] {
			if bad(m.weight[i][v].value) || bad(m.scale[i][v].value) {
				errs = append(errs, fmt.Errorf("feature %d of value %d weighs %v and %v", i, v, m.weight[i][v].value, m.scale[i][v].value))
			}
			if w := m.weight[i][v]; !(w.variance > 0 && w.variance <= markVariance) {
				errs = append(errs, fmt.Errorf("feature %d of value %d has the variance %v", i, v, w.variance))
			}
			if t := m.terms[i][v]; t != pack(m.scale[i][v].value, m.weight[i][v].value) {
				errs = append(errs, fmt.Errorf("feature %d of value %d is predicted with %d and %d, not with its weights %v and %v", i, v, t.scale(), t.score(), m.scale[i][v].value, m.weight[i][v].value))
			}
		}
	}
	for k := range m.bias {
		if b := m.bias[k]; bad(b.value) || !(b.variance > 0 && b.variance <= biasVariance) {
			errs = append(errs, fmt.Errorf("hazard of bin %d is %v with variance %v", k, b.value, b.variance))
		}
	}
	return errs
}
