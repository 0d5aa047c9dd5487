// Package inspect has what hosts read to see what an engine holds and does: its statistics, a
// picture of its pages, the stages of its calls, and the check of its invariants. Dashboards,
// monitoring and tests use it; no inference needs it. An engine serves the requests of this
// package like those of package messages.
package inspect

import "github.com/kvactor/kvactor/messages"

// ReadOverview reads a picture of the cache whose size does not depend on the number of
// pages, for a host that draws it: samples of the pages of each pool, and the top of the
// prefix tree. It has no tokens and no names of blocks.
//
// The cost is linear in Limits.Pages for each pool. For the tree it is linear in the nodes
// that are counted, of which there are at most 32,768, and in the children of those.
type ReadOverview struct {
	messages.Request // nil: it makes the record a request

	Limits OverviewLimits

	Overview Overview
	Err      error
	Tag      any
}

// OverviewLimits say how much of the cache an overview shows. Both are at most
// MaxOverview; with 0 the pools, or the tree, are not asked.
type OverviewLimits struct {
	Pages int // of each pool and tier, sampled at equal distances
	Nodes int // of the prefix tree
}

// MaxOverview is the largest number of pages and of nodes in one overview.
const MaxOverview = 4096

// Overview answers ReadOverview.
type Overview struct {
	Pools []PoolOverview // by PoolID; empty if Pages was 0
	// Nodes are those of the prefix tree with the most blocks below them, parents before
	// children.
	Nodes []PrefixNode
	// Counted is the number of nodes that were counted, and Complete tells that there are
	// no more. If there are, Below of a node lacks what the deepest levels hold.
	Counted  int
	Complete bool
}

// PoolOverview has pages of one pool at equal distances, all of them if there are no more
// than were asked for.
type PoolOverview struct {
	Primary, Secondary []PageSample
}

// PageSample is the state of one page.
type PageSample struct {
	Page     messages.PageID
	State    PageState
	Priority messages.Priority // of the contents; 0 without contents
	// Age is how many uses ago the contents were used last. Each sequence that ends
	// is a use. It is 0 for pages without contents and for copies.
	Age uint64
}

// PageState says what a page is used for.
type PageState uint8

// The states of pages.
const (
	PageFree   PageState = iota // it holds nothing
	PageUsed                    // sequences, pins or transfers hold it
	PageCached                  // it caches a block and may be evicted
	PageCopy                    // host memory: the contents are on the device as well
)

// PrefixNode is a run of consecutive blocks of the prefix tree in which nothing branches
// off. The root of a namespace is a node without blocks.
type PrefixNode struct {
	Parent int // index in Overview.Nodes; −1: it is the root of a namespace
	Depth  int // blocks before it in its prefixes
	Blocks int
	Below  int // blocks of the node and of all that follow it
	// Stamp grows with each admission and each store: that of the latest one which reused
	// or stored blocks of the node. Overviews of one engine may be compared by it.
	Stamp uint64
}
