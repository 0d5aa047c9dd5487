package protocol

import (
	"time"

	"github.com/kvactor/kvactor/messages"
)

// After an actor has failed, the coordinator makes pools and offloader anew
// from what the owners of their pages know: sequences and pins, which it holds
// itself, and the tree. These are the messages of that.

// ListLocations asks the tree for every location of every block, in all pools.
// With EmptyTree the tree drops everything first, because it failed in the middle
// of a change.
type ListLocations struct {
	Header
	EmptyTree bool

	Blocks []BlockLocation
}

// BlockLocation is where one pool keeps one block.
type BlockLocation struct {
	Pool     messages.PoolID
	Block    BlockID
	At       messages.Location
	Depth    int32
	Priority messages.Priority
	Until    time.Duration // when the priority ends; 0: never
	Salt     string        // of its namespace
}

// Quiesce asks the offloader to answer when every transfer and every kernel
// that it was told of has passed. Dirty is answered: it failed in the middle of
// a change, so nothing that it holds in host memory can be trusted.
type Quiesce struct {
	Header

	Dirty bool
	Err   error
}

// KeptPage is what the owners of a page know of it.
type KeptPage struct {
	Page              messages.PageID
	References        int32
	CoveredReferences int32 // chunked prefills among the references
	Block             BlockID
	Pins              int32
	Depth             int32
	Priority          messages.Priority
	Tenant            Tenant
	Until             time.Duration // when the priority ends; 0: never
	Use               Use           // filled in by the actor: only the failed core knows it
}

// RebuildPool makes the pages of a pool anew.
type RebuildPool struct {
	Header
	Pool  messages.PoolID
	Pages int
	Kept  []KeptPage

	Counts PoolPages
}

// RebuildHost makes the host pages of all pools anew; Kept is by PoolID.
type RebuildHost struct {
	Header
	Kept  [][]KeptPage
	Pages []int // device pages, by PoolID

	Counts []messages.PageCounts
}
