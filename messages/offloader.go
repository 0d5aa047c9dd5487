package messages

// Move is one round's work for the offloader: by pool what was evicted, what
// comes back, what is copied. It decides what goes on in host memory, submits
// the copies and answers by sending the same record back.
type Move struct {
	Epoch uint32
	Stamp uint64 // of the request: clean copies of one request are of one age
	// Effects are those of the tree that concern host memory; done first.
	Effects []Effect
	Pools   []PoolMove   // by PoolID
	Marks   []Mark       // the host's kernels, done before the copies
	Ready   []Ready      // answered at the end
	Counts  []PageCounts // of host memory by PoolID, answered
}

// Ahead offers the offloader pages that would be evicted next, to copy them
// while nobody waits for it. No decision and no count depends on the copies.
type Ahead struct {
	Epoch uint32
	Stamp uint64
	Pools []Foreseen // by PoolID

	Copied []int // by PoolID, answered
	Busy   bool  // the link was in use, nothing was copied
}

// Foreseen are pages of one pool that may be evicted: the first Near in the
// order in which they would be next, then some that are held as yet.
type Foreseen struct {
	Victims []Victim
	Near    int
}

// PoolMove is the work in one pool. Order of bytes: offloads, then copies,
// then onboards.
type PoolMove struct {
	Victims  []Victim  // in the order of their eviction
	Outcomes []Outcome // answered, one for each victim
	Copies   []PageCopy
	Onboards []Onboard
	Pins     []BlockID // host contents to pin
	Unpins   []Unpin
	// Uses are those that references without a pin leave on host contents: the
	// source of a partial copy.
	Uses []Unpin
}

// Outcome is what became of a victim's contents.
type Outcome struct {
	Host PageID // where they go on; NoPage: dropped
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
// head, into device page To.
type PageCopy struct {
	From   Location
	Block  BlockID // of From, when it is in host memory
	To     PageID
	Tokens int
	Failed bool
}

// Onboard copies the host contents of Block to device page To. The host page
// stays as a clean copy; with Free it is free at the end of the request.
type Onboard struct {
	Block  BlockID
	To     PageID
	Free   bool
	Failed bool
}

// Unpin ends one pin of the host contents of Block.
type Unpin struct {
	Block BlockID
	Use   Use
}

// Mark tells that a kernel of the host, done when Ticket has passed, reads or
// writes device pages.
type Mark struct {
	Pool   PoolID
	Pages  []PageID
	Write  bool
	Ticket Ticket
}

// Ready asks what must have passed before a sequence may read the pages in
// Read and write those in Write; both by PoolID. Tickets is answered, at most
// one for each stream.
type Ready struct {
	Read, Write [][]PageID
	Tickets     []Ticket
}
