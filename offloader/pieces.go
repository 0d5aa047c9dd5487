package offloader

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// pieces are the sole pages of host memory where the policy of the device pool predicts the next use. Among pages of
// the lowest priority those of the piece of least value are displaced first, the deepest page of it first.
//
// A piece is pages that the device pool evicted from one piece of its own. The device pool computes the value, by what it
// knows now (protocol.Ranking). Values change with time, so there is no heap of them.
//
//	piece   features, last use                   pages that are pinned or protected: they belong to the piece, and are not listed
//	list    head ─ page ─ page ─ page ─ tail     pages that may be displaced: a piece that has some is in a level
//
// What is known of a page is that of its piece, whose number is in the page's record, see hostPage.heapIndex. So a page takes only the four bytes
// of its links, as in an order without pieces, and a piece 40, 4 in its level, and room for an eighth more pieces. That a page keeps
// its features and its last use itself was rejected: it took 28 bytes more for each page.
type pieces struct {
	*links
	// A piece exists as long as pages belong to it: all[n].pages > 0 exactly if n > 0 is not unused.
	all    []piece // by number, from 1 on
	unused int32   // the first unused number, noPiece: none; spot is the next one
	// latest is the piece that a page has joined or changed last: the next page often belongs to it. It may be gone, and its number that of
	// another piece, so who joins it compares.
	latest int32
	// ranking is the device pool's, only while the offloader decides about the victims of a Move: it is lent.
	ranking protocol.Ranking
	byDepth bool   // what ranking.ByDepth says
	now     int64  // the clock of ranking, when it was last known
	round   uint64 // of the decisions under way: values do not change within one
}

// knowledge is what the device pool knew of a page when it evicted it, and what has changed since.
type knowledge struct {
	features uint64
	last     int64 // use, by the clock of the device pool's policy
}

// piece is sole pages of which the same is known. Those that may be displaced are in a list; they have one priority and
// one tenant. Pages with other ones leave it when they come to their order, see pieceFor.
type piece struct {
	knowledge
	pageList        // the page that is displaced first is its head
	level    *level // nil: the list is empty
	spot     int32  // index in the members of its level; of an unused number: the next one
	pages    int32  // that belong to the piece
}

// newPieces makes an order of pages.
func newPieces(k *links) *pieces {
	return &pieces{links: k, all: make([]piece, 1)}
}

// noPiece stands for no piece. Its complement is also the heapIndex of a page that is in no heap.
const noPiece int32 = 0

// pieceOf is the piece that a sole page belongs to. That of other pages is noPiece, or means nothing while they are in a heap.
func (pg *hostPage) pieceOf() int32 {
	if pg.heapIndex >= 0 {
		return pg.heapIndex
	}
	return ^pg.heapIndex
}

// noteContents notes what the device pool knows of the contents of a page that becomes a sole one and is in no order.
//
// Little is known of victims without a piece, as those of a pool that shrinks, of all contents after a restart, and of those from a
// store. Their order is that of their use.
func (s *pieces) noteContents(p messages.PageID, e *protocol.EvictedPiece, use protocol.Use) {
	k := knowledge{last: int64(use.Moment())}
	if e != nil {
		k = knowledge{e.Features, e.Last}
	}
	s.setKnowledge(p, k)
}

// use makes the last use of a page, which is in no order, this moment.
func (s *pieces) use(p messages.PageID) {
	k := s.all[s.pages[p].pieceOf()].knowledge
	k.last = max(k.last, s.now)
	s.setKnowledge(p, k)
}

// setKnowledge changes what is known of a page, which is in no order. The page joins the latest piece, if the same is
// known of that. Otherwise its own piece changes, if it is alone there, or it joins a new one.
//
// Pages of one prompt come one after the other, so the latest piece is nearly always the right one. A search for another one of
// which the same is known was not tried: two pieces where one would do cost memory and a comparison, and no decision.
func (s *pieces) setKnowledge(p messages.PageID, k knowledge) {
	n := s.pages[p].pieceOf()
	if n != noPiece && s.all[n].knowledge == k {
		return
	}
	if q := &s.all[s.latest]; q.pages == 0 || q.knowledge != k {
		if q := &s.all[n]; q.pages == 1 {
			q.knowledge, s.latest = k, n
			return
		}
		s.latest = s.newPiece(k)
	}
	s.assign(p, s.latest)
}

// assign makes a page, which is in no order, belong to a piece, and to no other one.
func (s *pieces) assign(p messages.PageID, n int32) {
	s.all[n].pages++
	s.leave(p)
	s.pages[p].heapIndex = ^n
}

// leave makes a page, which is in no order, belong to no piece. A piece without pages is gone.
func (s *pieces) leave(p messages.PageID) {
	n := s.pages[p].pieceOf()
	if n == noPiece {
		return
	}
	s.pages[p].heapIndex = ^noPiece
	if q := &s.all[n]; q.pages > 1 {
		q.pages--
		return
	}
	s.all[n] = piece{spot: s.unused}
	s.unused = n
}

// await notes that a request which waits is going to use contents of host memory. The listed pages of a piece from the
// deepest of them on become a piece of its own, unless they are all its pages.
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
		n := h.pages[p].pieceOf()
		if h.pages[p].heapIndex < 0 {
			k := s.all[n].knowledge
			k.features = pm.Ranking.Await(k.features)
			s.setKnowledge(p, k)
			continue
		}
		for ; i < len(blocks); i++ {
			next := h.mustSole(blocks[i], "wait")
			if h.pages[next].heapIndex != n {
				break
			}
			if s.pageBefore(next, p) {
				p = next
			}
		}
		q := &s.all[s.cut(n, p)]
		q.features = pm.Ranking.Await(q.features)
	}
}

// cut makes the listed pages of a piece from one on a piece of their own, unless they are all its pages, and returns it. It is in no front.
//
// Pages that are not listed stay behind: what is known of them does not change with that of the others.
func (s *pieces) cut(n int32, from messages.PageID) int32 {
	pages := int32(0)
	for p := from; p != messages.NoPage; p = s.next[p] {
		pages++
	}
	if q := &s.all[n]; q.pages == pages {
		// Its value is going to change.
		q.level.front.remove(n)
		return n
	}
	m := s.newPiece(s.all[n].knowledge)
	// The list is divided in front of the page: s.prev(from) ends one half, from begins the other.
	q, part := &s.all[n], &s.all[m]
	part.tail, part.pages = q.tail, pages
	s.join(&q.pageList, s.prev(from), messages.NoPage)
	s.join(&part.pageList, messages.NoPage, from)
	for p := from; p != messages.NoPage; p = s.next[p] {
		s.pages[p].heapIndex = m
	}
	q.pages -= pages
	s.addToLevel(m, q.level)
	if q.head == messages.NoPage {
		s.removeFromLevel(n)
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

// push adds a page to the list of its piece, and a piece whose list was empty to the level of the priority among some. It compares the
// piece then.
//
// The page goes to its place among those of the piece by a search from either end. A piece has few pages, and its order is the
// depth alone, so a heap of them would be slower.
func (s *pieces) push(levels *levels, p messages.PageID) {
	l := levels.of(s.pages[p].priority)
	n := s.pieceFor(l, p)
	q := &s.all[n]
	s.pages[p].heapIndex = n
	isNew := q.level == nil
	if isNew {
		s.addToLevel(n, l)
	}
	// Victims of one piece come from the deepest on, and pages whose priority changes from the first on.
	before := q.tail
	if q.head != messages.NoPage && s.pageBefore(p, q.head) {
		before = messages.NoPage
	}
	for before != messages.NoPage && s.pageBefore(p, before) {
		before = s.prev(before)
	}
	s.insert(&q.pageList, before, p)
	if before == messages.NoPage && !isNew {
		l.front.chosen = noPiece // the heads decide between pieces of equal value, and one has changed
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

// pieceFor is the piece that a page joins which comes to a level: its own, unless that has pages in another one, or the latest
// one, or a new one.
func (s *pieces) pieceFor(l *level, p messages.PageID) int32 {
	n := s.pages[p].pieceOf()
	if n == noPiece {
		panic(fmt.Sprintf("offloader: host page %d comes to an order, and nothing is noted of its contents", p))
	}
	if q := &s.all[n]; q.level == nil || q.level == l {
		return n
	}
	k := s.all[n].knowledge
	if q := &s.all[s.latest]; q.pages == 0 || q.knowledge != k || q.level != nil && q.level != l {
		s.latest = s.newPiece(k)
	}
	s.assign(p, s.latest)
	return s.latest
}

// newPiece makes a piece, to which no page belongs yet.
func (s *pieces) newPiece(k knowledge) int32 {
	n := s.unused
	if n != noPiece {
		s.unused = s.all[n].spot
	} else {
		n = int32(len(s.all))
		if len(s.all) == cap(s.all) {
			// It grows by an eighth, where append would leave up to half of it empty.
			s.all = append(make([]piece, 0, len(s.all)+len(s.all)/8+4), s.all...)
		}
		s.all = append(s.all, piece{})
	}
	s.all[n] = piece{knowledge: k, pageList: pageList{messages.NoPage, messages.NoPage}}
	return n
}

// addToLevel makes a piece a member of a level.
func (s *pieces) addToLevel(n int32, l *level) {
	q := &s.all[n]
	q.level, q.spot = l, int32(len(l.members))
	l.members = append(l.members, n)
}

// remove removes a page from the list of its piece. It still belongs to it.
func (s *pieces) remove(p messages.PageID) {
	n := s.pages[p].pieceOf()
	q := &s.all[n]
	s.links.remove(&q.pageList, p)
	s.pages[p].heapIndex = ^n
	if q.head == messages.NoPage {
		s.removeFromLevel(n)
	}
}

// removeFromLevel takes a piece whose list is empty out of its level, of which the last member takes its index.
func (s *pieces) removeFromLevel(n int32) {
	q := &s.all[n]
	l := q.level
	l.front.remove(n)
	last := len(l.members) - 1
	moved := l.members[last]
	l.members[q.spot], s.all[moved].spot = moved, q.spot
	l.members = l.members[:last]
	q.level = nil
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
