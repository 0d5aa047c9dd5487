// Package inspect has what hosts read to see what an engine holds and does: its statistics, a
// picture of its pages, the stages of its calls, and the check of its invariants. Dashboards,
// monitoring and tests use it; no inference needs it. An engine serves the requests of this
// package like those of package messages.
package inspect

import "github.com/kvactor/kvactor/messages"

// ReadStats reads counters, which count from the start of the engine, and page counts.
type ReadStats struct {
	messages.Request // nil: it makes the record a request

	Stats Stats
	Err   error
	Tag   any
}

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

// Check verifies the invariants of all actors. Err joins everything that is wrong. It
// walks all that the engine holds, so it is for tests.
type Check struct {
	messages.Request // nil: it makes the record a request

	Err error
	Tag any
}
