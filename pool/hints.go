package pool

import "github.com/kvactor/kvactor/messages"

// The records of a pool with millions of pages do not fit into the processor's
// caches, and the address of the next page of a list is known only when the record
// before has been read. Each victim would then cost a cache miss, one after the
// other. So a listed page may have a hint: the page hintDistance places behind it in
// the list. takeReading reads that record as well, and the misses overlap.
//
// A processor runs only a few pages ahead of a read that it waits for, so few misses
// overlap when each page is taken together with the read of its hint. In a pool beyond
// the last cache the records that the hints of a group of pages name are therefore
// prefetched together, before the group is taken. A hint leads two groups ahead, so that
// they have the time of two groups to arrive:
//
//	list    │ group: in the caches │ next: being fetched │ asked for now │ …
//	          └── hint ────────────────────────────────────▶
//
// A hint is kept in the field child, which listed pages do not use otherwise. It
// decides nothing. If pages leave the list or change their level, the hint fetches a
// record that is not needed.

// hintDistance is how far ahead a hint leads, and groupSize the pages of a group. With ten
// million scattered pages a page costs 11.3 ns so; 12.0 in groups of 16 with hints that lead
// two groups ahead, 12.2 in groups of 8 that lead three or four. A processor has a limited
// number of misses under way, 24 on the EPYC that this was measured on: hints that lead
// further wait for one another.
const (
	hintDistance = 2 * groupSize
	groupSize    = 12
)

// hintedPages is the size of a pool from which hints pay: a megabyte of records. In
// a smaller pool the records are in the caches anyway.
const hintedPages = 1 << 15

// groupedPages is the size of a pool from which groups pay: 16 MB of records. In a smaller
// pool a loop more costs more than the misses.
const groupedPages = 1 << 19

// fetchGroup returns the end of the next group of pages, of n pages; page at is the next, and
// k pages have been taken. It fetches the records that the hints of the group name, or says
// that they are to be read with its pages. In a pool without hints all pages are one group.
//
// Pages of one run mostly adjoin, and processors fetch what adjoins by themselves: such a
// group is longer, so that it costs nothing to ask.
func (c *cache) fetchGroup(at int32, k, n int) (end int, reads bool) {
	pages := c.pages
	if !c.whole.hinted {
		return n, false
	}
	d := pages[at].child - at
	if near := d >= -2*hintDistance && d <= 2*hintDistance; near || !c.whole.grouped {
		return min(n, k+16*groupSize), !near
	}
	end = min(n, k+groupSize)
	var hints [groupSize]int32
	group := hints[:end-k]
	for i := range group {
		if at == none {
			break
		}
		g := &pages[at]
		// No hint is page 0, which is fetched then, so that fetch has no branch.
		group[i], at = max(0, g.child), g.next
	}
	c.fetch(group)
	return end, false
}

// recent holds the pages last appended to the lists of an order, the latest last.
// Their hints are set when the next run is appended.
type recent struct {
	pages [hintDistance]int32
	n     int
}

// extendHints sets the hints of the pages that were appended before a run, which has been
// appended to a list from the last page to the first. The pages of the run have theirs, where
// they lead to pages of the run (see run.append). NoPage entries, and pages that were freed
// instead, are passed over.
func (o *order) extendHints(run []messages.PageID) {
	r := &o.recent
	// The page that was appended hintDistance places after the k-th recent one.
	for k, at := 0, len(run)-1-(hintDistance-r.n); k < r.n && at >= 0; k, at = k+1, at-1 {
		o.hint(r.pages[k], run[at])
	}
	o.remember(run)
}

// hint sets the hint of page i, unless the page has left its list.
func (o *order) hint(i int32, to messages.PageID) {
	if i != none && to != messages.NoPage && o.pages[i].state == listed {
		o.pages[i].child = int32(to)
	}
}

// remember keeps the last pages of a run, and those before if the run is short.
func (o *order) remember(run []messages.PageID) {
	r := &o.recent
	last := min(len(run), hintDistance)
	kept := min(r.n, hintDistance-last)
	copy(r.pages[:kept], r.pages[r.n-kept:r.n])
	for k := range last {
		r.pages[kept+k] = int32(run[last-1-k])
	}
	r.n = kept + last
}
