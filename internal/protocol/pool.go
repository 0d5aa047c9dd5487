package protocol

import (
	"time"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// PoolWork is one batch of operations for one pool, applied in order.
type PoolWork struct {
	Header
	Now time.Duration // the engine's time
	Ops []PoolOp

	Victims []Victim // of all pages taken, in the order of their eviction
	// Pieces and Ranking are answered by a pool whose policy needs them. Pieces divide the
	// victims. Ranking is lent like Victims: until the pool is sent its next record.
	Pieces  []EvictedPiece
	Ranking Ranking
	Counts  PoolPages
}

// EvictedPiece is what a policy knows of some victims in a row.
type EvictedPiece struct {
	End      int // index behind the last of them
	Features Features
	Last     int64  // use, by the policy's clock
	Identity uint64 // of one block, for policies that remember what they evicted; 0: not known
}

// Features is what such a policy knows of a piece at its last use, for the policy alone.
type Features struct {
	Values [9]uint8 // of a run of blocks, see internal/forecast
	Uses   uint8    // of a checkpoint of recurrent states
	GoesOn bool     // a longer checkpoint was made behind it
	Saved  int32    // blocks that a use of the checkpoint saves
	Wait   int64    // number of the latest wait for the piece; 0: none
}

// Ranking tells by what a policy knows now what it is worth to keep pages in host memory that
// it has evicted.
type Ranking interface {
	// Rank is the greater the more a piece is worth whose next victim is at a depth.
	Rank(features Features, last int64, depth int32) int32
	// Now is the policy's clock.
	Now() int64
}

// PoolPages counts the device pages of a pool.
type PoolPages struct {
	inspect.TierPages
	// Held counts the pages that sequences and pins hold, without those that only
	// chunked prefills hold and their reservations cover. Held ≤ Used.
	Held int
}

// Account counts the pages of one tenant in one tier of a pool.
type Account struct {
	// Quota is its share of the tier. Used + Cached may exceed it while other tenants need
	// less than theirs.
	Quota        int
	Used, Cached int
}

// PoolOpKind is the kind of a PoolOp.
type PoolOpKind uint8

// The kinds of operations. All of them skip NoPage entries of Pages.
const (
	// Claim adds a reference to each page.
	Claim PoolOpKind = iota
	// Unclaim undoes a Claim. It does not count as a use.
	Unclaim
	// Take takes N pages for new contents and appends them to Pages, each with one
	// reference. It takes free pages first, then evicts and adds to Victims.
	Take
	// TakeForCheckpoint takes one page like Take if one is free or caches contents of
	// a priority up to Priority. Else it changes nothing, and Pages stays as it is.
	TakeForCheckpoint
	// Drop ends one reference to each page, the last page first, leaving Use.
	Drop
	// AttachPages makes Pages cache Blocks, which start at Depth.
	AttachPages
	// DetachPages makes Pages cache nothing and ends their pins. A page that no
	// sequence holds becomes free.
	DetachPages
	// SetPriority sets the priority of the contents of Pages.
	SetPriority
	// SetUseless says of the contents of Pages whether no match can use them (Useless).
	SetUseless
	// FollowCheckpoint says that the checkpoints in Pages[1:] are the next longer ones behind
	// that of Pages[0], NoPage: that there are no shorter ones.
	FollowCheckpoint
	// AddPins adds N pins to each page.
	AddPins
	// EndPin removes one pin from each page and records Use.
	EndPin
	// EndCoverage makes pages that were covered by a reservation count as held,
	// like all others.
	EndCoverage
	// Inspect answers Shares, the holders of each page.
	Inspect
	// HeldBlocks answers Blocks, the cached blocks that sequences hold.
	HeldBlocks
	// PeekVictims adds to Victims at most N pages and evicts none of them: the
	// first Count are those that would be evicted next, in eviction order. If there
	// are fewer than N, pages that are held and cache a block follow.
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
	N        int
	// Useless, with AttachPages and SetUseless: no match can use the contents.
	Useless bool
	// CoveredByReservation, with Take and Claim, marks pages of a chunked prefill
	// that its reservation already counts, so that they do not count as held as
	// well. With Drop it ends that mark.
	CoveredByReservation bool
	// Awaited, with Unclaim and Drop, says that a request which waits is going to use the
	// contents of the pages, for policies that predict the next use.
	Awaited bool
	// Request, with Drop, says that the pages are the whole path of a request that ends, or in
	// a pool of states its working page, for policies that learn from it; nil otherwise.
	Request *RequestFacts

	Count  int     // answered by PeekVictims
	Shares []Share // answered by Inspect
}

// RequestFacts describes a request that ends. Several operations may share it; it does
// not change until they are answered.
type RequestFacts struct {
	Arrived time.Duration // when it was admitted
	// Signatures name prefixes of the request, see Span. Equal prefixes have equal ones; none is 0.
	Signatures []uint64
	Blocks     int // full blocks
	Prompt     int // full blocks of the prompt, Blocks at most
	Found      int // blocks that its admission has reused, from either tier
	Tokens     int // of the prompt
	Answer     int // tokens of the answer
}

// Share says what holds a page.
type Share struct {
	References int32 // of sequences
	Pins       int32
	Stored     bool // it caches a block of the tree
	Held       bool // as PoolPages.Held counts
	// Priority and Use are those of the block; 0 if none is cached.
	Priority messages.Priority
	Use      Use
}

// Victim is an evicted page and the block that it cached.
type Victim struct {
	Page     messages.PageID
	Block    BlockID
	Depth    int32
	Priority messages.Priority
	Tenant   Tenant
	Use      Use
	Useless  bool // no match can use it
}

// ResizePool changes the number of pages of a pool. A pool that shrinks gives up
// free pages first and then evicts cached ones by the eviction rule. Pages that
// remain beyond the new end are moved to free pages before it.
type ResizePool struct {
	Header
	Pages int
	Now   time.Duration // as in PoolWork

	Victims []Victim
	Moves   []PageMoved
	Counts  PoolPages
}

// PageMoved is one page that got a new number. The new number may be that of an
// evicted page, so victims are copied out before pages are moved.
type PageMoved struct {
	messages.PageMove
	Block BlockID // what the page caches, or NoBlock
	Held  bool    // by a sequence or a pin
}

// ResizeDevice changes the device memory of the pools when the tickets in Waits have
// passed: pools that shrink come first. It is the only message whose answer waits
// for the device.
type ResizeDevice struct {
	Header
	Pages []int // by PoolID
	Waits []messages.Ticket
	// Quiesce waits for every transfer, too, and for every kernel that the offloader was told of.
	// The answer is Dirty then if the offloader failed in the middle of a change: its record of
	// host memory cannot be trusted.
	Quiesce bool

	Dirty bool
	Err   error
}
