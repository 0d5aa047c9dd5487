package tree

import (
	"cmp"
	"slices"
	"time"

	"github.com/kvactor/kvactor/messages"
)

// span is a range of a retention in blocks: those in [first, end) have their first
// token in it.
type span struct {
	// first < end. Spans do not overlap and are sorted, as the ranges of a valid
	// retention are disjoint.
	first, end int32
	term
}

// term is what a retention gives to a block.
type term struct {
	priority messages.Priority
	duration time.Duration // 0: without end
}

// retentionCover answers, for blocks in ascending order, what a retention gives them.
// Ranges are sorted once, so a prompt costs its blocks plus its ranges. Blocks must
// be asked for in ascending order after each read, because at never goes back.
type retentionCover struct {
	spans     []span
	at        int // spans before it are behind us
	generated int32
	decode    *messages.DecodeRetention
}

// read takes the retention, which may be nil, of a prompt with so many tokens.
func (c *retentionCover) read(r *messages.Retention, prompt, tpb int) {
	// A block belongs to the range that has its first token, so both ends are rounded
	// up: a range that begins inside a block leaves the block to the range before.
	up := func(tokens int) int32 { return int32((tokens + tpb - 1) / tpb) }
	c.spans, c.at, c.decode = c.spans[:0], 0, nil
	c.generated = up(prompt)
	if r == nil {
		return
	}
	c.decode = r.Decode
	for _, g := range r.Ranges {
		end := g.End
		if end == messages.EndOfPrompt {
			end = prompt // past it the decode retention speaks anyway
		}
		s := span{first: up(g.Start), end: up(end), term: term{g.Priority, g.Duration}}
		if s.first < s.end {
			c.spans = append(c.spans, s)
		}
	}
	slices.SortFunc(c.spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
}

// empty tells whether nothing is covered.
func (c *retentionCover) empty() bool { return len(c.spans) == 0 && c.decode == nil }

// of returns what block i of the prefix gets; ok is false if nothing covers it.
func (c *retentionCover) of(i int32) (t term, ok bool) {
	// The first block whose first token was generated, and all behind it. The block
	// in which the prompt ends belongs to the prompt.
	if i >= c.generated {
		if c.decode == nil {
			return term{}, false
		}
		return term{c.decode.Priority, c.decode.Duration}, true
	}
	for c.at < len(c.spans) && c.spans[c.at].end <= i {
		c.at++
	}
	if c.at < len(c.spans) && c.spans[c.at].first <= i {
		return c.spans[c.at].term, true
	}
	return term{}, false
}
