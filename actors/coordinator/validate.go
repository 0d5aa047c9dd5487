package coordinator

import (
	"cmp"
	"slices"
	"time"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Validate checks the values of an admission alone, nothing that depends on
// the state of the engine. It reads nothing of the configuration that changes, so callers may
// use it outside of the coordinator's goroutine.
func (c *Config) Validate(r *messages.AdmitRequest) error {
	// The order is part of the interface: where several things are wrong, hosts and scripts see
	// the first of them, from what names the prompt to what only says how to serve it.
	if err := refusals.Namespace(&r.Namespace); err != nil {
		return err
	}
	if err := c.validatePrefix(r.Tokens, r.Multimodal); err != nil {
		return err
	}
	if err := validateRetention(r.Retention, len(r.Tokens)); err != nil {
		return err
	}
	// The retention of the input is checked against the length of the input, so the input
	// itself comes first.
	if err := c.validateEncoder(r.Encoder, r.EncoderItems); err != nil {
		return err
	}
	if err := validateRetention(r.EncoderRetention, len(r.Encoder)); err != nil {
		return err
	}
	// Zero stands for one beam, so that a host need not fill the field in.
	if r.BeamWidth < 0 {
		return refusals.New(messages.ErrBadRequest, "beam_width %d is not at least 1", r.BeamWidth)
	}
	// Each beam has a table in each pool: the width bounds what one request can make the
	// engine allocate.
	if r.BeamWidth > MaxBeamWidth {
		return refusals.New(messages.ErrBadRequest, "beam_width %d is over the limit of %d", r.BeamWidth,
			MaxBeamWidth)
	}
	// Every commit before the prompt's last ends at a block boundary, and so do chunks.
	if r.ChunkTokens < 0 || r.ChunkTokens%c.TokensPerBlock != 0 {
		return refusals.New(messages.ErrBadRequest,
			"chunk_tokens %d is not a positive multiple of tokens_per_block %d", r.ChunkTokens,
			c.TokensPerBlock)
	}
	// What is stored is computed: there are no chunks to come, and no beams before a step.
	if r.StoredOnly && (r.BeamWidth > 1 || r.ChunkTokens != 0 || len(r.Encoder) > 0) {
		return refusals.New(messages.ErrBadRequest,
			"stored_only excludes beam_width, chunk_tokens and encoder")
	}
	// Each beam would need a working page of its own, copied from its parent's in each step.
	if r.BeamWidth > 1 && c.recurrent() {
		return refusals.New(messages.ErrNotSupported,
			"beam_width above 1 and recurrent layers exclude each other")
	}
	return nil
}

// MaxBeamWidth bounds the beams of one sequence. Every beam has tokens of its own and a table
// in each pool of blocks.
const MaxBeamWidth = 1024

// validatePrefix checks tokens and items.
func (c *Config) validatePrefix(tokens []messages.Token, items []messages.MultimodalItem) error {
	if len(tokens) == 0 {
		return refusals.New(messages.ErrBadRequest, "tokens is empty")
	}
	// Negative numbers are symbols: the tree writes them in place of tokens that an item
	// covers. One that came from a host could name another prompt's item.
	if i := firstNegative(tokens); i >= 0 {
		return refusals.New(messages.ErrBadRequest, "token %d at position %d is not in 0 … 2³¹−1",
			tokens[i], i)
	}
	return refusals.Items(items, len(tokens))
}

// firstNegative is the index of the first token that is no token id, or −1.
func firstNegative(tokens []messages.Token) int {
	// Prompts are long and nearly always right, so the signs of eight are looked at together.
	first := 0
	for t := tokens; len(t) >= 8; t = t[8:] {
		if t[0]|t[1]|t[2]|t[3]|t[4]|t[5]|t[6]|t[7] < 0 {
			break
		}
		first += 8
	}
	if i := slices.IndexFunc(tokens[first:], func(t messages.Token) bool { return t < 0 }); i >= 0 {
		return first + i
	}
	return -1
}

// validateRetention checks ranges against the prompt: half-open, in any order,
// clipped to the prompt. An open end is EndOfPrompt and not a number, so it is compared with
// none.
func validateRetention(r *messages.Retention, prompt int) error {
	if r == nil {
		return nil
	}
	// Decode says how generated blocks are kept; it has no range, so nothing can overlap it.
	if r.Decode != nil {
		if err := validateKept("decode", r.Decode.Priority, r.Decode.Duration); err != nil {
			return err
		}
	}
	for i := range r.Ranges {
		g := &r.Ranges[i]
		switch {
		case g.Start < 0:
			return refusals.New(messages.ErrBadRequest, "retention range starts at %d, before 0", g.Start)
		// A range behind the prompt's end is clipped to nothing and no error: hosts use one policy
		// for prompts of all lengths.
		case g.End != messages.EndOfPrompt && g.End <= g.Start:
			return refusals.New(messages.ErrBadRequest, "retention range [%d, %d) is empty", g.Start, g.End)
		}
		if err := validateKept("range", g.Priority, g.Duration); err != nil {
			return err
		}
	}
	return validateDisjoint(r.Ranges)
}

// validateKept checks a priority and how long it holds, 0 for ever. what names the setting in
// the refusal.
func validateKept(what string, priority messages.Priority, duration time.Duration) error {
	if priority > messages.MaxPriority {
		return refusals.New(messages.ErrBadRequest, "%s priority %d is not in 0 … 100", what, priority)
	}
	// Shorter ones would end before the request that sets them is answered.
	if duration != 0 && duration < time.Millisecond {
		return refusals.New(messages.ErrBadRequest, "%s duration %v is below 1 ms", what, duration)
	}
	return nil
}

// validateDisjoint refuses ranges that overlap, and an open end before the last. Without an
// overlap the order in which a host gives the ranges makes no difference.
func validateDisjoint(ranges []messages.RetentionRange) error {
	if len(ranges) < 2 {
		return nil
	}
	// A copy is sorted: the ranges are the host's, and an error names them as it gave them.
	order := slices.Clone(ranges)
	slices.SortFunc(order,
		func(a, b messages.RetentionRange) int { return cmp.Compare(a.Start, b.Start) })
	for i := 1; i < len(order); i++ {
		before, r := order[i-1], order[i]
		// EndOfPrompt is a value, not an end that could be compared, so it has a case of its own.
		if before.End == messages.EndOfPrompt {
			return refusals.New(messages.ErrBadRequest,
				"retention range from %d has an open end but is not the last", before.Start)
		}
		if before.End > r.Start {
			return refusals.New(messages.ErrBadRequest, "retention ranges [%d, %d) and [%d, …) overlap",
				before.Start, before.End, r.Start)
		}
	}
	return nil
}
