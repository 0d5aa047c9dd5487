package pool

import "github.com/kvactor/kvactor/messages"

// A pool of millions of pages does not fit into a cache, and a list says where
// its next page is only when the one before has arrived: each victim would cost
// a miss of its own, one after the other. So a page that is listed in a run has a
// hint, the page that is listed ahead places later; whoever takes pages from the
// list's head asks for that one's record too, and the misses overlap. The hint
// lies where a heap has the first child. It decides nothing: pages that leave
// the list in between, or come to another level, make a hint useless, not wrong.

// ahead is how far a hint leads: with some 12 misses under way at a time a
// processor takes a page in a tenth of a miss, and not all of them hit.
const ahead = 16

// farPages is how many pages a pool has whose records a processor has not at hand
// anyway: a megabyte of them. In a smaller one hints would only cost the writing.
const farPages = 1 << 15

// recent are the last pages that came to the lists of an order, the latest last:
// the next run continues their hints.
type recent struct {
	pages [ahead]int32
	n     int
}

// join gives hints to the pages of a run that has come to the list from the last
// one to the first, and to those before it. NoPage entries, and pages that were
// freed instead, are left out: their neighbours have hints all the same.
func (o *order) join(run []messages.PageID) {
	r := &o.recent
	for k := range r.n {
		// The page that comes ahead places after the k-th of the recent ones.
		if at := len(run) - 1 - (ahead - r.n + k); at >= 0 {
			o.hint(r.pages[k], run[at])
		}
	}
	for i := len(run) - 1; i >= ahead; i-- {
		o.hint(int32(run[i]), run[i-ahead])
	}
	o.remember(run)
}

// hint makes page i, if it is still listed, lead to another.
func (o *order) hint(i int32, to messages.PageID) {
	if i != none && to != messages.NoPage && o.pages[i].place == listed {
		o.pages[i].child = int32(to)
	}
}

// remember keeps the last pages of a run, and of those before if it is short.
func (o *order) remember(run []messages.PageID) {
	r := &o.recent
	last := min(len(run), ahead)
	kept := min(r.n, ahead-last)
	copy(r.pages[:kept], r.pages[r.n-kept:r.n])
	for k := range last {
		r.pages[kept+k] = int32(run[last-1-k])
	}
	r.n = kept + last
}
