package protocol

import (
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// Close ends the engine. Requests queued before it are still served. LeakedPages
// counts the pages that sequences and pins still held.
type Close struct {
	LeakedPages int
	Err         error
}

// Audit asks an actor to check its invariants and to list which block each page
// caches. The coordinator compares the lists of the tree and of the pools.
type Audit struct {
	Header
	// References and Tenants are the coordinator's view, by page. The pool
	// compares them with its own. A page of AnyTenant is not compared by tenant.
	References []int32
	Tenants    []Tenant

	// Attached is answered: by the tree as [pool][i], by a pool as [0][i].
	Attached [][]PageBlock
	Problem  error
}

// PageBlock says that a device page caches a block.
type PageBlock struct {
	Page  messages.PageID
	Block BlockID
	// Front, of a checkpoint, is the page of the next shorter one, as BlockLocation.Front. AnyPage is
	// not compared.
	Front messages.PageID
	// Useless, of attention pages and checkpoints, is that of the last Attach or Appraise.
	Useless bool
}

// AnyPage is the front of the tree's checkpoints if it has not told the pool of all of them.
const AnyPage messages.PageID = -2

// Content is one stored block, as ReadContents lists it. The list includes blocks that
// no pool holds any more but that stored blocks follow.
type Content struct {
	Parent    int // index of the block before in Contents.Blocks; −1: none
	Namespace messages.Namespace
	Depth     int              // index of the block in its prefix
	Cross     bool             // of the encoder's input, in cross pools; else of the decoder's tokens
	Tokens    []messages.Token // as the host passed them; fewer than a block's if stored in part
	// by token, the multimodal item that covers it; nil if none covers the block
	Covers []messages.Cover
	Pages  []Location // by PoolID, where each pool keeps the block
}

// ReadContents reads every stored block with its pages, parents before children, so
// that a host can verify the bytes.
type ReadContents struct {
	messages.Request // nil: it makes the record a request

	Blocks []Content
	Err    error
	Tag    any
}

// TopNodes asks the tree for at most Limit of its nodes, those with the most blocks below
// them, parents before children.
type TopNodes struct {
	Header
	Limit int

	Nodes    []inspect.PrefixNode
	Counted  int  // nodes that were counted
	Complete bool // there are no others
}

// SampleHost asks the offloader for the states of host pages at equal distances, at most
// Pages of each pool.
type SampleHost struct {
	Header
	Pages int

	Samples [][]inspect.PageSample // by PoolID; their Age is the Use of their contents
}

// SampledPages appends at most limit of the first n pages at equal distances: all of them
// if there are no more.
func SampledPages(list []messages.PageID, n, limit int) []messages.PageID {
	limit = min(limit, n)
	for i := range limit {
		list = append(list, messages.PageID(i*n/limit))
	}
	return list
}
