package messages

import "time"

// PageTime is a time in the history of a sampled device page, by the engine's clock.
type PageTime struct {
	Pool     PoolID
	Kind     PageTimeKind
	Duration time.Duration
}

// PageTimeKind says what a PageTime measures.
type PageTimeKind uint8

// The kinds of times.
const (
	PageLifetime  PageTimeKind = iota // from the store of a block to its eviction
	PageIdle                          // from the last use of a block to its eviction
	PageReuseGap                      // from one use of a block to the next admission that reuses it
	PageTimeKinds                     // how many kinds there are
)
