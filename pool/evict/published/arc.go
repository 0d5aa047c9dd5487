package published

import "github.com/kvactor/kvactor/pool/evict"

// The parts of arc: blocks used once since they came, and those used more often.
const (
	once uint8 = iota
	often
)

// arc balances blocks used once and blocks used more often, both in order of use, by the hits
// among the blocks that were evicted from them (Megiddo and Modha, "ARC: a self-tuning, low
// overhead replacement cache", FAST 2003).
//
// |once| + |its history| ≤ capacity, and no more than twice the capacity are known in all.
type arc struct {
	perBlock
	evicted [2]history // from once and from often
	// target is how long once should be. A use of a block in the history of once says that it
	// was too short, one in that of often that it was too long.
	target    int
	fromOften bool // the latest new contents were in the history of often
}

func newARC(c *evict.Core, o evict.Options) evict.Policy {
	a := &arc{}
	a.setup(c, o, a)
	return a
}

// use makes contents those used last of their part.
func (a *arc) use(p int32, fresh bool) {
	r := &a.pages[p]
	r.part, r.rank = often, a.next()
	if !fresh {
		return
	}
	n, m := a.evicted[once].size(), a.evicted[often].size()
	a.fromOften = false
	switch {
	case a.evicted[once].remove(r.identity):
		a.target = min(a.capacity, a.target+max(1, m/n))
	case a.evicted[often].remove(r.identity):
		a.target = max(0, a.target-max(1, n/m))
		a.fromOften = true
	default:
		r.part = once
	}
}

// leave remembers contents.
func (a *arc) leave(p int32) {
	r := &a.pages[p]
	a.evicted[r.part].add(r.identity, 2*a.capacity)
}

// added bounds the histories, that of once first.
func (a *arc) added(*blockQueue) {
	n, m := a.waiting[once], a.waiting[often]
	a.evicted[once].shrink(a.capacity - n)
	a.evicted[often].shrink(2*a.capacity - n - m - a.evicted[once].size())
}

// first takes from once what is beyond its target. Pages that are being filled count for once.
func (a *arc) first(q *blockQueue) int32 {
	n, from := a.waiting[once]+a.core.Filling(), often
	if n > a.target || n == a.target && a.fromOften {
		from = once
	}
	if p := q.top(from); p != evict.None {
		return p
	}
	return q.top(once + often - from)
}
