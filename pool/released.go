package pool

import (
	"time"

	"github.com/kvactor/kvactor/internal/forecast"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// form makes pieces of the pages that a Drop releases, before they are dropped.
//
// With the facts of a request the pages are its whole path, block by block: the policy
// learns from it, pieces that it has used are used once more, and each piece hangs on the
// one before. Without facts, as for pages that leave a window, only pages that belong to
// no piece yet become pieces, and nothing is learned.
//
// It runs before the pages are dropped: link needs the piece of each page, and a run
// that is split must not have pages in the list of the old piece.
func (s *pieces) form(op *protocol.PoolOp, now time.Duration) {
	if s.checkpoints != nil {
		s.checkpoints.form(op, now)
		return
	}
	if op.Request == nil {
		s.formLoose(op)
		return
	}
	r := forecast.Request{
		Arrived: op.Request.Arrived, Released: now, Signatures: op.Request.Signatures,
		Blocks: op.Request.Blocks, Prompt: op.Request.Prompt, Found: op.Request.Found, Tokens: op.Request.Tokens, Answer: op.Request.Answer,
	}
	path := s.storedPath(op.Pages)
	r.Cached = min(s.cachedBlocks(path), r.Prompt)
	s.policy.Begin(&r)
	parent, from := noPiece, 0
	var runs runEnds
	for i := 0; i < len(path); {
		id := path[i]
		if id == messages.NoPage || !s.pages[id].stored() {
			// The blocks behind a gap are not reached from those in front, so the next piece hangs
			// on none.
			parent = noPiece
			i++
			continue
		}
		end := s.runEnd(path, i)
		last := end == len(path)
		run := forecast.Run{From: int32(i), Last: last && end-i == 1}
		parent = s.useRun(path[i:end], &run, !last, parent)
		runs.add(run)
		// Where another holds the last block too, pages in front of it may be in the list alone, as those that have left its window.
		if last && end-i > 1 && s.all[parent].children == 0 && s.pages[path[end-1]].heldOnce() {
			runs.add(s.addEnd(parent, end-1))
		}
		if s.all[parent].branches > 1 && end < len(path) {
			from = end // a branch point: the blocks up to it belong to other prompts too
		}
		i = end
	}
	if runs.n == 0 {
		return
	}
	if block, ok := s.policy.Draw(&r, min(from, r.Prompt)); ok {
		run := runs.last
		if block < int(run.From) {
			run = s.runAt(path, block)
		}
		s.details[s.of(int32(path[run.From]))].watched = s.policy.Watch(&r, run, block)
	}
	s.policy.End(&r, runs.front, runs.last)
}

// runEnds are the last two runs of a path; of one run both are the same.
type runEnds struct {
	front, last forecast.Run
	n           int // of the path
}

// add adds a run to the path.
func (e *runEnds) add(r forecast.Run) {
	if e.n++; e.n == 1 {
		e.last = r
	}
	e.front, e.last = e.last, r
}

// runAt is the run that a block of a path is in, or if its page caches nothing the one in front, or else the first one. It comes when all
// pages of the path have their pieces.
//
// A list of the runs was rejected: the list keeps its room, a sixteenth of the pieces' memory in a pool of 500 pages.
func (s *pieces) runAt(path []messages.PageID, block int) forecast.Run {
	i := block
	for i >= 0 && s.pieceAt(path, i) == noPiece {
		i--
	}
	if i < 0 {
		for i = block; s.pieceAt(path, i) == noPiece; i++ {
		}
	}
	n := s.pieceAt(path, i)
	for i > 0 && s.pieceAt(path, i-1) == n {
		i--
	}
	r := forecast.Run{From: int32(i), Uses: uint8(s.all[n].marks.uses())}
	if i > 0 {
		// The record of noPiece has no uses.
		r.Front = uint8(s.all[s.pieceAt(path, i-1)].marks.uses())
	}
	return r
}

// pieceAt is the piece of a block of a path.
func (s *pieces) pieceAt(path []messages.PageID, block int) int32 {
	if path[block] == messages.NoPage {
		return noPiece
	}
	return s.of(int32(path[block]))
}

// storedPath is a path without the pages at its end that cache no block, as that of a
// token that has not been computed.
//
// The policy would otherwise take the end of the path for a block that can be used again.
func (s *pieces) storedPath(pages []messages.PageID) []messages.PageID {
	n := len(pages)
	for n > 0 && (pages[n-1] == messages.NoPage || !s.pages[pages[n-1]].stored()) {
		n--
	}
	return pages[:n]
}

// await tells the policy that a request which waits is going to use pages.
//
// A piece of which it will use only a part is kept as a whole: its pages are evicted from the end, so the part in front
// is the last to go.
//
// The requests of one work wait alike: one number for all of them.
func (s *pieces) await(pages []messages.PageID) {
	if !s.waiting {
		s.waiting = true
		s.policy.BeginWait()
	}
	before := noPiece
	for _, id := range pages {
		if id == messages.NoPage {
			continue
		}
		// A page has no piece as long as its first request runs.
		n := s.of(int32(id))
		if n == noPiece || n == before {
			continue
		}
		u := &s.uses[n]
		u.setFeatures(s.policy.Await(u.features()))
		s.changed(n)
		before = n
	}
}

// formLoose makes a piece of each run of pages that belong to none.
//
// Pages that belong to a piece stay in it with its old use: a page that leaves a window has
// not been used by a request that is over.
func (s *pieces) formLoose(op *protocol.PoolOp) {
	for i := 0; i < len(op.Pages); {
		id := op.Pages[i]
		if id == messages.NoPage || !s.pages[id].stored() || s.of(int32(id)) != noPiece {
			i++
			continue
		}
		end := s.runEnd(op.Pages, i)
		n := s.open(s.policy.Piece(forecast.Run{Uses: 1}), 1)
		for _, id := range op.Pages[i:end] {
			s.assign(int32(id), n)
		}
		i = end
	}
	if op.Awaited {
		s.await(op.Pages)
	}
}

// cachedBlocks is the number of leading blocks of a path that were cached before the request: their pages belong to pieces
// already. It comes before all pages of the path get pieces.
func (s *pieces) cachedBlocks(path []messages.PageID) (n int) {
	for n < len(path) && s.pieceAt(path, n) != noPiece {
		n++
	}
	return n
}

// runEnd is the end of the run of pages from i on that belong to one piece and have one
// priority and one term.
//
// The depths must be consecutive as well: a piece is a part of one prefix, and pages of
// another one may follow in an operation without request facts.
func (s *pieces) runEnd(pages []messages.PageID, i int) int {
	first := pages[i]
	o := s.orders.of(int32(first))
	if o.terms.of == nil {
		return s.plainRunEnd(pages, i)
	}
	priority, term := o.priority(int32(first)), o.termNumber(int32(first))
	for i++; i < len(pages); i++ {
		id := pages[i]
		if id == messages.NoPage || s.of(int32(id)) != s.of(int32(first)) || !s.pages[id].stored() ||
			s.pages[id].depth != s.pages[pages[i-1]].depth+1 ||
			o.priority(int32(id)) != priority || o.termNumber(int32(id)) != term {
			break
		}
	}
	return i
}

// plainRunEnd is runEnd in a pool whose pages have no terms.
func (s *pieces) plainRunEnd(pages []messages.PageID, i int) int {
	records := s.pages
	g := &records[pages[i]]
	n, depth, priority := g.child, g.depth, g.priority
	for i++; i < len(pages); i++ {
		id := pages[i]
		if uint(id) >= uint(len(records)) {
			break
		}
		g := &records[id]
		// A page of a piece caches a block; one of no piece may cache none.
		if depth++; g.child != n || g.depth != depth || g.priority != priority || n == noPiece && !g.stored() {
			break
		}
	}
	return i
}

// useRun makes a run of pages of a request's path one piece that is used once more, and
// returns it. The run says where it begins and whether it is the last block alone, and gets the uses; goesOn says that the path does behind it.
func (s *pieces) useRun(run []messages.PageID, r *forecast.Run, goesOn bool, parent int32) int32 {
	old := s.of(int32(run[0]))
	r.Uses = 1
	if old != noPiece {
		r.Uses = uint8(s.all[old].marks.uses() + 1)
	}
	if parent != noPiece {
		r.Front = uint8(s.all[parent].marks.uses())
	}
	f := s.policy.Piece(*r)
	if old != noPiece {
		f = s.policy.StillAwaited(f, s.uses[old].features())
	}
	if q := &s.all[old]; q.marks.has(withEnd) && int(q.pages) == len(run)+1 && q.cached() {
		s.detachEnd(old, goesOn)
	}
	n := old
	switch {
	case old == noPiece:
		n = s.open(f, 1)
		for _, id := range run {
			s.assign(int32(id), n)
		}
		s.hang(n, parent)
	// The request has used all of the piece, so the piece stays whole.
	case int(s.all[old].pages) == len(run):
		q := &s.all[old]
		s.uses[n].time, q.marks = s.now(), q.marks.withUses(int(r.Uses))&^withEnd
		s.uses[n].setFeatures(f)
		s.revive(q)
	// The request has used the first pages of the piece only. Both parts are kept apart
	// from now on, since their next uses will differ.
	default:
		n = s.split(old, run, goesOn)
		q := &s.all[n]
		q.marks = q.marks.withUses(int(r.Uses))
		s.uses[n].setFeatures(f)
	}
	if parent != noPiece {
		s.supersedeEnd(parent, n)
		if r.Last {
			s.details[parent].end = n
			s.all[n].marks |= promptEnd
		}
	}
	return n
}

// addEnd makes the last page of a piece, which the current request has used, the last block of a prompt: the block at an index. It
// returns the block as a run.
func (s *pieces) addEnd(n int32, block int) forecast.Run {
	q := &s.all[n]
	uses := q.marks.uses()
	s.uses[n].setFeatures(s.uses[n].features().AsLast(uses))
	q.marks |= withEnd
	return forecast.Run{From: int32(block), Uses: 1, Front: uint8(uses), Last: true}
}

// endLeaves gives a piece the features of its other blocks after its first page has left the list, if that was the last block of a
// prompt.
//
// A request that claims the page and then does not use it, as one that waits, leaves the block without a value of its own.
func (s *pieces) endLeaves(n int32) {
	q := &s.all[n]
	if !q.marks.has(withEnd) {
		return
	}
	q.marks &^= withEnd
	s.uses[n].setFeatures(s.beforeLast(q, s.uses[n].features()))
	s.changed(n)
}

// beforeLast gives the features of the other blocks of a piece that has those of the last block of a prompt.
func (s *pieces) beforeLast(q *piece, f forecast.Features) forecast.Features {
	front := 0
	if parent := s.parentOf(q); parent != noPiece {
		front = s.all[parent].marks.uses()
	}
	return f.BeforeLast(q.marks.uses(), front)
}

// detachEnd makes the last block of a prompt, the only page of piece n that the current request has not used, a piece of its
// own behind it. The block is superseded if the request goes on with another one.
func (s *pieces) detachEnd(n int32, goesOn bool) {
	i := s.all[n].head
	u := s.uses[n]
	o := s.orders.of(i)
	s.all[n].marks &^= withEnd
	s.unlink(o, i)
	s.all[n].pages--
	e := s.open(u.features(), 1)
	s.uses[e].time = u.time
	s.assign(i, e)
	s.hang(e, n)
	s.all[e].marks |= promptEnd
	s.details[n].end = e
	if goesOn {
		s.supersede(e, n)
	}
	s.link(o, i)
}

// revive undoes that a piece is superseded: it was used after all.
func (s *pieces) revive(q *piece) {
	if !q.marks.has(superseded) {
		return
	}
	q.marks &^= superseded
	if parent := s.parentOf(q); parent != noPiece {
		s.all[parent].branches++
	}
}

// split makes the first pages of a piece a piece of their own, which is used now, and
// returns it. The rest keeps the number and hangs on the new piece. It is superseded if
// the request goes on elsewhere and nothing but the last block of a prompt hangs on it.
//
// The rest keeps the number, because the pieces behind it refer to it;
// only the piece in front of it changes. The run's pages are used, hence in no list, so
// they can change their piece without being linked again.
func (s *pieces) split(old int32, run []messages.PageID, goesOn bool) int32 {
	n := s.open(0, 1)
	for _, id := range run {
		s.assign(int32(id), n)
	}
	q := &s.all[old]
	q.pages -= int32(len(run))
	// A watched block stays with the rest: one that the request has used is not watched any more.
	// The new piece replaces the old one in front, which counts as many children as before.
	s.all[n].parent, q.parent = q.parent, noPiece
	s.all[n].marks |= q.marks & superseded
	s.revive(&s.all[n])
	s.hang(old, n)
	if goesOn && !q.marks.has(superseded) && s.onlyEnd(old) {
		s.supersede(old, n)
	}
	return n
}

// supersedeEnd supersedes the last block of a prompt that hangs on a piece, if a request
// has gone on from the piece with another one.
//
// The next turn of a conversation usually replaces the last block of a prompt, which is a piece of its own where something else hangs
// beside it, or where it was the only new block of its prompt. With more than two branches the piece in front
// is shared by many prompts, and their ends are left alone.
func (s *pieces) supersedeEnd(front, next int32) {
	e := s.endOf(front)
	if e != noPiece && e != next && !s.all[e].marks.has(superseded) && s.all[e].children == 0 && s.all[front].branches <= 2 {
		s.supersede(e, front)
	}
}

// onlyEnd tells whether nothing hangs on a piece but the last block of a prompt.
func (s *pieces) onlyEnd(n int32) bool {
	if e := s.endOf(n); e != noPiece && !s.all[e].marks.has(superseded) {
		return s.all[n].branches == 1
	}
	return s.all[n].branches == 0
}

// supersede marks a piece that hangs on front as superseded, and the last block of a
// prompt that hangs on it.
//
// A superseded piece keeps its pages and can still be matched. It only loses its value, so
// that it is evicted early; revive undoes it at the next use.
func (s *pieces) supersede(n, front int32) {
	if e := s.endOf(n); e != noPiece && !s.all[e].marks.has(superseded) {
		s.supersede(e, n)
	}
	s.uses[n].setFeatures(s.policy.Supersede(s.uses[n].features(), s.details[n].watched))
	s.all[n].marks |= superseded
	s.all[front].branches--
	s.changed(n)
}
