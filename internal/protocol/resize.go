package protocol

import (
	"time"

	"github.com/kvactor/kvactor/messages"
)

// ResizePool makes a pool larger or smaller. A pool that shrinks gives up free
// pages, then cached ones by the eviction rule; what is left beyond the new end
// moves to free pages.
type ResizePool struct {
	Header
	Pool  messages.PoolID
	Pages int
	Now   time.Duration // as in PoolWork

	Victims []Victim
	Moves   []PageMoved
	Counts  PoolPages
}

// PageMoved is one page that got a new number. A new number may be the page of
// a victim, so victims are read before anything is moved.
type PageMoved struct {
	messages.PageMove
	Block BlockID // what the page caches, or NoBlock
	Held  bool    // by a sequence or a pin
}

// ResizeDevice gives the pools their new device memory, those that shrink
// first, when the tickets have passed. It is the one message whose answer
// waits for the device.
type ResizeDevice struct {
	Header
	Pages []int // by PoolID
	Waits []messages.Ticket

	Err error
}
