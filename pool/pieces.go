package pool

import (
	"cmp"
	"slices"

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
// The last block of a prompt is rarely used again, and worth less than those in front. As long as nothing follows it, it is in one
// piece with them, which takes one record instead of two: E is in D (see withEnd).
//
// The pieces know the pages' records and their orders, in whose levels they have their places.
type pieces struct {
	pages   []page // the pool's
	orders  *orders
	policy  *forecast.Policy
	all     []piece   // by number, from 1 on
	uses    []lastUse // by number
	details []detail  // by number
	free    int32     // the first unused number, noPiece: none; piece.parent is the next one
	epoch   int64     // the policy's time from which lastUse.time counts
	// The pieces' places in the lists of their terms, by number, as far as a piece has had a term.
	terms []termPlace
	// the last piece that lost a page to moveToPriority, and the piece that got it
	moved   struct{ from, to int32 }
	waiting bool                    // a wait has begun in the current work
	due     int                     // comparisons for the last victim
	single  int                     // pages of the current take that are written at the end of the room of op.Pages, see takeFromPiece
	peeked  []candidate             // scratch space of peekVictims
	evicted []protocol.EvictedPiece // the pieces of the victims of the current work: PoolWork.Pieces
	config  Forecast

	checkpoints *checkpoints // of a pool of states: each page is a piece, which hangs on none
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
//
// A record has 32 bytes, two of them in a cache line: an eviction reads and writes those of the piece, of the piece in front
// of it, and of the one that gets its place in the set. What else is known of a piece is in its lastUse, its detail and its
// place in a set: 56 bytes for each piece.
type piece struct {
	head, tail int32 // of the list of its cached pages, the deepest first: the order of their eviction
	// A number is in use as long as pages > 0 or children > 0. A piece exists as long as pages > 0: one that has lost
	// its pages hangs on none, is in no set, and keeps its number until those that hang on it are gone.
	pages  int32 // that belong to the piece, cached and used
	parent int32 // the piece of the block before the first, which may be gone; noPiece: there was none
	// branches ≤ children. A piece is a leaf exactly if children = 0; branches > 1 marks a
	// point where prompts part.
	children int32 // pieces that hang on this one
	branches int32 // children that are not superseded
	spot     int32 // of one with cached pages: index in its set, the leaves or inner pieces of its level
	marks    marks
	priority messages.Priority // of its cached pages
	tenant   protocol.Tenant
}

// cached tells whether the piece has cached pages, and so a place in a level.
func (q *piece) cached() bool { return q.head != none }

// marks are a number of uses, at most mostUses, and what else is known of a piece.
type marks uint8

const (
	mostUses marks = 1<<5 - 1
	// superseded: a request has gone on from the block in front with other blocks, so this piece is not
	// expected to be used; its parent's branches leaves it out.
	superseded marks = 1 << 5
	// promptEnd: the piece was the last block of a prompt when its parent's detail named it as its end.
	promptEnd marks = 1 << 6
	// withEnd: the first page in the list is the last block of a prompt, and the features are its own. When it is evicted or used the piece
	// gets the features of its other blocks, see endLeaves. Such a piece is a leaf.
	withEnd marks = 1 << 7
)

// has tells whether a mark is set.
func (m marks) has(mark marks) bool { return m&mark != 0 }

// uses is the number of uses that is noted.
func (m marks) uses() int { return int(m & mostUses) }

// withUses notes a number of uses.
func (m marks) withUses(n int) marks { return m&^mostUses | marks(min(n, int(mostUses))) }

// lastUse is the last use of a piece, from which the value of the piece is computed.
//
// The values of a set are computed one after the other. The sets have numbers only, since there is room for as many leaves and
// inner pieces as there ever were: with last uses in the sets a piece took up to eleven bytes more.
type lastUse struct {
	halves [2]uint32 // of the features at the use, and of whether the piece is awaited since: in one a lastUse would take 16 bytes
	time   uint32    // milliseconds of the policy's time since pieces.epoch
}

// features is the features of the piece.
func (u *lastUse) features() forecast.Features {
	return forecast.Features(uint64(u.halves[1])<<32 | uint64(u.halves[0]))
}

// setFeatures changes the features of the piece.
func (u *lastUse) setFeatures(f forecast.Features) { u.halves = [2]uint32{uint32(f), uint32(f >> 32)} }

// detail is what is known of a piece beside what evictions need.
type detail struct {
	end     int32          // the piece that is the last block of a prompt and hangs on this one, see endOf
	watched forecast.Entry // the block of the piece that the policy watches, if any
}

// newPieces makes the pieces of a pool whose cached pages are in these orders. The policy
// bounds its history by the number of pages that the pool has now.
func newPieces(orders *orders, config Forecast) *pieces {
	for i := range orders.pages {
		orders.pages[i].child = noPiece
	}
	s := &pieces{
		pages: orders.pages, orders: orders, all: make([]piece, 1), uses: make([]lastUse, 1), details: make([]detail, 1),
		config: config,
	}
	if config.States {
		s.policy, s.checkpoints = forecast.NewCheckpoints(), newCheckpoints(s, len(orders.pages))
	} else {
		s.policy = forecast.New(len(orders.pages), config.Span, config.Seed)
		s.policy.CountWork(config.DoublesAt)
	}
	return s
}

// open makes a piece without pages that is used now.
func (s *pieces) open(f forecast.Features, uses int) int32 {
	n := s.free
	if n != noPiece {
		s.free = s.all[n].parent
	} else {
		n = int32(len(s.all))
		s.all, s.uses, s.details = appendTight(s.all, piece{}), appendTight(s.uses, lastUse{}), appendTight(s.details, detail{})
	}
	s.all[n] = piece{head: none, tail: none, marks: marks(0).withUses(uses)}
	s.details[n] = detail{}
	s.uses[n] = lastUse{time: s.now()}
	s.uses[n].setFeatures(f)
	return n
}

// parentOf is the piece in front of one, noPiece if it is gone or there was none.
func (s *pieces) parentOf(q *piece) int32 {
	if s.all[q.parent].pages == 0 {
		return noPiece
	}
	return q.parent
}

// endOf is the piece that is the last block of a prompt and hangs on a piece, noPiece if there is none. Of several it is the
// one that came last.
//
// A piece that is gone need not be removed from the detail that names it: another one with its number is none, unless it is
// the end of a prompt at the same place.
func (s *pieces) endOf(n int32) int32 {
	e := s.details[n].end
	if q := &s.all[e]; q.pages == 0 || q.parent != n || !q.marks.has(promptEnd) {
		return noPiece
	}
	return e
}

// assign makes a page, which belongs to no piece, belong to one.
func (s *pieces) assign(i, n int32) {
	s.pages[i].child = n
	s.all[n].pages++
}

// hang makes parent the piece in front of n, which has none.
//
// The current request uses all pages of the parent, so none of them is cached: the parent is in no set, and joins the one for pieces with
// children when its first page is linked.
func (s *pieces) hang(n, parent int32) {
	if parent == noPiece {
		return
	}
	s.all[n].parent = parent
	q := &s.all[parent]
	q.children++
	if !s.all[n].marks.has(superseded) {
		q.branches++
	}
}

// remove takes a page, which is in no list, out of its piece. A piece without pages
// is gone.
//
// It follows unlink, so the piece has no place in a level when its last page goes.
func (s *pieces) remove(i int32) {
	n := s.of(i)
	if n == noPiece {
		return
	}
	s.pages[i].child = noPiece
	q := &s.all[n]
	if q.pages--; q.pages == 0 {
		s.end(n)
	}
}

// end ends a piece without pages, which is in no set.
//
// Pieces that hang on it are not visited. Few pieces end before those behind them, so their numbers
// are kept until then; counting how often a number was used, in it and in all that refer to it, took 12 bytes more for each piece.
func (s *pieces) end(n int32) {
	q := &s.all[n]
	if parent := q.parent; parent != noPiece {
		p := &s.all[parent]
		// supersede has taken a superseded piece from branches already.
		if !q.marks.has(superseded) {
			p.branches--
		}
		s.removeChild(parent, p)
	}
	q.parent = noPiece
	if q.children == 0 {
		s.release(n, q)
	}
}

// release gives back a number that nothing refers to.
func (s *pieces) release(n int32, q *piece) {
	*q = piece{head: none, tail: none, parent: s.free}
	s.free = n
	if n == s.moved.from || n == s.moved.to {
		s.moved.from, s.moved.to = noPiece, noPiece
	}
}

// removeChild counts one child less. A piece without children is a leaf.
func (s *pieces) removeChild(n int32, q *piece) {
	if q.children--; q.children > 0 {
		return
	}
	switch {
	case q.cached():
		l := s.levelOf(q)
		s.cut(&l.inner, q.spot)
		s.put(&l.leaves, n)
		l.offer(s, n)
	case q.pages == 0:
		s.release(n, q)
	}
}

// link adds a page, which is cached from now on, to the list of its piece. A page
// that a sequence has not released yet gets a piece of its own.
func (s *pieces) link(o *order, i int32) {
	priority, term := o.priority(i), o.termNumber(i)
	n := s.of(i)
	if n == noPiece {
		// Such pages come one by one, as those whose pin ends or whose request was cancelled.
		// Nothing is known of them, so the forecast is that of a piece used once.
		var f forecast.Features
		if s.checkpoints != nil {
			f = s.checkpoints.fresh(i)
		} else {
			f = s.policy.Piece(forecast.Run{Uses: 1})
		}
		n = s.open(f, 1)
		s.assign(i, n)
		// A piece has one place in one level. Its cached pages decide the priority, so the
		// page that differs leaves the piece.
	} else if q := &s.all[n]; q.cached() && (q.priority != priority || s.termOf(n) != term) {
		n = s.moveToPriority(i, n, priority, term)
	}
	q := &s.all[n]
	cached := q.cached()
	s.insertByDepth(q, i)
	o.n++
	// The piece was in its level already; only its first cached page puts it there.
	if cached {
		return
	}
	q.priority = priority
	if s.orders.accounts != nil {
		q.tenant = s.orders.accounts.of[i]
	}
	s.joinTerm(o, n, term)
	s.addToLevel(o, n)
}

// moveToPriority takes a page out of a piece whose cached pages have another priority or
// term, and returns its new piece. Pages of one operation that leave the same piece share
// the new one.
func (s *pieces) moveToPriority(i, from int32, priority messages.Priority, term int32) int32 {
	to := s.moved.to
	if q := &s.all[to]; s.moved.from != from || to == noPiece || q.pages == 0 || q.cached() && (q.priority != priority || s.termOf(to) != term) {
		// The new piece keeps what is known of the old one. It hangs on no other piece: the
		// pages of one operation need not be neighbours.
		f := s.uses[from].features()
		if s.all[from].marks.has(withEnd) {
			f = s.beforeLast(&s.all[from], f)
		}
		to = s.open(f, s.all[from].marks.uses())
		s.uses[to].time = s.uses[from].time
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
func (s *pieces) insertByDepth(l *piece, i int32) {
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
	n := s.of(i)
	s.removeStretch(o, &pieceStretch{piece: n, prev: g.prev, next: g.next})
	g.unlinkAll()
	o.n--
}

// empty empties the lists of all pieces and takes them out of their levels, before the orders are emptied.
func (s *pieces) empty() {
	s.orders.each(func(o *order) {
		for k := range o.terms.all {
			o.terms.all[k].pieces = o.terms.all[k].pieces[:0]
		}
	})
	for n := range s.all {
		s.all[n].head, s.all[n].tail = none, none
	}
	clear(s.terms)
}

// reset takes over the pages of a pool and returns those that are to be linked again:
// those that cache a block and have no holder. It follows empty.
//
// The pages are sorted by piece and depth, so that insertByDepth appends each of them.
func (s *pieces) reset(pages []page) []int32 {
	s.pages = pages
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
