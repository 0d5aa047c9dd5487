package protocol

import "github.com/kvactor/kvactor/messages"

// Close ends the engine; what is queued before it is still served.
type Close struct {
	LeakedPages int
	Err         error
}

// Audit asks an actor for its invariants; the coordinator compares what they
// say of each other.
type Audit struct {
	Header
	Pool messages.PoolID
	// References, by page, are those that the coordinator knows of, and Tenants
	// whose they are: the pool compares them with its own.
	References []int32
	Tenants    []Tenant
	Pins       []int32

	// Attached, answered by the tree: [pool][i]; by a pool: [0][i].
	Attached [][]PageBlock
	Problem  error
}

// PageBlock says that a device page caches a block.
type PageBlock struct {
	Page  messages.PageID
	Block BlockID
}
