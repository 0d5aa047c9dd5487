package messages

import "time"

// Retention sets the eviction priorities of the blocks of a request, and how long
// these hold. With the zero value new blocks get DefaultPriority, and blocks that
// are stored already keep the priority that they have.
type Retention struct {
	// Ranges are disjoint half-open token ranges of the prompt, in any order.
	Ranges []RetentionRange
	// Decode applies to blocks whose first token is generated; nil leaves them at
	// the default.
	Decode *DecodeRetention
}

// RetentionRange sets the priority of the blocks whose first token is in
// [Start, End).
type RetentionRange struct {
	Start int
	End   int // EndOfPrompt stands for the length of the prompt
	Priority
	Duration time.Duration // 0: never expires; else at least a millisecond
}

// EndOfPrompt stands for the length of the prompt, as the End of a range.
const EndOfPrompt = -1

// DecodeRetention sets the priority of blocks whose first token is generated.
type DecodeRetention struct {
	Priority
	Duration time.Duration // 0: never expires
}

// IsZero reports whether the retention sets nothing.
func (r *Retention) IsZero() bool { return r == nil || len(r.Ranges) == 0 && r.Decode == nil }
