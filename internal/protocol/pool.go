package protocol

import (
	"time"

	"github.com/kvactor/kvactor/messages"
)

// PoolWork is one batch of operations for one pool, done in order. The pool
// answers by sending the same record back.
type PoolWork struct {
	Header
	Pool messages.PoolID
	// Now is the engine's time: priorities that end at or before it have ended.
	Now time.Duration
	Ops []PoolOp

	Victims []Victim // of all pages taken, in the order of their eviction
	Counts  PoolPages
}

// PoolPages counts the device pages of a pool.
type PoolPages struct {
	messages.PageCounts
	// Held is the pages that sequences and pins hold, but for those that only
	// a chunked prefill holds under its reserve. Held ≤ Used.
	Held int
}

// Account counts the pages of one tenant in one tier of a pool.
type Account struct {
	Quota        int // its share of the tier; Used + Cached may be more while nobody else needs them
	Used, Cached int
}

// PoolOpKind is one of the operations of a pool.
type PoolOpKind uint8

// The operations. NoPage entries are passed over by all of them.
const (
	// Claim adds a reference to each page. Count tells how many are held now
	// that were not before.
	Claim PoolOpKind = iota
	// Unclaim takes references back as if they had never been: no use.
	Unclaim
	// Take takes N pages for new contents, free ones first, and appends them to
	// Pages, each with one reference; what it evicts is added to Victims.
	Take
	// TakeForCheckpoint takes one page like Take if one is free or caches contents of
	// a priority up to Priority. Else it changes nothing, and Pages stays as it is.
	TakeForCheckpoint
	// Drop ends one reference to each page, the last page first, leaving Use.
	Drop
	// AttachPages makes Pages cache Blocks, which start at Depth.
	AttachPages
	// DetachPages makes pages cache nothing; their pins are gone. A page that
	// no sequence holds is free then.
	DetachPages
	// SetPriority sets the priority of what the pages cache.
	SetPriority
	// AddPins adds N pins to each page, EndPin takes one away, leaving Use.
	AddPins
	EndPin
	// EndCoverage makes pages that were covered by a reservation count as held,
	// like all others.
	EndCoverage
	// Inspect answers in Shares who else holds each page.
	Inspect
	// HeldBlocks answers in Blocks the cached blocks that sequences hold.
	HeldBlocks
	// PeekVictims lists in Victims at most N pages and evicts none: those that would
	// be evicted next, which Count counts, and if they are fewer, some of those
	// that are held and cache a block.
	PeekVictims
)

// PoolOp is one operation.
type PoolOp struct {
	Kind     PoolOpKind
	Pages    []messages.PageID
	Blocks   []BlockID
	Depth    int32
	Priority messages.Priority
	Tenant   Tenant // of the pages that Take and TakeForCheckpoint take
	Use      Use
	Until    time.Duration // when Priority ends, to be the default one; 0: never
	N        int
	// CoveredByReservation, with Take and Claim, marks pages of a chunked prefill
	// that its reservation already counts, so that they do not count as held as
	// well. With Drop it ends that mark.
	CoveredByReservation bool

	Count  int     // answered by Claim and PeekVictims
	Shares []Share // answered by Inspect
}

// Share says who holds a page.
type Share struct {
	References int32 // of sequences
	Pins       int32
	Stored     bool // the tree holds it
}

// Victim is a page that was taken from its contents.
type Victim struct {
	Page     messages.PageID
	Block    BlockID
	Depth    int32
	Priority messages.Priority
	Tenant   Tenant
	Use      Use
}
