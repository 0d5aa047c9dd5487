package oracle

import (
	"slices"

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
func (t *tree) matchWhole(q prompt, on condition) match {
	if !t.cfg.BlockReuse {
		return match{}
	}
	for tokens := q.limit / t.tpb * t.tpb; tokens > 0; tokens -= t.tpb {
		if t.covered(q, tokens) && (on == withoutStates || t.checkpointed(q, tokens)) {
			return match{tokens: tokens}
		}
	}
	return match{}
}

// matchPartial is the longest match, ending inside a block or at a boundary.
func (t *tree) matchPartial(q prompt, on condition) match {
	if !t.cfg.BlockReuse || !t.cfg.PartialReuse {
		return t.matchWhole(q, on)
	}
	for tokens := q.limit; tokens > 0; tokens-- {
		if !t.covered(q, tokens) || on == withStates && !t.checkpointed(q, tokens) {
			continue
		}
		if tokens%t.tpb == 0 {
			return match{tokens: tokens}
		}
		b := t.source(q, tokens)
		if on == withStates && t.recurrent() { // the block that ends there, with a page in every pool
			if b = t.find(q.namespace, q.key[:tokens]); !held(b, t.attentionPools()) {
				b = nil
			}
		}
		if b != nil {
			return match{tokens: tokens, source: b}
		}
	}
	return match{}
}

// leads reports whether these tokens lead to a stored block.
func (t *tree) leads(ns messages.Namespace, key []symbol) bool {
	return len(key) == 0 || slices.ContainsFunc(t.blocks, func(b *block) bool {
		return b.namespace == ns && shared(b.key, key) == len(key)
	})
}

// covered reports whether each pool has the whole blocks before position that the
// token there attends to, and whether they lead to anything that is stored.
func (t *tree) covered(q prompt, position int) bool {
	if !t.leads(q.namespace, q.key[:position/t.tpb*t.tpb]) {
		return false
	}
	for index := range position / t.tpb {
		b := t.find(q.namespace, q.key[:(index+1)*t.tpb])
		for _, p := range t.pools {
			if t.needs(p, index, position) && (b == nil || b.at[p.id] == nil) {
				return false
			}
		}
	}
	return true
}

// source is the block that the tokens from the last block boundary to tokens can
// come from: it shares all of them and every pool has it. Of several, the one
// stored or claimed last.
func (t *tree) source(q prompt, tokens int) *block {
	var best *block
	for _, b := range t.blocks {
		if b.namespace != q.namespace || b.index != tokens/t.tpb || !held(b, t.attentionPools()) {
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
func (t *tree) reach(q prompt) int {
	reach := 0
	for _, b := range t.blocks {
		if b.namespace != q.namespace {
			continue
		}
		n := min(shared(b.key, q.key), q.limit)
		switch {
		case n <= b.index*t.tpb:
			// It stands behind another prefix.
		case n == len(b.key) && t.whole(b), t.cfg.PartialReuse:
			reach = max(reach, n)
		}
	}
	return reach
}

// lacking reports whether a full-attention pool lacks a block of [0, reach). The
// last of them is the one that the prompt leads into; of several with as many
// tokens of the prompt, the one stored or claimed last.
func (t *tree) lacking(q prompt, reach int) bool {
	for end := t.tpb; end-t.tpb < reach; end += t.tpb {
		b := t.leadsInto(q, min(end, reach))
		for _, p := range t.pools {
			if p.attends() && !p.limited() && (b == nil || b.at[p.id] == nil) {
				return true
			}
		}
	}
	return false
}

// leadsInto is the stored block that shares the tokens of the prompt up to end,
// which lies in it.
func (t *tree) leadsInto(q prompt, end int) *block {
	var last *block
	for _, b := range t.blocks {
		if b.namespace != q.namespace || b.index != (end-1)/t.tpb || shared(b.key, q.key) < end {
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
func (t *tree) missReason(q prompt, reused, attention, reach int) messages.MissReason {
	if t.cfg.BlockReuse && reused < attention && (reused == 0 || reused < attention/t.tpb*t.tpb) {
		return messages.ReasonNoState
	}
	reused = max(reused, attention)
	switch {
	case !t.cfg.BlockReuse:
		return messages.ReasonDisabled
	case reach == 0:
		return messages.ReasonCold
	case reused == reach:
		return messages.ReasonHit
	case t.lacking(q, reach):
		return messages.ReasonEvicted
	default:
		return messages.ReasonWindowHole
	}
}

// checkpointed reports whether a stored block ends at position whose checkpoint
// every state pool has in some tier.
func (t *tree) checkpointed(q prompt, position int) bool {
	return !t.recurrent() || held(t.find(q.namespace, q.key[:position]), t.statePools())
}
