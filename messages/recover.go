package messages

import "time"

// After an actor has failed, the coordinator makes pools and offloader anew
// from what the owners of their pages know: sequences and pins, which it holds
// itself, and the tree. These are the messages of that.

// Survey asks the tree for every place where a pool keeps a block. With Renew
// the tree is emptied first: it failed in the middle of a change.
type Survey struct {
	Epoch uint32
	Renew bool

	Blocks []Surveyed
}

// Surveyed is one block in one pool.
type Surveyed struct {
	Pool     PoolID
	Block    BlockID
	At       Location
	Depth    int32
	Priority Priority
	Until    time.Duration // when the priority ends; 0: never
	Salt     string        // of its namespace
}

// Quiesce asks the offloader to answer when every transfer and every kernel
// that it was told of has passed. Dirty is answered: it failed in the middle of
// a change, so nothing that it holds in host memory can be trusted.
type Quiesce struct {
	Epoch uint32

	Dirty bool
	Err   error
}

// KeptPage is what the owners of a page know of it.
type KeptPage struct {
	Page       PageID
	References int32
	Shelters   int32 // chunked prefills among the references
	Block      BlockID
	Pins       int32
	Depth      int32
	Priority   Priority
	Tenant     Tenant
	Until      time.Duration // when the priority ends; 0: never
}

// RebuildPool makes the pages of a pool anew.
type RebuildPool struct {
	Epoch uint32
	Pool  PoolID
	Pages int
	Kept  []KeptPage

	Counts PoolPages
}

// RebuildHost makes the host pages of all pools anew; Kept is by PoolID.
type RebuildHost struct {
	Epoch uint32
	Kept  [][]KeptPage
	Pages []int // device pages, by PoolID

	Counts []PageCounts
}
