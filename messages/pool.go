package messages

import "time"

// PoolWork is one batch of operations for one pool, done in order. The pool
// answers by sending the same record back.
type PoolWork struct {
	Epoch uint32
	Pool  PoolID
	// Now is the engine's time: priorities that end at or before it have ended.
	Now time.Duration
	Ops []PoolOp

	Victims []Victim // of all Take operations, in the order of their eviction
	Counts  PoolPages
}

// PoolPages counts the device pages of a pool.
type PoolPages struct {
	PageCounts
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
	// Unshelter makes sheltered pages count as held like others.
	Unshelter
	// Inspect answers in Shares who else holds each page.
	Inspect
	// HeldBlocks answers in Blocks the cached blocks that sequences hold.
	HeldBlocks
	// Foresee lists in Victims at most N pages and evicts none: those that would
	// be evicted next, which Count counts, and if they are fewer, some of those
	// that are held and cache a block.
	Foresee
)

// PoolOp is one operation.
type PoolOp struct {
	Kind     PoolOpKind
	Pages    []PageID
	Blocks   []BlockID
	Depth    int32
	Priority Priority
	Tenant   Tenant // of the pages that Take takes
	Use      Use
	Until    time.Duration // when Priority ends, to be the default one; 0: never
	N        int
	// Shelter: with Take and Claim the pages become sheltered, with Drop they
	// stop to be: they are a chunked prefill's own, covered by its reserve.
	Shelter bool

	Count  int     // answered by Claim and Foresee
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
	Page     PageID
	Block    BlockID
	Depth    int32
	Priority Priority
	Tenant   Tenant
	Use      Use
}
