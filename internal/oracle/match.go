package oracle

import (
	"github.com/kvactor/kvactor/messages"
)

// prompt is what is matched: a namespace, all tokens, and at most so many of
// them.
type prompt struct {
	namespace messages.Namespace
	key       []symbol
	limit     int
}

// match is the answer to a prompt.
type match struct {
	tokens int    // L
	source *block // of the tokens after the last whole block; nil: there are none
}

// condition says what a match must find apart from keys and values.
type condition int

const (
	withStates    condition = iota // a checkpoint in each state pool where it ends
	withoutStates                  // nothing
)

// matchWhole is the longest match that ends at a block boundary.
func (o *Oracle) matchWhole(q prompt, on condition) match {
	if !o.cfg.BlockReuse {
		return match{}
	}
	for tokens := q.limit / o.tpb * o.tpb; tokens > 0; tokens -= o.tpb {
		if o.covered(q, tokens) && (on == withoutStates || o.checkpointed(q, tokens)) {
			return match{tokens: tokens}
		}
	}
	return match{}
}

// matchPartial is the longest match, ending inside a block or at a boundary.
func (o *Oracle) matchPartial(q prompt, on condition) match {
	if !o.cfg.BlockReuse || !o.cfg.PartialReuse {
		return o.matchWhole(q, on)
	}
	for tokens := q.limit; tokens > 0; tokens-- {
		if !o.covered(q, tokens) || on == withStates && !o.checkpointed(q, tokens) {
			continue
		}
		if tokens%o.tpb == 0 {
			return match{tokens: tokens}
		}
		b := o.source(q, tokens)
		if on == withStates && o.recurrent() { // the block that ends there, with a page in every pool
			if b = o.find(q.namespace, q.key[:tokens]); !held(b, o.attentionPools()) {
				b = nil
			}
		}
		if b != nil {
			return match{tokens: tokens, source: b}
		}
	}
	return match{}
}

// covered reports whether each pool has the whole blocks before position that the
// token there attends to.
func (o *Oracle) covered(q prompt, position int) bool {
	for index := range position / o.tpb {
		b := o.find(q.namespace, q.key[:(index+1)*o.tpb])
		for _, p := range o.pool {
			if o.needs(p, index, position) && (b == nil || b.at[p.id] == nil) {
				return false
			}
		}
	}
	return true
}

// source is the block that the tokens from the last block boundary to tokens can
// come from: it shares all of them and every pool has it. Of several, the one
// stored or claimed last.
func (o *Oracle) source(q prompt, tokens int) *block {
	var best *block
	for _, b := range o.blocks {
		if b.namespace != q.namespace || b.index != tokens/o.tpb || !held(b, o.attentionPools()) {
			continue
		}
		if shared(b.key, q.key) >= tokens && (best == nil || best.touched < b.touched) {
			best = b
		}
	}
	return best
}

// reach is the number of leading tokens that lead into a block which some pool
// holds: the whole of it or, with partial reuse, a part.
func (o *Oracle) reach(q prompt) int {
	reach := 0
	for _, b := range o.blocks {
		if b.namespace != q.namespace {
			continue
		}
		n := min(shared(b.key, q.key), q.limit)
		switch {
		case n <= b.index*o.tpb:
			// It stands behind another prefix.
		case n == len(b.key) && o.whole(b), o.cfg.PartialReuse:
			reach = max(reach, n)
		}
	}
	return reach
}

// lacking reports whether a full-attention pool lacks a block of [0, reach). The
// last of them is the one that the prompt leads into; of several with as many
// tokens of the prompt, the one stored or claimed last.
func (o *Oracle) lacking(q prompt, reach int) bool {
	for end := o.tpb; end-o.tpb < reach; end += o.tpb {
		b := o.leadsInto(q, min(end, reach))
		for _, p := range o.pool {
			if p.attends() && !p.limited() && (b == nil || b.at[p.id] == nil) {
				return true
			}
		}
	}
	return false
}

// leadsInto is the stored block that shares the tokens of the prompt up to end,
// which lies in it.
func (o *Oracle) leadsInto(q prompt, end int) *block {
	var last *block
	for _, b := range o.blocks {
		if b.namespace != q.namespace || b.index != (end-1)/o.tpb || shared(b.key, q.key) < end {
			continue
		}
		if last == nil || last.touched < b.touched {
			last = b
		}
	}
	return last
}

// missReason says how the prompt met the cache, given what was reused in the end and
// what the attention pools alone would have reused.
func (o *Oracle) missReason(q prompt, reused, attention, reach int) messages.MissReason {
	if o.cfg.BlockReuse && reused < attention && (reused == 0 || reused < attention/o.tpb*o.tpb) {
		return messages.ReasonNoState
	}
	reused = max(reused, attention)
	switch {
	case !o.cfg.BlockReuse:
		return messages.ReasonDisabled
	case reach == 0:
		return messages.ReasonCold
	case reused == reach:
		return messages.ReasonHit
	case o.lacking(q, reach):
		return messages.ReasonEvicted
	default:
		return messages.ReasonWindowHole
	}
}
