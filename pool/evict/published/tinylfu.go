package published

import "github.com/kvactor/kvactor/pool/evict"

// The parts of tinyLFU. Probation and protected are a segmented LRU: blocks come in by
// probation and are protected from their next use on.
const (
	window uint8 = iota
	probation
	protected
)

const (
	// maxUses is where counts of uses saturate, as they do in four bits.
	maxUses = 15
	// agingUses is how many uses, for each page, halve all counts.
	agingUses = 10
	// windowPercent and protectedPercent are the shares that the paper found best for most
	// traces: of the pages, and of those that are not the window's.
	windowPercent, protectedPercent = 1, 80
)

// tinyLFU passes new blocks through a small window. What leaves the window is kept only if it
// was used more often than the block that would be evicted for it (Einziger, Friedman and
// Manes, "TinyLFU: a highly efficient cache admission policy", ACM Transactions on Storage
// 2017).
//
// The cache cannot refuse a block that has a page, so one that would not be admitted is the
// next victim. Uses are counted exactly, where the paper estimates them by a sketch.
type tinyLFU struct {
	perBlock
	uses    map[uint64]uint8 // by identity, of what was used since counts were halved, or before
	counted int              // uses since then
	full    bool             // pages have been evicted
}

func newTinyLFU(c *evict.Core, o evict.Options) evict.Policy {
	t := &tinyLFU{uses: map[uint64]uint8{}}
	t.setup(c, o, t)
	return t
}

// windowLimit, mainLimit and protectedLimit are in pages.
func (t *tinyLFU) windowLimit() int    { return max(1, t.capacity*windowPercent/100) }
func (t *tinyLFU) mainLimit() int      { return t.capacity - t.windowLimit() }
func (t *tinyLFU) protectedLimit() int { return t.mainLimit() * protectedPercent / 100 }

// use counts, and protects what has passed the window.
func (t *tinyLFU) use(p int32, fresh bool) {
	r := &t.pages[p]
	r.uses = min(r.uses+1, maxUses)
	if r.identity != 0 {
		t.uses[r.identity] = min(t.uses[r.identity]+1, maxUses)
		t.age()
	}
	r.rank = t.next()
	switch {
	case fresh:
		r.part = window
	case r.part == probation:
		r.part = protected
	}
}

// age halves all counts after enough uses.
func (t *tinyLFU) age() {
	if t.counted++; t.counted < agingUses*t.capacity {
		return
	}
	t.counted = 0
	for id, n := range t.uses {
		if t.uses[id] = n / 2; n < 2 {
			delete(t.uses, id)
		}
	}
}

// count is how often contents were used lately.
func (t *tinyLFU) count(p int32) int32 {
	if id := t.pages[p].identity; id != 0 {
		return int32(t.uses[id])
	}
	return t.pages[p].uses
}

// added keeps protected within its limit, and before any page is evicted the window.
func (t *tinyLFU) added(q *blockQueue) {
	if p := q.top(protected); p != evict.None && t.waiting[protected] > t.protectedLimit() {
		t.shift(p, probation, t.next())
	}
	rest := t.waiting[probation] + t.waiting[protected]
	p := q.top(window)
	if !t.full && p != evict.None && t.waiting[window] > t.windowLimit() && rest < t.mainLimit() {
		t.shift(p, probation, t.next())
	}
}

// first compares the oldest page of a window that is full with the next victim of the rest.
// The one used less often goes, of equal ones the new one, so that a scan replaces nothing.
// Pages that are being filled count for the window.
func (t *tinyLFU) first(q *blockQueue) int32 {
	t.full = true
	for {
		candidate, victim := q.top(window), q.top(probation)
		if victim == evict.None {
			victim = q.top(protected)
		}
		switch {
		case candidate == evict.None:
			return victim
		case victim == evict.None:
			return candidate
		case t.waiting[window]+t.core.Filling() < t.windowLimit():
			return victim
		case t.count(candidate) <= t.count(victim):
			return candidate
		}
		t.shift(candidate, probation, t.next())
		if t.waiting[probation]+t.waiting[protected] > t.mainLimit() {
			return victim
		}
	}
}
