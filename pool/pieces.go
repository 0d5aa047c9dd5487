package pool

import (
	"cmp"
	"slices"
	"time"

	"github.com/kvactor/kvactor/internal/forecast"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// pieces replaces the lists and heaps of the eviction order in a pool with the policy
// forecast. The policy predicts the next use of a piece, not of a page, so its cost is
// that of the pieces, of which there are 0.003 to 0.1 for each cached page on the traces
// of docs/policies.md.
//
// A level has two sets of pieces with cached pages: its leaves, which no other piece
// hangs on, and its inner pieces. Victims are taken from leaves as long as there are any,
// because blocks behind an evicted block cannot be matched.
//
//	prompt 1   blocks 0…9          piece A ─── piece B ─── piece C (the last block)
//	prompt 2   blocks 0…3, 10…12      └─────── piece D ─── piece E
//
// B and C are leaves of no use any more: prompt 2 has left the run of A and B in its
// middle, so B and C are superseded.
//
// The pieces know the pages' records and their orders, in whose levels they have their places.
type pieces struct {
	pages  []page // the pool's
	orders *orders
	policy *forecast.Policy
	all    []piece // by number, from 1 on
	free   []int32 // unused numbers
	// the last piece that lost a page to moveToPriority, and the piece that got it
	moved   struct{ from, to int32 }
	fetched int32                   // the piece that fetchNext has prefetched last
	waiting bool                    // a wait has begun in the current work
	taken   int                     // pages of the last victim, sweepGroup at most
	runs    []forecast.Run          // of the current request
	ends    []int                   // of its leading runs that were cached before it
	peeked  []candidate             // scratch space of peekVictims
	evicted []protocol.EvictedPiece // the pieces of the victims of the current work
	config  Forecast
}

// noPiece is the piece of a page that caches no block or has not been released yet. It is
// what the record of a page has that was taken.
const noPiece int32 = 0

// of is the piece of a page. For each piece n: all[n].pages is the number of pages i with of(i) = n.
//
// It is in the page's record, which an operation on the page reads anyway.
func (s *pieces) of(i int32) int32 { return s.pages[i].child }

// piece is a run of blocks of one prefix with the same last use, number of uses,
// priority and term: the part of a node of the radix tree that the pool caches.
type piece struct {
	list                       // its cached pages, the deepest first: the order of their eviction
	features forecast.Features // at the last use, and whether the piece is awaited since
	last     int64             // the policy's time of the last use
	watched  forecast.Entry    // the block of the piece that the policy watches, if any
	// A piece exists as long as pages > 0. It is in the leaves or inner pieces of its level
	// exactly if it has cached pages: (list.head ≠ none) = (spot ≥ 0).
	pages  int32 // that belong to the piece, cached and used
	parent link  // the piece of the block before the first
	end    link  // the piece that is the last block of a prompt and hangs on this one
	// branches ≤ children. A piece is a leaf exactly if children = 0; branches > 1 marks a
	// point where prompts part.
	children int32  // pieces that hang on this one
	branches int32  // children that are not superseded
	spot     int32  // index in the leaves or inner pieces of its level; −1: no cached pages
	term     int32  // of its pages; 0: none
	termSpot int32  // index in the pieces of the term
	born     uint32 // generation of the number, see link
	uses     uint8
	priority messages.Priority
	tenant   protocol.Tenant

	// a request has gone on from the block in front with other blocks, so this piece is not
	// expected to be used; its parent's branches leaves it out
	superseded bool
}

// link refers to a piece. Numbers are used again, so a link also has the generation; a
// piece that is gone need not be removed from the pieces that refer to it.
//
// The zero link refers to piece 0, which is never in use, so it needs no case of its own.
type link struct {
	piece int32
	born  uint32
}

// newPieces makes the pieces of a pool whose cached pages are in these orders. The policy
// bounds its history by the number of pages that the pool has now.
func newPieces(orders *orders, config Forecast) *pieces {
	for i := range orders.pages {
		orders.pages[i].child = noPiece // it may have been a hint
	}
	return &pieces{
		pages: orders.pages, orders: orders, policy: forecast.New(len(orders.pages), config.Span, config.Seed),
		all: make([]piece, 1), config: config,
	}
}

// open makes a piece without pages that is used now.
func (s *pieces) open(f forecast.Features, uses int) int32 {
	n := int32(len(s.all))
	if k := len(s.free); k > 0 {
		n, s.free = s.free[k-1], s.free[:k-1]
	} else {
		s.all = append(s.all, piece{})
	}
	// The generation goes up when a number is used and when it is given back, so a link never
	// matches a later piece with the same number.
	born := s.all[n].born + 1
	s.all[n] = piece{list: emptyList, last: s.policy.Now(), features: f, born: born, spot: -1, uses: uint8(min(uses, 200))}
	return n
}

// to is a link to a piece.
func (s *pieces) to(n int32) link { return link{n, s.all[n].born} }

// follow is the piece that a link refers to, noPiece if it is gone.
func (s *pieces) follow(k link) int32 {
	if s.all[k.piece].born != k.born {
		return noPiece
	}
	return k.piece
}

// assign makes a page, which belongs to no piece, belong to one.
func (s *pieces) assign(i, n int32) {
	s.pages[i].child = n
	s.all[n].pages++
}

// hang makes parent the piece in front of n, which has none.
//
// A piece with cached pages that gets its first child stops being a leaf, and moves to the
// other set of its level. This happens when a prompt goes on from cached blocks.
func (s *pieces) hang(n, parent int32) {
	if parent == noPiece {
		return
	}
	s.all[n].parent = s.to(parent)
	q := &s.all[parent]
	q.children++
	if !s.all[n].superseded {
		q.branches++
	}
	if q.children == 1 && q.spot >= 0 {
		l := s.levelOf(q)
		s.removeFrom(&l.leaves, q.spot)
		s.addTo(&l.inner, parent)
	}
}

// remove takes a page, which is in no list, out of its piece. A piece without pages
// is gone.
//
// It follows unlink, so the piece has no place in a level when its last page goes. Its
// children are not visited: their links to it stop matching.
func (s *pieces) remove(i int32) {
	n := s.of(i)
	if n == noPiece {
		return
	}
	s.pages[i].child = noPiece
	if s.all[n].pages--; s.all[n].pages == 0 {
		s.end(n)
	}
}

// end ends a piece without pages, which is in no level.
func (s *pieces) end(n int32) {
	q := &s.all[n]
	if parent := s.follow(q.parent); parent != noPiece {
		// supersede has taken a superseded piece from branches already.
		if !q.superseded {
			s.all[parent].branches--
		}
		s.removeChild(parent)
	}
	*q = piece{list: emptyList, born: q.born + 1, spot: -1}
	s.free = append(s.free, n)
}

// removeChild counts one child less. A piece without children is a leaf.
func (s *pieces) removeChild(n int32) {
	q := &s.all[n]
	if q.children--; q.children == 0 && q.spot >= 0 {
		l := s.levelOf(q)
		s.removeFrom(&l.inner, q.spot)
		s.addTo(&l.leaves, n)
		s.offer(l, &l.leaves[q.spot])
	}
}

// levelOf is the level of a piece with cached pages.
func (s *pieces) levelOf(q *piece) *level {
	if s.orders.accounts == nil {
		return s.orders.whole.ensureLevel(q.priority)
	}
	return s.orders.accounts.list[q.tenant].order.ensureLevel(q.priority)
}

// addTo adds a piece to the leaves or inner pieces of its level.
func (s *pieces) addTo(set *[]member, n int32) {
	q := &s.all[n]
	q.spot = int32(len(*set))
	*set = append(*set, member{q.features, q.last, n})
}

// removeFrom removes a piece from the leaves or inner pieces of its level.
//
// The last piece fills the gap, so it is O(1). The sets need no order: victims are searched in
// all places.
func (s *pieces) removeFrom(set *[]member, spot int32) {
	last := len(*set) - 1
	moved := (*set)[last]
	(*set)[spot] = moved
	s.all[moved.piece].spot = spot
	*set = (*set)[:last]
}

// changed updates a piece in the set of its level after its features have changed.
func (s *pieces) changed(n int32, q *piece) {
	l := s.levelOf(q)
	if q.children > 0 {
		l.inner[q.spot].features = q.features
		return
	}
	m := &l.leaves[q.spot]
	m.features = q.features
	s.offer(l, m)
}

// link adds a page, which is cached from now on, to the list of its piece. A page
// that a sequence has not released yet gets a piece of its own.
func (s *pieces) link(o *order, i int32) {
	priority, term := o.priority(i), o.termNumber(i)
	n := s.of(i)
	if n == noPiece {
		// Such pages come one by one, as those whose pin ends or whose request was cancelled.
		// Nothing is known of them, so the forecast is that of a piece used once.
		n = s.open(s.policy.Piece(forecast.Run{Uses: 1}), 1)
		s.assign(i, n)
		// A piece has one place in one level. Its cached pages decide the priority, so the
		// page that differs leaves the piece.
	} else if q := &s.all[n]; q.spot >= 0 && (q.priority != priority || q.term != term) {
		n = s.moveToPriority(i, n, priority, term)
	}
	q := &s.all[n]
	s.insertByDepth(&q.list, i)
	o.n++
	// The piece was in its level already; only its first cached page puts it there.
	if q.spot >= 0 {
		return
	}
	q.priority, q.term = priority, term
	if s.orders.accounts != nil {
		q.tenant = s.orders.accounts.of[i]
	}
	// The term needs its pieces, to move them to the default level when it ends.
	if term != 0 {
		t := &o.terms.all[term-1]
		q.termSpot = int32(len(t.pieces))
		t.pieces = append(t.pieces, n)
	}
	s.addToLevel(o, n)
}

// addToLevel adds a piece to its level, as a leaf or an inner piece.
func (s *pieces) addToLevel(o *order, n int32) {
	q := &s.all[n]
	l := o.ensureLevel(q.priority)
	o.setOccupied(q.priority)
	if q.children == 0 {
		s.addTo(&l.leaves, n)
		s.offer(l, &l.leaves[q.spot])
	} else {
		s.addTo(&l.inner, n)
	}
}

// removeFromLevel removes a piece from its level.
//
// It needs the priority and the children that the piece was added with, so it comes before
// a change to either.
func (s *pieces) removeFromLevel(o *order, q *piece) {
	l := o.level(q.priority)
	if q.children == 0 {
		s.removeFrom(&l.leaves, q.spot)
	} else {
		s.removeFrom(&l.inner, q.spot)
	}
	q.spot = -1
	o.clearIfEmpty(q.priority)
}

// moveToPriority takes a page out of a piece whose cached pages have another priority or
// term, and returns its new piece. Pages of one operation that leave the same piece share
// the new one.
func (s *pieces) moveToPriority(i, from int32, priority messages.Priority, term int32) int32 {
	to := s.moved.to
	if q := &s.all[to]; s.moved.from != from || to == noPiece || q.pages == 0 || q.spot >= 0 && (q.priority != priority || q.term != term) {
		// The new piece keeps what is known of the old one. It hangs on no other piece: the
		// pages of one operation need not be neighbours.
		f := s.all[from]
		to = s.open(f.features, int(f.uses))
		s.all[to].last = f.last
		s.moved.from, s.moved.to = from, to
	}
	s.pages[i].child = noPiece
	s.all[from].pages--
	s.assign(i, to)
	return to
}

// insertByDepth inserts a page into the list of a piece, the deepest first. Pages nearly
// always arrive from the deepest on, so the search ends at once.
//
// A heap for the others, as in the lists of levels, was rejected: a piece has few pages, and
// its order is the depth alone, so a search from the tail is short.
func (s *pieces) insertByDepth(l *list, i int32) {
	g := &s.pages[i]
	before := l.tail
	for before != none && s.pages[before].depth < g.depth {
		before = s.pages[before].prev
	}
	g.state, g.prev = listed, before
	if before == none {
		g.next, l.head = l.head, i
	} else {
		g.next, s.pages[before].next = s.pages[before].next, i
	}
	if g.next == none {
		l.tail = i
	} else {
		s.pages[g.next].prev = i
	}
}

// unlink removes a cached page from the list of its piece; the page is used then.
func (s *pieces) unlink(o *order, i int32) {
	g := &s.pages[i]
	q := &s.all[s.of(i)]
	o.unlink(&q.list, g)
	g.unlinkAll()
	o.n--
	// As long as other pages of the piece are cached, the piece keeps its place.
	if q.head == none {
		s.leaveLevel(o, q)
	}
}

// leaveLevel removes a piece without cached pages from its term and its level.
func (s *pieces) leaveLevel(o *order, q *piece) {
	if q.term != 0 {
		t := &o.terms.all[q.term-1]
		last := t.pieces[len(t.pieces)-1]
		t.pieces[q.termSpot], s.all[last].termSpot = last, q.termSpot
		t.pieces = t.pieces[:len(t.pieces)-1]
	}
	s.removeFromLevel(o, q)
}

// endTerms ends the terms of an order whose moment has come, and moves their pieces to
// the default level. A piece moves once for each term, so the cost is O(1) for each piece
// that is made.
func (s *pieces) endTerms(o *order, now time.Duration) {
	for id := o.firstEnded(now); id != 0; id = o.firstEnded(now) {
		// All pieces leave the level before the term ends, since endTerm changes the priority
		// of the term and clears the bit of an empty level.
		t := &o.terms.all[id-1]
		for _, n := range t.pieces {
			s.removeFromLevel(o, &s.all[n])
		}
		o.endTerm(id)
		for _, n := range t.pieces {
			s.all[n].priority = messages.DefaultPriority
			s.addToLevel(o, n)
		}
	}
}

// reset empties the lists of all pieces and returns the pages that are to be linked again:
// those that cache a block and have no holder.
//
// The pages are sorted by piece and depth, so that insertByDepth appends each of them.
func (s *pieces) reset(pages []page) []int32 {
	s.pages = pages
	for n := range s.all {
		s.all[n].list, s.all[n].spot = emptyList, -1
	}
	s.orders.each(func(o *order) {
		for k := range o.terms.all {
			o.terms.all[k].pieces = o.terms.all[k].pieces[:0]
		}
	})
	var cached []int32
	for i := range pages {
		if g := &pages[i]; g.unheld() && g.stored() {
			cached = append(cached, int32(i))
		}
	}
	slices.SortFunc(cached, func(a, b int32) int {
		return cmp.Or(cmp.Compare(s.of(a), s.of(b)), cmp.Compare(pages[b].depth, pages[a].depth), cmp.Compare(a, b))
	})
	return cached
}
