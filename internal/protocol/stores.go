package protocol

import "github.com/kvactor/kvactor/messages"

// The messages of this file save pages to a store and fetch them from it.

// SavePages asks the offloader for the bytes of pages, which it gives to the store's
// actor. The offloader answers when the copies are ordered, not when they are over.
type SavePages struct {
	Header
	Items []SaveItem
	Lost  []SaveItem // answered: those whose bytes the store's actor does not get
}

// SaveItem is one page to save. Block is in the tree when the message is sent.
type SaveItem struct {
	Pool  messages.PoolID
	Block BlockID
	From  Location
}

// BlocksInTree is what a Match answers, with MatchItem.InTree set, of all whole blocks of
// the prompt that are in the tree, those that no pool holds included.
type BlocksInTree struct {
	Blocks []BlockID
	Pages  [][]Location // [pool][block]
}

// HostRoom asks the offloader for how many contents from a store there is room in host
// memory, before any of them is read. It changes nothing.
type HostRoom struct {
	Header
	Blocks   [][]BlockID // by PoolID, contents of host memory that a LoadPages may have to keep
	Priority messages.Priority
	Tenant   Tenant

	// Pages is how many pages a LoadPages that keeps nothing can take, by PoolID. It may
	// be below 0 for a tenant that is over its quota.
	Pages []int
	// Displaceable tells of each of Blocks whether its page is one of Pages. A LoadPages
	// that keeps the block can take one page less then.
	Displaceable [][]bool
}

// LoadPages asks the offloader for host pages that contents from a store are written
// to: free pages, clean copies, then sole pages of a priority not above Priority, by
// the order in which they are displaced. Pages of the blocks in Keep are not displaced.
// A HostRoom just before has said that there are as many. The pages belong to no block
// until the tree says so by the effect HostAttach.
type LoadPages struct {
	Header
	Keep     [][]BlockID // by PoolID
	Priority messages.Priority
	Tenant   Tenant
	// Bytes are the contents, by PoolID and in the order of Pages: one page is taken for each.
	Bytes [][][]byte

	Pages     [][]messages.PageID
	Displaced [][]BlockID // by PoolID, what was dropped for them
}

// Fetch attaches contents from a store to the tree. A host's Fetch is served by
// several of them: the first says what is missing, the others bring it.
type Fetch struct {
	messages.Request
	Prefix messages.Prefix
	// Stored says, by PoolID, which whole blocks of the prefix a store has; nil: it
	// has not been asked. Bytes are the pages of those that have been read.
	Stored [][]bool
	Bytes  [][][]byte
	// Count only asks, with Stored, for Length: nothing is brought and nothing is used.
	Count bool

	// Weights is the epoch of the weights: answered without Stored, and the one under which a
	// store was asked with it. Of another epoch than the engine's nothing comes in.
	Weights string
	Missing [][]bool // answered without Stored: pages that no tier has, [pool][block]
	// Wanted are the pages that are to be read, [pool][block]; nil: the fetch is
	// complete.
	Wanted  [][]bool
	Fetched int // blocks of which a page came in, also before a failure of an actor
	Length  int // blocks that a match would reach with what the store has
	Err     error
}

// Flush asks what of all that was to be saved before has not been yet.
type Flush struct {
	messages.Request
	Sequence messages.SequenceID // 0: none
	// Waiting are the pages that have no room yet, of those up to Until; 0: of all. Another Flush
	// with the same record asks again.
	Until   int64
	Waiting int
	// Open are the jobs at the store that are not over. Package actors makes them, and waits for them.
	Open []any
	Err  error
}
