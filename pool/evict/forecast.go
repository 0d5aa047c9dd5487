package evict

import (
	"time"

	"github.com/kvactor/kvactor/internal/forecast"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// pieces is the policy forecast. It predicts the next use of a piece, a run of blocks of one
// prefix with the same last use, and evicts the pages of the piece that is worth the least, the
// deepest first.
//
// What has no other piece behind it, a leaf, goes before all that has one, because blocks
// behind an evicted block cannot be matched:
//
//	prompt 1   blocks 0…9          piece A ─── piece B ─── piece C (the last block)
//	prompt 2   blocks 0…3, 10…12      └─────── piece D ─── piece E (the last block)
//
// C and E are leaves. Prompt 2 has left the run of A and B in its middle, so B and C are
// superseded: they are hardly used again. So is the last block of a prompt as a rule, and
// therefore it is a piece of its own.
//
// A Core that is not told of requests has pieces without an order, of contents of which another
// Core knew the same.
type pieces struct {
	core    *Core
	model   *forecast.Policy // nil: the contents are those that another Core noted
	ranking protocol.Ranking // lent; of a Core with a model its own
	of      []int32          // by page: its piece, or noPiece
	all     []piece          // by number, from 1 on
	unused  []int32          // numbers
	now     int64            // the clock of the ranking when it was last known
	peeked  []candidate      // scratch space of Peek
	runs    []forecast.Run   // of the path that was used last
	waiting bool             // a wait has begun since the last Advance
	latest  int32            // the piece that a page has joined last without a path
	links   Links            // of a pool of states, where each page is a piece, else nil
}

// noPiece stands for no piece.
const noPiece int32 = 0

// piece is a run of blocks of one prefix. It exists as long as it has pages, and keeps its
// number until no other piece hangs on it.
type piece struct {
	features forecast.Features // at the last use
	last     int64             // use, by the clock of the ranking
	uses     int

	origin     int32  // the piece that the pages were of before they came to another queue
	moved      int32  // the piece that its pages have moved to last
	parent     int32  // the piece in front, which may be gone; noPiece: there was none
	children   int32  // pieces that hang on this one
	branches   int32  // those of them that are not superseded
	end        int32  // the last block of a prompt that hangs on this piece, see endOf
	superseded bool   // a prompt has gone on with other blocks from where the piece begins
	promptEnd  bool   // the piece is the last block of a prompt
	watched    uint64 // signature of the block that the model watches; 0: none

	pages int32       // that belong to the piece
	list              // those that may be evicted, the deepest first
	queue *pieceQueue // of these; nil: there are none
	spot  int         // index in its set of the queue
}

func newForecast(c *Core, o Options) Policy {
	s := &pieces{core: c, all: make([]piece, 1)}
	switch {
	case o.Noted:
		return s
	case o.States:
		s.model, s.links = forecast.NewCheckpoints(), Links{}
	default:
		s.model = forecast.New(len(c.pages), o.Span, o.Seed)
		s.model.CountWork(o.DoublesAt)
	}
	s.ranking = s.model
	return s
}

// rankBy lends a ranking. Values have changed since the last one.
func (s *pieces) rankBy(r protocol.Ranking) {
	if s.ranking = r; r != nil {
		s.now = r.Now()
	}
}

// advance moves the clock of the model.
func (s *pieces) advance(now time.Duration) {
	s.waiting = false
	if s.model == nil {
		return
	}
	s.model.Advance(now)
	s.now = s.model.Now()
}

// open makes a piece that is used now for the first time, and makes pages belong to it.
func (s *pieces) open(f forecast.Features, pages ...messages.PageID) int32 {
	var n int32
	if k := len(s.unused) - 1; k >= 0 {
		n, s.unused = s.unused[k], s.unused[:k]
	} else {
		n = int32(len(s.all))
		s.all = append(s.all, piece{})
	}
	s.all[n] = piece{list: empty, features: f, last: s.now, uses: 1}
	for _, id := range pages {
		s.assign(int32(id), n)
	}
	return n
}

// assign makes a page belong to a piece.
func (s *pieces) assign(p, n int32) {
	s.of[p] = n
	s.all[n].pages++
}

// leave takes a page, which may not be evicted, out of its piece. A piece without pages is gone.
func (s *pieces) leave(p int32) {
	n := s.of[p]
	if n == noPiece {
		return
	}
	s.of[p] = noPiece
	q := &s.all[n]
	if q.pages--; q.pages > 0 {
		return
	}
	if parent := q.parent; parent != noPiece {
		if !q.superseded {
			s.all[parent].branches--
		}
		s.removeChild(parent)
	}
	q.parent = noPiece
	s.release(n)
}

// release gives back the number of a piece that is gone, unless pieces hang on it.
func (s *pieces) release(n int32) {
	if q := &s.all[n]; q.pages > 0 || q.children > 0 {
		return
	}
	s.all[n] = piece{list: empty}
	s.unused = append(s.unused, n)
}

// removeChild counts one child less. A piece without children is a leaf.
func (s *pieces) removeChild(n int32) {
	q := &s.all[n]
	if q.children--; q.children > 0 {
		return
	}
	if k := q.queue; k != nil {
		k.cut(&k.inner, q.spot)
		k.put(&k.leaves, n)
	}
	s.release(n)
}

// hang makes parent the piece in front of n, which has none. A request uses all pages of the
// parent now, so none of them may be evicted.
func (s *pieces) hang(n, parent int32) {
	if parent == noPiece {
		return
	}
	s.all[n].parent = parent
	q := &s.all[parent]
	q.children++
	if !s.all[n].superseded {
		q.branches++
	}
	if q.queue != nil && q.children == 1 {
		q.queue.cut(&q.queue.leaves, q.spot)
		q.queue.put(&q.queue.inner, parent)
	}
}

// endOf is the last block of a prompt that hangs on a piece and is not superseded, noPiece if
// there is none; of several the one that came last. The number may be that of another piece by
// now.
func (s *pieces) endOf(n int32) int32 {
	e := s.all[n].end
	if q := &s.all[e]; q.pages == 0 || q.parent != n || !q.promptEnd || q.superseded {
		return noPiece
	}
	return e
}

// pieceFor is the piece with which a page comes to a queue: its own, unless that has pages in
// another queue. Such pages share a new piece, which is worth what the old one is, and hangs on
// none: they need not be neighbours. They go back to the old one when they meet it in a queue.
func (s *pieces) pieceFor(k *pieceQueue, p int32) int32 {
	n := s.of[p]
	if n == noPiece {
		// Such pages come one by one, as those whose pin ends or whose request was cancelled.
		return s.open(s.fresh(p), messages.PageID(p))
	}
	origin := s.originOf(n)
	switch q := &s.all[n]; {
	case origin != n && s.all[origin].queue == k:
		s.leave(p)
		s.assign(p, origin)
		return origin
	case q.queue == nil:
		s.rejoin(k, n)
		return n
	case q.queue == k:
		return n
	}
	to := s.all[origin].moved
	if s.originOf(to) != origin || s.all[to].queue != k {
		old := s.all[n]
		to = s.open(old.features)
		s.all[to].last, s.all[to].uses, s.all[to].origin = old.last, old.uses, origin
		s.all[origin].moved = to
	}
	s.all[n].pages-- // it has others
	s.assign(p, to)
	return to
}

// originOf is the piece from which the pages of a piece have moved; the piece itself if they
// have not, or if one of the two was used since then.
func (s *pieces) originOf(n int32) int32 {
	o, q := &s.all[s.all[n].origin], &s.all[n]
	if q.origin == noPiece || o.pages == 0 || o.features != q.features || o.last != q.last {
		return n
	}
	return q.origin
}

// rejoin gives piece n, which comes to a queue, the pages that have moved there before it.
func (s *pieces) rejoin(k *pieceQueue, n int32) {
	to := s.all[n].moved
	from, q := &s.all[to], &s.all[n]
	if s.originOf(to) != n || from.queue != k || from.children > 0 || from.parent != noPiece {
		return
	}
	listed := int32(0)
	for p := from.head; p != None; p = s.core.pages[p].Next {
		listed++
	}
	if listed != from.pages {
		return
	}
	k.cut(k.setOf(from), from.spot)
	q.list, q.queue = from.list, k
	k.put(k.setOf(q), n)
	for p := q.head; p != None; p = s.core.pages[p].Next {
		s.of[p] = n
	}
	q.pages += listed
	from.pages, from.queue = 0, nil
	s.release(to)
}

// fresh is the features of the piece of a page of which nothing else is known.
func (s *pieces) fresh(p int32) forecast.Features {
	if s.links != nil {
		return forecast.Features{Saved: s.saved(p), GoesOn: len(s.links[p].Behind) > 0}
	}
	return s.model.Piece(forecast.Run{Uses: 1})
}

// await marks whole pieces of which a request that waits will use a part: their pages are
// evicted from the end, so the part in front is the last to go. Host memory is not told.
func (s *pieces) await(pages []messages.PageID) {
	if !s.waiting {
		s.model.BeginWait()
	}
	s.waiting = true
	before := noPiece
	for _, id := range pages {
		if id == messages.NoPage {
			continue
		}
		// A page without a piece is one whose first request runs.
		if n := s.of[id]; n != noPiece && n != before {
			s.all[n].features = s.model.Await(s.all[n].features)
			before = n
		}
	}
}

// know changes what is known of a page that was noted. It joins the latest piece, if the same
// is known of that, or a new one.
func (s *pieces) know(p int32, f forecast.Features, last int64) {
	if n := s.of[p]; n != noPiece && s.all[n].features == f && s.all[n].last == last {
		return
	}
	waited := s.core.pages[p].waiting
	if waited {
		s.core.Remove(p)
	}
	s.leave(p)
	if q := &s.all[s.latest]; q.pages == 0 || q.features != f || q.last != last {
		s.latest = s.open(f)
		s.all[s.latest].last = last
	}
	s.assign(p, s.latest)
	if waited {
		s.core.Add(p)
	}
}

// Note notes what another Core knew of the contents of a page. Little is known of contents
// after a restart or from a store: their last use.
func (s *pieces) Note(p int32, e *Known) {
	if e == nil {
		e = &Known{Last: int64(s.core.pages[p].Use.Moment())}
	}
	s.know(p, e.Features, e.Last)
}

// Noted is what is known of a page.
func (s *pieces) Noted(p int32) (known Known, ok bool) {
	q := &s.all[s.of[p]]
	return Known{Features: q.features, Last: q.last}, s.of[p] != noPiece
}

// Forget takes a page out of its piece.
func (s *pieces) Forget(p int32) {
	if s.links != nil {
		s.takeOut(p)
	}
	s.leave(p)
}

// Move gives the piece of a page another page.
func (s *pieces) Move(from, to int32) {
	s.of[to], s.of[from] = s.of[from], noPiece
	if s.links != nil {
		s.links.Move(from, to)
	}
}

// Resize changes the number of pages. Those that go have no piece.
func (s *pieces) Resize(pages int) {
	s.of = append(make([]int32, 0, pages), s.of[:min(len(s.of), pages)]...)[:pages]
	if s.links != nil {
		s.links.Resize(pages)
	}
}
