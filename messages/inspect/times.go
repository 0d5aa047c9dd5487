package inspect

import (
	"time"

	"github.com/kvactor/kvactor/messages"
)

// Stage is a part of the way of a call through an engine.
type Stage string

// The stages. A call goes through those that it needs, some of them more than once: an
// admission whose copies fail is matched again.
const (
	StageQueue Stage = "queue" // calls before it are served
	StageMatch Stage = "match" // the tree finds the prefixes, pools claim and pin their pages
	StageWait  Stage = "wait"  // an admission waits for pages: actors.WithWaitingRoom
	StageTake  Stage = "take"  // pools take and drop pages, and name what they evict
	StageMove  Stage = "move"  // copies are submitted to the streams
	StageApply Stage = "apply" // the tree learns what has changed, pools and host memory follow
)

// StageMark is the beginning of a stage. It lasts to the next one, or to the answer.
type StageMark struct {
	Stage Stage
	Began time.Time
}

// PageTime is a time in the history of a sampled device page, by the engine's clock.
type PageTime struct {
	Pool     messages.PoolID
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
