package forecast

import (
	"errors"
	"fmt"
	"math"
)

// Check verifies the invariants and joins everything that is wrong:
//
//  1. The indices of watched blocks, of session ends and of the guard's blocks have each of them
//     once.
//  2. The guard's blocks weigh what it says, and at most half a block more than the cache holds.
//  3. Weights are finite. Variances are positive and not above those at the start.
//  4. The clock is not behind the engine's time, and nothing was watched in the future.
func (p *Policy) Check() error {
	var errs []error
	if p.checkpoints != nil {
		return p.checkpoints.check()
	}
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	watched := 0
	for at := range p.watch.ring {
		e := &p.watch.ring[at]
		if e.signature == 0 {
			continue
		}
		watched++
		if p.watch.index[e.signature] != int32(at) || e.since > p.clock.now || e.bin >= bins {
			say("watched block %x at %d since %d is in bin %d, the clock is %d",
				e.signature, at, e.since, e.bin, p.clock.now)
		}
	}
	if n := len(p.watch.index); watched != n {
		say("%d blocks are watched, %d are in the index", watched, n)
	}
	if err := p.sessions.check(); err != nil {
		say("session ends: %w", err)
	}
	if p.clock.now < p.clock.engine {
		say("the clock %d is behind the engine's time %d", p.clock.now, p.clock.engine)
	}
	return errors.Join(append(append(errs, p.guard.check()...), p.model.check()...)...)
}

// check verifies the list of sampled blocks that LRU would have cached.
func (g *guard) check() (errs []error) {
	if err := g.lru.check(); err != nil {
		errs = append(errs, fmt.Errorf("guard: %w", err))
	}
	weights := 0
	for at := g.lru.head; at != none; at = g.lru.entries[at].next {
		weights += g.lru.entries[at].value
	}
	if weights != g.weights || g.exceeded() {
		errs = append(errs,
			fmt.Errorf("guard: the blocks weigh %d, the guard says %d, the cache holds %d",
				weights, g.weights, g.capacity))
	}
	return errs
}

// check verifies that everything is a number.
func (m *model) check() (errs []error) {
	bad := func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }
	for i := range m.weight {
		for v := range m.weight[i] {
			if bad(m.weight[i][v].value) || bad(m.scale[i][v].value) {
				errs = append(errs, fmt.Errorf("feature %d of value %d weighs %v and %v",
					i, v, m.weight[i][v].value, m.scale[i][v].value))
			}
			if w := m.weight[i][v]; !(w.variance > 0 && w.variance <= markVariance) {
				errs = append(errs, fmt.Errorf("feature %d of value %d has the variance %v", i, v, w.variance))
			}
		}
	}
	for k := range m.bias {
		if b := m.bias[k]; bad(b.value) || !(b.variance > 0 && b.variance <= biasVariance) {
			errs = append(errs, fmt.Errorf("hazard of bin %d is %v with variance %v",
				k, b.value, b.variance))
		}
	}
	return errs
}
