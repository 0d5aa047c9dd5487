package protocol

import (
	"time"

	"github.com/kvactor/kvactor/messages"
)

// ResizePool changes the number of pages of a pool. A pool that shrinks gives up
// free pages first and then evicts cached ones by the eviction rule. Pages that
// remain beyond the new end are moved to free pages before it.
type ResizePool struct {
	Header
	Pool  messages.PoolID
	Pages int
	Now   time.Duration // as in PoolWork

	Victims []Victim
	Moves   []PageMoved
	Counts  PoolPages
}

// PageMoved is one page that got a new number. The new number may be that of an
// evicted page, so victims are copied out before pages are moved.
type PageMoved struct {
	messages.PageMove
	Block BlockID // what the page caches, or NoBlock
	Held  bool    // by a sequence or a pin
}

// ResizeDevice changes the device memory of the pools when the tickets in Waits have
// passed: pools that shrink come first. It is the only message whose answer waits
// for the device.
type ResizeDevice struct {
	Header
	Pages []int // by PoolID
	Waits []messages.Ticket

	Err error
}
