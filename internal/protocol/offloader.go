package protocol

import "github.com/kvactor/kvactor/messages"

// Move is one round's work for the offloader: by pool what was evicted, what
// comes back, what is copied. It decides what goes on in host memory, submits
// the copies and answers by sending the same record back.
type Move struct {
	Header
	Stamp uint64 // of the request: clean copies of one request are of one age
	// Effects are those of the tree that concern host memory; done first.
	Effects []Effect
	Pools   []PoolMove            // by PoolID
	Marks   []Mark                // the host's kernels, done before the copies
	Queries []WaitQuery           // answered at the end
	Counts  []messages.PageCounts // of host memory by PoolID, answered
}

// OffloadAhead offers the offloader pages that would be evicted next, to copy them
// while nobody waits for it. No decision and no count depends on the copies.
type OffloadAhead struct {
	Header
	Stamp uint64
	Pools []EvictionCandidates // by PoolID

	Copied []int // by PoolID, answered
	Busy   bool  // the link was in use, nothing was copied
}

// EvictionCandidates are pages of one pool that may be evicted. The first
// Evictable are those that would be evicted next, in eviction order; the rest are
// still held.
type EvictionCandidates struct {
	Victims   []Victim
	Evictable int
}

// PoolMove is the work in one pool. Order of bytes: offloads, then copies,
// then onboards.
type PoolMove struct {
	Victims  []Victim  // in the order of their eviction
	Outcomes []Outcome // answered, one for each victim
	Copies   []PageCopy
	Onboards []Onboard
	Pins     []BlockID // host contents to pin
	Unpins   []Touch
	// Touches are uses of host contents that were read without a pin: the sources
	// of partial copies.
	Touches []Touch
}

// Outcome is what became of a victim's contents.
type Outcome struct {
	Host messages.PageID // where they go on; NoPage: dropped
	// Displaced is the block whose host contents were dropped to make room.
	Displaced BlockID
	// Dirty: no onboard had left a copy. It was made now, which is Copied, or
	// ahead of demand.
	Dirty  bool
	Copied bool
	// Waits: the copy, made now or ahead, had not passed when the page was given
	// away, so that the next owner waits for it.
	Waits  bool
	Failed bool // dropped because the copy failed
}

// PageCopy copies the leading tokens of a page, K and V of every layer and
// head, into device page To. With Zero it fills the page with zero bytes instead.
type PageCopy struct {
	From   messages.Location
	Block  BlockID // of From, when it is in host memory
	To     messages.PageID
	Tokens int  // tokens per block: the whole page
	Zero   bool // From, Block and Tokens are not read
	Failed bool
}

// Onboard copies the host contents of Block to device page To. The host page
// stays as a clean copy; with Free it is free at the end of the request.
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

// Mark tells that a kernel of the host, done when Ticket has passed, reads or
// writes device pages.
type Mark struct {
	Pool   messages.PoolID
	Pages  []messages.PageID
	Write  bool
	Ticket messages.Ticket
}

// WaitQuery asks what must have passed before a sequence may read the pages in
// Read and write those in Write; both by PoolID. Tickets is answered, at most
// one for each stream.
type WaitQuery struct {
	Read, Write [][]messages.PageID
	Tickets     []messages.Ticket
}
