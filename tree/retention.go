package tree

import (
	"cmp"
	"math"
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

// retentionCover answers what a retention gives to blocks.
type retentionCover struct{ spans []span }

// read takes the retention, which may be nil, of a prompt with so many tokens.
func (c *retentionCover) read(r *messages.Retention, prompt, tpb int) {
	c.spans = c.spans[:0]
	if r == nil {
		return
	}
	// A block belongs to the range that has its first token, so both ends are rounded
	// up: a range that begins inside a block leaves the block to the range before.
	up := func(tokens int) int32 { return int32((tokens + tpb - 1) / tpb) }
	add := func(first, end int32, t term) {
		if first < end {
			c.spans = append(c.spans, span{first, end, t})
		}
	}
	for _, g := range r.Ranges {
		end := prompt
		if g.End != messages.EndOfPrompt {
			end = min(g.End, prompt)
		}
		add(up(g.Start), up(end), term{g.Priority, g.Duration})
	}
	// The block in which the prompt ends belongs to the prompt. The next one is the first whose
	// first token was generated.
	if d := r.Decode; d != nil {
		add(up(prompt), math.MaxInt32, term{d.Priority, d.Duration})
	}
	slices.SortFunc(c.spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
}

// empty tells whether nothing is covered.
func (c *retentionCover) empty() bool { return len(c.spans) == 0 }

// of returns what block i of the prefix gets; ok is false if nothing covers it.
func (c *retentionCover) of(i int32) (t term, ok bool) {
	k, _ := slices.BinarySearchFunc(c.spans, i,
		func(s span, i int32) int { return cmp.Compare(s.end, i+1) })
	if k < len(c.spans) && c.spans[k].first <= i {
		return c.spans[k].term, true
	}
	return term{}, false
}
