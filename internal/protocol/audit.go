package protocol

import "github.com/kvactor/kvactor/messages"

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
	Pool messages.PoolID
	// References, Tenants and Pins are the coordinator's view, by page. The pool
	// compares them with its own. A page of AnyTenant is not compared by tenant.
	References []int32
	Tenants    []Tenant
	Pins       []int32

	// Attached is answered: by the tree as [pool][i], by a pool as [0][i].
	Attached [][]PageBlock
	Problem  error
}

// PageBlock says that a device page caches a block.
type PageBlock struct {
	Page  messages.PageID
	Block BlockID
}
