package pool

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// none ends lists and stands for no page in links.
const none int32 = -1

// pageState says whether a page is used, cached or free, and how it is linked.
type pageState uint8

const (
	used   pageState = iota // held by a sequence or a pin, in no list
	free                    // in the list of free pages
	listed                  // cached, in the list of its level or term
	heaped                  // cached, in the heap of its level or term
)

// timed is in the place of the priority in the record of a page that has a term.
const timed = messages.MaxPriority + 1

// page is the record of one page: 32 bytes, two of them in a cache line.
//
// Only a used page has holders, and only a page that is not used is linked, so
// the same fields serve for both. The state tells which they are:
//
//	             used        free     listed                heaped
//	prev         references           the page before       left sibling or parent
//	next         pins        next     the page behind       right sibling
//	child                                                   the first child
//	covered      covered references
//
// With the policy forecast child is the piece of the page in every state.
type page struct {
	use               protocol.Use     // the latest use of the contents; 0: none yet
	block             protocol.BlockID // the block that the page caches, or NoBlock
	depth             int32            // of the block in its prefix
	prev, next, child int32
	priority          messages.Priority // timed, if the page has a term, see terms.go
	state             pageState         // used, exactly if references or pins > 0
	covered           uint16            // see coveredReferences
}

// references is the number of sequences that hold the page.
func (g *page) references() int32 {
	if g.state != used {
		return 0
	}
	return g.prev
}

// pins is the number of pins on the page, 0 unless it caches a block.
func (g *page) pins() int32 {
	if g.state != used {
		return 0
	}
	return g.next
}

// coveredReferences is how many of the references belong to chunked prefills and are covered by their reservations, at most all of them.
func (g *page) coveredReferences() int32 {
	if g.state != used {
		return 0
	}
	return int32(g.covered)
}

// hold adds holders to a used page; negative numbers remove them.
//
// It checks nothing and counts nothing: the caller has compared with page.held before, and
// links the page if its last holder is gone.
func (g *page) hold(references, pins, covered int32) {
	g.prev += references
	g.next += pins
	g.covered += uint16(covered)
}

// unlinkAll makes a page used with no holders yet. The caller has taken it out
// of the list that it was in.
func (g *page) unlinkAll() { g.state, g.prev, g.next, g.covered = used, 0, 0, 0 }

// maxCovered is how many chunked prefills may hold one page.
const maxCovered = 1<<16 - 1

// cached tells whether the page may be evicted.
func (g *page) cached() bool { return g.state >= listed }

// stored tells whether the page caches a block. The page may be cached or used.
func (g *page) stored() bool { return g.block != protocol.NoBlock }

// unheld tells whether the page has no holders.
func (g *page) unheld() bool { return g.references() == 0 && g.pins() == 0 }

// heldOnce tells whether one reference alone holds the page.
func (g *page) heldOnce() bool { return g.references() == 1 && g.pins() == 0 }

// held tells whether the page counts as held. A page whose only holder is one
// chunked prefill with a reservation does not: the reservation counts it already.
func (g *page) held() bool {
	return g.pins() > 0 || g.references() > min(1, g.coveredReferences())
}

// clearContents makes a used page cache nothing. Pins belong to the contents, so
// they end as well.
func (g *page) clearContents() {
	g.block, g.depth, g.priority, g.use, g.next = protocol.NoBlock, 0, 0, 0, 0
}

// fillVictim is orders.victim for a pool without quotas and a page without a term.
// It writes field by field, because building the struct on the stack and copying
// it costs more than all other work of taking a page.
func (g *page) fillVictim(i int32, v *protocol.Victim) {
	v.Page, v.Block, v.Depth, v.Priority, v.Tenant, v.Use = messages.PageID(i), g.block, g.depth, g.priority, protocol.OtherTenants, g.use
}

// freePages is the list of the free pages of a pool, the last freed first. It is linked
// through the pages' records by next alone: pages leave it only at its head.
type freePages struct {
	pages []page // the pool's
	head  int32  // none: no page is free
	n     int
}

// reset empties the list of a pool with these pages.
func (f *freePages) reset(pages []page) { *f = freePages{pages: pages, head: none} }

// push adds a page without contents and holders.
func (f *freePages) push(i int32) {
	f.pages[i] = page{block: protocol.NoBlock, prev: none, next: f.head, state: free}
	f.head = i
	f.n++
}

// pop takes the page that was freed last; there must be one. The caller writes its record.
func (f *freePages) pop() int32 {
	i := f.head
	f.head = f.pages[i].next
	f.n--
	return i
}

// take takes at most n pages, gives them a record and appends them to a list.
//
// The link of a page is read before its record is overwritten. The list needs no repair
// behind the pages, since it is linked in one direction only.
func (f *freePages) take(n int, record page, ids []messages.PageID) []messages.PageID {
	n = min(n, f.n)
	ids = slices.Grow(ids, n)
	pages, at := f.pages, f.head
	for range n {
		g := &pages[at]
		ids = append(ids, messages.PageID(at))
		at = g.next
		*g = record
	}
	f.head = at
	f.n -= n
	return ids
}
