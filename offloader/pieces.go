package offloader

import (
	"cmp"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// pieces are the sole pages of host memory where the policy of the device pool predicts the next use. Among pages of
// the lowest priority those of the piece of least value are displaced first, the deepest page of it first.
//
// A piece is pages that the device pool evicted from one piece of its own. The device pool computes the value, by what it
// knows now (protocol.Ranking). Values change with time, so there is no heap of them.
type pieces struct {
	pages  []hostPage
	places []place // by page; of a page that is not sole it means nothing
	// A piece exists as long as it has pages: all[n].level ≠ nil exactly if n > 0 is not in unused.
	all    []piece // by number, from 1 on
	unused []int32 // numbers
	latest int32   // the piece that was made last, which may be gone: the next page often belongs to it
	// ranking is the device pool's, only while the offloader decides about the victims of a Move: it is lent.
	ranking protocol.Ranking
	byDepth bool   // what ranking.ByDepth says
	now     int64  // the clock of ranking, when it was last known
	round   uint64 // of the decisions under way: values do not change within one
}

// place is what the device pool knew of a sole page when it evicted it, and where the page is in its piece.
type place struct {
	features   uint64 // of a page that is in a piece: when it came there
	last       int64  // use, by the clock of the device pool's policy
	piece      int32  // of a page that is in no order: the one that it was in, which may be gone
	next, prev messages.PageID
}

// piece is a list of sole pages with the same features, last use, priority and tenant. It exists as long as it has pages,
// and is a member of the level of its priority. The zero piece is unused.
type piece struct {
	features   uint64
	last       int64
	head, tail messages.PageID // the page that is displaced first, and the last one
	level      *level          // nil: unused
	spot       int32           // index in the members of its level
}

// newPieces makes the order of so many host pages.
func newPieces(pages []hostPage) *pieces {
	return &pieces{pages: pages, places: make([]place, len(pages)), all: make([]piece, 1)}
}

// noteVictim notes what the device pool knows of a victim that is going to be a sole page, which is in no order.
//
// Little is known of victims without a piece, as those of a pool that shrinks and all after a restart. Their order is that of
// their use.
func (s *pieces) noteVictim(p messages.PageID, e *protocol.EvictedPiece, use protocol.Use) {
	s.places[p] = place{last: int64(use.Moment())}
	if e != nil {
		s.places[p] = place{features: e.Features, last: e.Last}
	}
}

// use makes the last use of a page, which is in no order, this moment.
func (s *pieces) use(p messages.PageID) { s.places[p].last = max(s.places[p].last, s.now) }

// await notes that a request which waits is going to use contents of host memory. The part of a piece up to the deepest of them
// becomes a piece of its own, unless it is the whole.
//
// Where nothing predicts the next use waits do not count, as in the device pools. Taking each page to a piece of its facts
// was rejected: pages of several prompts come together there, and to find the places of a prompt's pages took half a millisecond.
// So was keeping whole pieces, as the device does: agents hit half a point less.
func (h *hostPool) await(pm *protocol.PoolMove) {
	s, blocks := h.pieces, pm.Awaited
	if s == nil || pm.Ranking == nil {
		return
	}
	for i := 0; i < len(blocks); {
		p := h.mustSole(blocks[i], "wait")
		i++
		f := &s.places[p]
		if h.pages[p].heapIndex < 0 {
			f.features = pm.Ranking.Await(f.features)
			continue
		}
		for n := f.piece; i < len(blocks); i++ {
			next := h.mustSole(blocks[i], "wait")
			if h.pages[next].heapIndex < 0 || s.places[next].piece != n {
				break
			}
			if s.pageBefore(next, p) {
				p = next
			}
		}
		q := &s.all[s.cut(f.piece, p)]
		q.features = pm.Ranking.Await(q.features)
	}
}

// cut makes the pages of a piece from one on a piece of their own, unless they are all, and returns it. It is in no front.
func (s *pieces) cut(n int32, from messages.PageID) int32 {
	q := &s.all[n]
	if q.head == from {
		q.level.front.remove(n)
		return n
	}
	m := s.newPiece(piece{features: q.features, last: q.last, head: from, tail: q.tail, level: q.level})
	before := s.places[from].prev
	s.all[n].tail, s.places[before].next, s.places[from].prev = before, messages.NoPage, messages.NoPage
	for p := from; p != messages.NoPage; p = s.places[p].next {
		s.places[p].piece = m
	}
	return m
}

// rankBy makes the values those of a ranking, or none. A ranking is lent for the decisions of one Move.
func (s *pieces) rankBy(r protocol.Ranking) {
	s.round++
	if s.ranking = r; r != nil {
		s.now, s.byDepth = r.Now(), r.ByDepth()
	}
}

// push adds a page to the level of its priority among some, and compares the piece if it is new.
//
// The page goes to its place among those of the piece by a search from either end. A piece has few pages, and its order is the
// depth alone, so a heap of them would be slower.
func (s *pieces) push(levels *levels, p messages.PageID) {
	l := levels.of(s.pages[p].priority)
	n := s.pieceFor(l, p)
	f, q := &s.places[p], &s.all[n]
	f.piece = n
	s.pages[p].heapIndex = 0
	isNew := q.head == messages.NoPage
	// Victims of one piece come from the deepest on, and pages whose priority changes from the first on.
	before := q.tail
	if q.head != messages.NoPage && s.pageBefore(p, q.head) {
		before = messages.NoPage
	}
	for before != messages.NoPage && s.pageBefore(p, before) {
		before = s.places[before].prev
	}
	f.prev, f.next = before, q.head
	if before == messages.NoPage {
		q.head = p
	} else {
		f.next, s.places[before].next = s.places[before].next, p
	}
	if f.next == messages.NoPage {
		q.tail = p
	} else {
		s.places[f.next].prev = p
	}
	if isNew && s.ranking != nil {
		s.offer(l, n)
	}
}

// pageBefore tells whether page a of a piece is displaced before page b.
func (s *pieces) pageBefore(a, b messages.PageID) bool {
	x, y := &s.pages[a], &s.pages[b]
	return x.depth > y.depth || x.depth == y.depth && x.block < y.block
}

// pieceFor is the piece of a level that a page joins: the one that it was in before, the one that was made last, or a new one.
func (s *pieces) pieceFor(l *level, p messages.PageID) int32 {
	f := &s.places[p]
	for _, n := range [2]int32{f.piece, s.latest} {
		if q := &s.all[n]; q.level == l && q.features == f.features && q.last == f.last {
			return n
		}
	}
	s.latest = s.newPiece(piece{features: f.features, last: f.last, head: messages.NoPage, tail: messages.NoPage, level: l})
	return s.latest
}

// newPiece adds a piece to its level.
func (s *pieces) newPiece(q piece) int32 {
	n := int32(len(s.all))
	if k := len(s.unused); k > 0 {
		n, s.unused = s.unused[k-1], s.unused[:k-1]
	} else {
		s.all = append(s.all, piece{})
	}
	q.spot = int32(len(q.level.members))
	s.all[n] = q
	q.level.members = append(q.level.members, n)
	return n
}

// remove removes a page from its piece.
func (s *pieces) remove(p messages.PageID) {
	f := &s.places[p]
	q := &s.all[f.piece]
	f.features = q.features // a wait may have changed them
	if f.prev == messages.NoPage {
		q.head = f.next
	} else {
		s.places[f.prev].next = f.next
	}
	if f.next == messages.NoPage {
		q.tail = f.prev
	} else {
		s.places[f.next].prev = f.prev
	}
	s.pages[p].heapIndex = -1
	if q.head == messages.NoPage {
		s.end(f.piece)
	}
}

// end ends a piece without pages. The last member of its level takes its index.
func (s *pieces) end(n int32) {
	q := &s.all[n]
	l := q.level
	l.front.remove(n)
	last := len(l.members) - 1
	moved := l.members[last]
	l.members[q.spot], s.all[moved].spot = moved, q.spot
	l.members = l.members[:last]
	*q = piece{}
	s.unused = append(s.unused, n)
}

// levels are the pieces of one tenant, by priority. There are as many levels as there have been priorities, few.
type levels struct{ list []*level }

// level is the pieces of one priority.
type level struct {
	priority messages.Priority
	members  []int32
	front    front
}

// of is the level of a priority, which is made if there is none.
func (r *levels) of(priority messages.Priority) *level {
	i, ok := slices.BinarySearchFunc(r.list, priority, func(l *level, p messages.Priority) int { return cmp.Compare(l.priority, p) })
	if !ok {
		r.list = slices.Insert(r.list, i, &level{priority: priority})
	}
	return r.list[i]
}

// first is the page of some levels that is displaced first, or NoPage.
func (s *pieces) first(levels *levels) messages.PageID {
	for _, l := range levels.list {
		if len(l.members) > 0 {
			return s.all[s.choose(l)].head
		}
	}
	return messages.NoPage
}
