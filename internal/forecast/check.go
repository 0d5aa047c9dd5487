package forecast

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Check verifies the invariants and joins everything that is wrong:
//
//  1. The tables of watched blocks and the guard's blocks have each entry in one chain. No set of session
//     ends has a block twice. The filter has the bits of all watched blocks and session ends.
//  2. The list of the guard has every block once; all other places are free. Its entries weigh what the guard says, and
//     no more than the cache holds, but for the half of one.
//  3. Weights are finite. Variances are positive and not above those at the start. The terms of
//     predictions are the weights.
//  4. The clock is not behind the engine's time, and nothing was watched in the future.
func (p *Policy) Check() error {
	var errs []error
	if p.checkpoints != nil {
		return p.checkpoints.check()
	}
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for at, tag := range p.watch.tags {
		if e := &p.watch.ring[at]; tag != 0 && (int32(stamp(p.clock.now)-e.since) < 0 || e.bin >= bins) {
			say("watched block %x at %d since %d is in bin %d, the clock is %d", tag, at, e.since, e.bin, p.clock.now)
		}
	}
	if err := p.watch.check(); err != nil {
		say("watched blocks: %w", err)
	}
	if err := p.sessions.check(); err != nil {
		say("session ends: %w", err)
	}
	if p.clock.now < p.clock.engine {
		say("the clock %d is behind the engine's time %d", p.clock.now, p.clock.engine)
	}
	return errors.Join(append(append(errs, p.guard.lru.check(&p.guard)...), p.model.check()...)...)
}

// check verifies that each entry is in its chain once, and that the filter has its bit.
func (w *watch) check() error {
	for at, tag := range w.tags {
		if tag != 0 && !w.filter.has(tag) {
			return fmt.Errorf("entry %d has the tag %x, which the filter does not know", at, tag)
		}
	}
	return w.index.check()
}

// check verifies that each entry is in its chain once.
func (t *table[T]) check() error {
	listed := 0
	for chain, at := range t.heads {
		for ; at >= 0 && listed <= len(t.tags); at = t.next[at] {
			if t.tags[at] == 0 {
				return fmt.Errorf("entry %d of chain %d has no tag", at, chain)
			}
			listed++
		}
		if at != toChain[T](chain) {
			return fmt.Errorf("chain %d ends with %d", chain, at)
		}
	}
	tagged := 0
	for _, tag := range t.tags {
		if tag != 0 {
			tagged++
		}
	}
	if listed != t.n || tagged != t.n {
		return fmt.Errorf("%d entries are in chains, %d have tags, the table counts %d", listed, tagged, t.n)
	}
	return nil
}

// check verifies that no set has a block twice, and that the filter knows all blocks.
func (s *sessions) check() error {
	n := 0
	for at, tag := range s.tags {
		if tag == 0 {
			continue
		}
		n++
		if !s.filter.has(tag) || slices.Contains(s.tags[at-at%ways:at], tag) {
			return fmt.Errorf("entry %d of the tag %x is in its set twice, or the filter does not know it", at, tag)
		}
	}
	if n != s.n {
		return fmt.Errorf("%d entries have tags, %d are counted", n, s.n)
	}
	return nil
}

// check verifies the list of sampled blocks that LRU would have cached.
func (l *lruList[T]) check(g *guard) (errs []error) {
	if err := l.index.check(); err != nil {
		errs = append(errs, fmt.Errorf("guard: %w", err))
	}
	listed, last, weights := 0, T(-1), 0
	for at := l.head; at >= 0 && listed <= len(l.list); at = l.list[at].next {
		if l.list[at].prev != last || l.index.tags[at] == 0 {
			errs = append(errs, fmt.Errorf("guard: block %x at %d follows %d and says %d", l.index.tags[at], at, last, l.list[at].prev))
		}
		if l.weight[at] == 0 {
			errs = append(errs, fmt.Errorf("guard: block %x at %d weighs nothing", l.index.tags[at], at))
		}
		last = at
		listed++
		weights += int(l.weight[at])
	}
	if weights != l.weights || l.exceeded(g) {
		errs = append(errs, fmt.Errorf("guard: the blocks weigh %d, the guard says %d, the cache holds %d", weights, l.weights, g.capacity))
	}
	free := 0
	for at := l.free; at >= 0 && free <= len(l.list); at = l.list[at].next {
		free++
	}
	if last != l.tail || listed != l.index.n || listed+free != len(l.list) {
		errs = append(errs, fmt.Errorf("guard: %d blocks up to %d, the tail is %d, the table has %d, %d places of %d are free", listed, last, l.tail, l.index.n, free, len(l.list)))
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
