package oracle

import (
	"fmt"
	"math"
	"time"

	"github.com/kvactor/kvactor/messages"
)

// recognise tells the blocks that an admission reuses whole of it, and the
// source of its copy.
func (o *Oracle) recognise(pl *plan, s *sequence) {
	for _, b := range pl.lead {
		if b == nil || !o.alive(b) {
			continue
		}
		o.touch(b)
		join(b, s.session)
		o.retain(b, s)
		o.storeTier.saveReused(b)
	}
	if pl.partial == messages.PartialCopy && o.alive(pl.match.source) {
		o.touch(pl.match.source)
	}
}

// admitted is the answer to an admission, which it counts.
func (o *Oracle) admitted(pl *plan, s *sequence) messages.Admitted {
	a := messages.Admitted{
		Sequence: s.id, ReusedTokens: pl.match.tokens, Tables: tablesOf(s),
		MissReason: pl.missReason, AttentionTokens: pl.attention, Checkpoints: s.wanted,
	}
	partial := 0
	if pl.match.source != nil {
		partial = 1
	}
	for _, p := range o.pool {
		if !p.attends() {
			a.Reuse = append(a.Reuse, o.stateReuse(pl, p))
			p.counters.Missed += int64(ceil(s.prompt, o.tpb) - s.reused - partial)
			continue
		}
		r := messages.PoolReuse{Partial: partial, PartialReuse: pl.partial}
		for index, spot := range pl.claims[p.id] {
			if spot != nil {
				r.Full++
			}
			if pl.onboards[p.id][index] != nil {
				r.Onboarded++
			}
		}
		if pl.partial == messages.PartialTakeover && pl.fromHost[p.id] {
			r.Onboarded++
		}
		p.counters.ReusedFull += int64(r.Full)
		p.counters.ReusedPartial += int64(partial)
		p.counters.Missed += int64(ceil(s.prompt, o.tpb) - s.reused - partial)
		a.Reuse = append(a.Reuse, r)
	}
	o.requests++
	o.promptTokens += int64(s.prompt)
	o.reusedTokens += int64(pl.match.tokens)
	return a
}

// name is a block's key as a map key.
func name(ns messages.Namespace, key []symbol) string { return fmt.Sprintf("%v %v", ns, key) }

// join ends the belonging of a block to a session when a sequence of another
// session, or of none, reuses or stores it.
func join(b *block, session string) {
	if b.session != session {
		b.session = ""
	}
}

// retain gives a block that is stored already the retention of a request that
// reuses or stores it, once.
func (o *Oracle) retain(b *block, s *sequence) {
	n := name(b.namespace, b.key)
	priority, duration, covered := retention(s, b.index*o.tpb)
	if !covered || s.settled[n] {
		return
	}
	s.settled[n] = true
	o.startTimer(b, duration)
	o.setPriority(b, priority)
}

// retention is what the sequence's request says of the block that begins at
// token first, and whether it covers it.
func retention(s *sequence, first int) (messages.Priority, time.Duration, bool) {
	r := s.retention
	if r == nil {
		return messages.DefaultPriority, 0, false
	}
	if first >= s.prompt {
		if r.Decode == nil {
			return messages.DefaultPriority, 0, false
		}
		return r.Decode.Priority, r.Decode.Duration, true
	}
	for _, x := range r.Ranges {
		if x.Start <= first && (first < x.End || x.End == messages.EndOfPrompt) {
			return x.Priority, x.Duration, true
		}
	}
	return messages.DefaultPriority, 0, false
}

func (o *Oracle) startTimer(b *block, d time.Duration) {
	b.timed = d > 0 && d <= math.MaxInt64-o.now
	b.expires = o.now + d
	o.timers++
	b.started = o.timers
}
