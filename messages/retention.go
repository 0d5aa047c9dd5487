package messages

import "time"

// Retention says how long and how dearly the blocks of a request are kept.
// The zero value says nothing: blocks get DefaultPriority and a request
// without retention changes no block that is stored already.
type Retention struct {
	// Ranges are half-open token ranges of the prompt, in any order, disjoint.
	Ranges []RetentionRange
	// Decode covers the blocks that begin in generated tokens; nil leaves them
	// at the default.
	Decode *DecodeRetention
}

// RetentionRange gives a priority to the blocks whose first token it holds.
type RetentionRange struct {
	Start int
	End   int // exclusive; EndOfPrompt reaches the end of the prompt
	Priority
	Duration time.Duration // 0: never expires; else at least a millisecond
}

// EndOfPrompt is the End of a range that reaches to the end of the prompt.
const EndOfPrompt = -1

// DecodeRetention is the priority of generated blocks.
type DecodeRetention struct {
	Priority
	Duration time.Duration // 0: never expires
}

// IsZero tells whether the retention says nothing.
func (r *Retention) IsZero() bool { return r == nil || len(r.Ranges) == 0 && r.Decode == nil }
