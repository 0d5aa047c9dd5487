package protocol

import (
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

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
