package pool

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// none ends lists and stands for no page in links.
const none int32 = -1

// place says where a page is linked.
type place uint8

const (
	used   place = iota // nowhere: a sequence or a pin holds it
	free                // in the list of free pages
	listed              // cached, in the list of its level
	heaped              // cached, in the heap of its level
)

// page is all that is known of one page: 32 bytes, two of them in a cache line.
//
// Only a page that is used has holders, and only one that is not is linked, so
// the same fields serve for both; place tells which they are.
//
//	             used        free     listed                heaped
//	prev         references           the page before       left sibling or parent
//	next         pins        next     the page behind       right sibling
//	child        shelters             a hint, see hints.go  the first child
type page struct {
	use               protocol.Use     // the latest that its contents have had; 0: none yet
	block             protocol.BlockID // what it caches, or NoBlock
	depth             int32            // of the block in its prefix
	prev, next, child int32
	priority          messages.Priority // unless it has a term
	place             place             // used, exactly if references or pins > 0
}

// references is how many sequences hold the page.
func (g *page) references() int32 {
	if g.place != used {
		return 0
	}
	return g.prev
}

// pins is how many pins hold the page: some only if it caches a block.
func (g *page) pins() int32 {
	if g.place != used {
		return 0
	}
	return g.next
}

// shelters is how many of the references are chunked prefills'.
func (g *page) shelters() int32 {
	if g.place != used {
		return 0
	}
	return g.child
}

// hold adds holders to a used page.
func (g *page) hold(references, pins, shelters int32) {
	g.prev += references
	g.next += pins
	g.child += shelters
}

// let makes a page used, and nobody hold it yet.
func (g *page) let() { g.place, g.prev, g.next, g.child = used, 0, 0, 0 }

// maxShelters is how many chunked prefills may hold one page.
const maxShelters = 1<<16 - 1

// cached tells whether the page is in the order of eviction.
func (g *page) cached() bool { return g.place == listed || g.place == heaped }

// stored tells whether the page caches a block, cached or used.
func (g *page) stored() bool { return g.block != protocol.NoBlock }

// idle tells whether nobody holds the page.
func (g *page) idle() bool { return g.references() == 0 && g.pins() == 0 }

// held tells whether the page counts as held: by a pin or a sequence, but for
// the one chunked prefill that shelters it under its reserve.
func (g *page) held() bool {
	return g.pins() > 0 || g.references() > min(1, g.shelters())
}

// forget makes a used page cache nothing; pins end with the contents.
func (g *page) forget() {
	g.block, g.depth, g.priority, g.use, g.next = protocol.NoBlock, 0, 0, 0, 0
}

// leave is Pool.victim without quotas, written field by field: a struct put together on the stack
// first costs more than all else there is to taking a page.
func (g *page) leave(i int32, v *protocol.Victim) {
	v.Page, v.Block, v.Depth, v.Priority, v.Tenant, v.Use = messages.PageID(i), g.block, g.depth, g.priority, protocol.OtherTenants, g.use
}
