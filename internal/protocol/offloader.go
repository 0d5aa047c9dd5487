package protocol

import (
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// Move is one round's work for the offloader: for each pool the evicted pages, the
// pages to bring back from host memory, and the pages to copy. The offloader decides
// which evicted contents host memory keeps, submits the copies, and sends the record
// back with the outcomes and the tickets.
type Move struct {
	Header
	Stamp uint64 // number of the request; clean copies made by one request have one age
	// Effects are those effects of the tree that concern host memory. They are
	// applied first.
	Effects []Effect
	Pools   []PoolMove // by PoolID
	// accesses by the host's kernels, recorded before the copies are submitted
	Marks   []Mark
	Queries []WaitQuery         // answered at the end
	Counts  []inspect.TierPages // of host memory by PoolID, answered
}

// OffloadAhead offers the offloader pages that would be evicted next, so that it can
// copy them to host memory before they are needed. No later decision and no page
// count depends on these copies; only the time that an eviction takes does.
type OffloadAhead struct {
	Header
	Pools []EvictionCandidates // by PoolID

	Copied []int // by PoolID, answered
	Busy   bool  // the link was in use, so nothing was copied
}

// EvictionCandidates are pages of one pool that may be evicted. The first
// Evictable are those that would be evicted next, in eviction order; the rest are
// still held.
type EvictionCandidates struct {
	Victims   []Victim
	Evictable int
}

// PoolMove is the work in one pool. Its copies take effect in this order: offloads of
// victims, then page copies, then onboards.
type PoolMove struct {
	Victims  []Victim       // in the order of their eviction
	Pieces   []EvictedPiece // of the victims, see PoolWork
	Ranking  Ranking
	Outcomes []Outcome // answered, one for each victim
	Copies   []PageCopy
	Onboards []Onboard
	Pins     []BlockID // host contents to pin
	Unpins   []Touch   // pins that end
	// Touches are uses of host contents that were read without a pin: the sources
	// of partial copies.
	Touches []Touch
}

// Outcome says what happened to a victim's contents.
type Outcome struct {
	Host messages.PageID // the host page that has them now; NoPage: they were dropped
	// Displaced is the block whose host contents were dropped to make room.
	Displaced BlockID
	// Dirty is set if host memory had no copy from an earlier onboard. The copy was
	// made now, and then Copied is set, or ahead of demand.
	Dirty  bool
	Copied bool
	// Waits is set if the copy was not complete when the page got its new owner,
	// which therefore waits for it.
	Waits  bool
	Failed bool // the contents were dropped because the copy failed
}

// PageCopy copies the leading tokens of a page, K and V of every layer and
// head, into device page To. With Zero it fills the page with zero bytes instead.
type PageCopy struct {
	From   Location
	Block  BlockID // that From caches, if it is a host page
	To     messages.PageID
	Tokens int  // tokens per block: the whole page
	Zero   bool // From, Block and Tokens are not read
	Failed bool
}

// Onboard copies the host contents of Block to device page To. The host page stays
// as a clean copy, or with Free becomes free at the end of the request.
type Onboard struct {
	Block  BlockID
	To     messages.PageID
	Free   bool
	Failed bool
}

// Touch is one use of the host contents of Block: by a pin that ends, or by a
// reader that did not pin them.
type Touch struct {
	Block BlockID
	Use   Use
}

// Mark says that a kernel of the host reads or, with Write, writes device pages. The
// kernel is complete when Ticket has passed.
type Mark struct {
	Pool   messages.PoolID
	Pages  []messages.PageID
	Write  bool
	Ticket messages.Ticket
}

// WaitQuery asks for the tickets that must have passed before a sequence may read
// the pages in Read and write the pages in Write, both by PoolID. The answer has at
// most one ticket for each stream.
type WaitQuery struct {
	Read, Write [][]messages.PageID
	Tickets     []messages.Ticket
}
