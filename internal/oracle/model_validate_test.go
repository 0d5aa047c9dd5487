package oracle

import (
	"slices"
	"time"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Validate checks the values of an admission, without any state.
func (o *Oracle) Validate(r messages.AdmitRequest) error { return o.validate(r) }

// validate checks the values of an admission, without any state.
func (l *layout) validate(r messages.AdmitRequest) error {
	if err := validPrompt(r.Namespace, r.Tokens, r.Multimodal); err != nil {
		return err
	}
	if err := validRetention(r.Retention); err != nil {
		return err
	}
	if r.BeamWidth < 0 {
		return bad("beam_width %d is negative", r.BeamWidth)
	}
	if r.ChunkTokens < 0 || r.ChunkTokens%l.tpb != 0 {
		return bad("chunk_tokens %d is not a positive multiple of %d", r.ChunkTokens, l.tpb)
	}
	if r.BeamWidth > 1 && l.recurrent() {
		return refusals.New(messages.ErrNotSupported, "beam_width above 1 with recurrent layers")
	}
	return nil
}

func bad(format string, args ...any) error {
	return refusals.New(messages.ErrBadRequest, format, args...)
}

func validTokens(tokens []messages.Token) error {
	if len(tokens) == 0 {
		return bad("tokens is empty")
	}
	for i, t := range tokens {
		if t < 0 {
			return bad("token %d at %d is out of range", t, i)
		}
	}
	return nil
}

func validPrompt(
	ns messages.Namespace, tokens []messages.Token, items []messages.MultimodalItem,
) error {
	if ns.LoRA != "" && !ns.HasLoRA {
		return bad("the adapter %q is not there", ns.LoRA)
	}
	if err := validTokens(tokens); err != nil {
		return err
	}
	for i, a := range items {
		if a.Length < 1 {
			return bad("multimodal item %d is empty", i)
		}
		if a.Start < 0 || a.Length > len(tokens) || a.Start > len(tokens)-a.Length {
			return bad("multimodal item %d leaves the prompt", i)
		}
		for j, b := range items[:i] {
			if a.Start < b.Start+b.Length && b.Start < a.Start+a.Length {
				return bad("multimodal items %d and %d overlap", j, i)
			}
		}
	}
	return nil
}

func validRetention(r *messages.Retention) error {
	if r == nil {
		return nil
	}
	ranges := slices.Clone(r.Ranges)
	slices.SortStableFunc(ranges, func(a, b messages.RetentionRange) int { return a.Start - b.Start })
	for i, a := range ranges {
		open := a.End == messages.EndOfPrompt
		switch {
		case a.Start < 0:
			return bad("a range starts at %d", a.Start)
		case open && i < len(ranges)-1:
			return bad("a range without end that is not the last")
		case !open && a.End <= a.Start:
			return bad("the range [%d, %d) is empty", a.Start, a.End)
		case i > 0 && ranges[i-1].End > a.Start:
			return bad("two ranges overlap at %d", a.Start)
		}
		if err := validKeep(a.Priority, a.Duration); err != nil {
			return err
		}
	}
	if d := r.Decode; d != nil {
		return validKeep(d.Priority, d.Duration)
	}
	return nil
}

func validKeep(p messages.Priority, d time.Duration) error {
	if p > messages.MaxPriority {
		return bad("priority %d is not in 0–100", p)
	}
	if d != 0 && d < time.Millisecond {
		return bad("a duration of %v is below 1 ms", d)
	}
	return nil
}

// validSelector wants exactly one selector, and a right one.
func validSelector(s messages.Selector) error {
	set := 0
	if s.Session != "" {
		set++
	}
	if s.Salt != "" || s.HasLoRA {
		set++
	}
	if s.Prefix != nil {
		set++
	}
	if set != 1 {
		return bad("%d selectors where one is wanted", set)
	}
	if s.Prefix != nil {
		return validPrompt(s.Prefix.Namespace, s.Prefix.Tokens, s.Prefix.Multimodal)
	}
	return nil
}
