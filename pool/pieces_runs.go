package pool

import (
	"math"

	"github.com/kvactor/kvactor/internal/forecast"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// The functions of this file do for pieces what runs.go does for the lists of levels: the
// pages of a piece are claimed, dropped and taken in one loop over their records, and the
// piece is read and written once. What needs anything else is left to the operations in
// ops.go, page by page.

// takeFromPiece takes at most n pages from one piece of the lowest level and appends
// their contents to the victims.
//
// The loop ends with the piece: another choice follows for the rest. A piece that loses its
// last page is gone.
//
// Pages that are taken one by one, most of them last blocks of prompts, are written at the end of the room of op.Pages, the last one
// first, except those of terms and checkpoints. The operation has them behind the others, so that the last block of the next prompt gets
// them. Among the others they would part pages that adjoin, a few more with each prompt that the pages are used for, until all pages of a
// piece lie apart.
func (c *cache) takeFromPiece(op *protocol.PoolOp, n int, record *page, victims []protocol.Victim) []protocol.Victim {
	s, o := c.pieces, &c.whole
	priority := o.lowest()
	l := o.level(priority)
	best := s.victimOf(l, s.due).piece
	q := &s.all[best]
	u := &s.uses[best]
	// The pages of a term are counted one by one when they leave it, and checkpoints when they leave the pool.
	if s.termOf(best) != 0 || s.checkpoints != nil {
		i := q.head
		victims = append(victims, c.victim(i))
		s.note(u, len(victims))
		c.evict(i)
		c.pages[i] = *record
		op.Pages = append(op.Pages, messages.PageID(i))
		s.due = s.duePage()
		return victims
	}
	noted, room := len(victims), op.Pages[len(op.Pages):][:n]
	if q.marks.has(withEnd) {
		noted++
		s.note(u, noted)
		q.marks &^= withEnd
		u.setFeatures(s.beforeLast(q, u.features()))
		// The others go with the last block only if they are worth the least as well.
		if l.front.replace(s.candidate(best)); !l.isLeast(s, best) {
			n = 1
		}
	}
	ids, evicted := room[:n], victims[len(victims):][:n]
	var at int32
	var k int
	at, k = takeEach(c.pages, q.head, ids, evicted, record, math.MaxUint64)
	if victims = victims[:len(victims)+k]; len(victims) > noted {
		s.note(u, len(victims))
	}
	if k == 1 {
		room[len(room)-1] = ids[0]
		s.single++
	} else {
		op.Pages = op.Pages[:len(op.Pages)+k]
	}
	o.n -= k
	c.n -= k
	q.pages -= int32(k)
	s.due = swept(k, o.blockTokens)
	if q.head = at; at != none {
		c.pages[at].prev = none
		return victims
	}
	q.tail = none
	l.front.drop(best)
	s.cut(l.setOf(q), q.spot)
	o.clearIfEmpty(priority)
	// Pages of the piece that are used keep it.
	if q.pages == 0 {
		s.end(best)
	}
	return victims
}

// claimPieces is claimRun in a pool with pieces: it adds a reference to each of the pages,
// from the first on, up to a page that claim has to look at.
//
// A prompt is claimed from its first block on, and the list of a piece has the deepest page
// first. So the pages of a piece are neighbours, which leave the list as one stretch.
func (c *cache) claimPieces(op *protocol.PoolOp) (done, claimed int) {
	pages := c.pages
	removed := pieceStretch{prev: none, next: none}
run:
	for _, id := range op.Pages {
		if id != messages.NoPage {
			g := &pages[id]
			switch {
			case g.state == listed:
				if n := g.child; n != removed.piece || int32(id) != removed.prev {
					c.pieces.removeStretch(&c.whole, &removed)
					removed = pieceStretch{piece: n, next: g.next}
				}
				removed.prev = g.prev
				g.state, g.prev, g.next, g.covered = used, 1, 0, 0
				claimed++
			// A page that is used only by pins is not held by a reference yet; claim counts it.
			case g.state == used && g.covered == 0 && g.prev > 0 && g.prev < math.MaxInt32:
				g.prev++
			default:
				break run
			}
		}
		done++
	}
	c.pieces.removeStretch(&c.whole, &removed)
	c.whole.n -= claimed
	c.n -= claimed
	return done, claimed
}

// pieceStretch is a sequence of neighbours in the list of a piece: all pages between prev and
// next, of which either is none at an end of the list.
type pieceStretch struct{ piece, prev, next int32 }

// removeStretch joins the neighbours of a stretch, which the list then no longer contains.
func (s *pieces) removeStretch(o *order, r *pieceStretch) {
	if r.piece == noPiece {
		return
	}
	q := &s.all[r.piece]
	if r.prev == none {
		q.head = r.next
	} else {
		s.pages[r.prev].next = r.next
	}
	if r.next == none {
		q.tail = r.prev
	} else {
		s.pages[r.next].prev = r.prev
	}
	// As long as other pages of the piece are cached, the piece keeps its place.
	if q.head == none {
		s.leaveTerm(o, r.piece)
		s.removeFromLevel(o, q)
	}
	if r.prev == none {
		s.endLeaves(r.piece)
	}
}

// appendToPiece appends pages of one piece to its list, from the last one on, and returns how
// many. The caller has seen that the last page caches a block and that a reference is its
// only holder; the run ends before a page that is not so, and before one that belongs in
// front of the tail. It is empty if the page has a term, or the piece has cached pages of
// another priority.
func (c *cache) appendToPiece(ids []messages.PageID, opUse protocol.Use) (k int) {
	pages := c.pages
	first := int32(ids[len(ids)-1])
	n, priority := pages[first].child, pages[first].priority
	q := &c.pieces.all[n]
	cached := q.cached()
	if n == noPiece || priority == timed || cached && (q.priority != priority || c.pieces.termOf(n) != 0) {
		return 0
	}
	r := pieceRun{opUse: opUse, piece: n, depth: math.MaxInt32, priority: priority} // after none any page may come
	if q.tail != none {
		r.depth = pages[q.tail].depth
	}
	last, k := r.appendEach(pages, ids, q.tail)
	if k == 0 {
		return 0
	}
	pages[last].next = none
	if q.tail == none {
		q.head = first
	} else {
		pages[q.tail].next = first
	}
	q.tail = last
	if !cached {
		q.priority = priority
		c.pieces.addToLevel(&c.whole, n)
	}
	return k
}

// pieceRun is what the pages of a run that is appended to a piece have in common.
type pieceRun struct {
	opUse    protocol.Use
	piece    int32
	depth    int32 // of the last page of the list
	priority messages.Priority
}

// appendEach links pages of a piece behind a tail, from the last one on, and returns the new tail and how many there are. It ends before a
// page that is not of the run. The caller links the first page to the old tail, and ends the list with the new one, whose
// link may lead on.
func (r *pieceRun) appendEach(pages []page, ids []messages.PageID, tail int32) (last int32, n int) {
	depth := r.depth
	for left := len(ids); left > 0; left-- {
		i := int32(ids[left-1])
		if uint(uint32(i)) >= uint(len(pages)) { // NoPage
			break
		}
		g := &pages[i]
		if g.child != r.piece || g.state != used || g.prev != 1 || g.next != 0 || g.covered != 0 || g.priority != r.priority || depth < g.depth {
			break
		}
		next := none
		if left > 1 {
			next = int32(ids[left-2])
		}
		g.use = max(g.use, r.opUse)
		g.state, g.prev, g.next = listed, tail, next
		tail, depth = i, g.depth
		n++
	}
	return tail, n
}

// note notes the piece of the victims up to an index.
func (s *pieces) note(u *lastUse, end int) {
	f, last := uint64(u.features()), s.lastOf(u.time)
	if k := len(s.evicted) - 1; k >= 0 && s.evicted[k].Features == f && s.evicted[k].Last == last {
		s.evicted[k].End = end
		return
	}
	s.evicted = append(s.evicted, protocol.EvictedPiece{End: end, Features: f, Last: last})
}

// evictedRanking is what host memory may ask the policy.
type evictedRanking struct{ policy *forecast.Policy }

// Now is the clock of the policy in milliseconds.
func (r evictedRanking) Now() int64 { return r.policy.Now() }

// Rank orders pieces that were evicted as forecast.Policy.RankAt orders those of the pool.
func (r evictedRanking) Rank(features uint64, last int64, depth int32) int32 {
	return r.policy.RankAt(forecast.Features(features), last, depth)
}

// ByDepth is that of the policy.
func (r evictedRanking) ByDepth() bool { return r.policy.ByDepth() }
