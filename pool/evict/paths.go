package evict

import (
	"github.com/kvactor/kvactor/internal/forecast"
	"github.com/kvactor/kvactor/messages"
)

// Used makes pieces of the pages. At the end of a request they are its whole path: the model
// learns from it, pieces that it has used are used once more, and each piece hangs on the one
// before. Otherwise, as for pages that leave a window, only pages that belong to no piece yet
// become pieces. Of noted contents this moment is the last use.
func (s *pieces) Used(pages []messages.PageID, facts *Request) {
	switch {
	case s.model == nil:
		for _, id := range pages {
			q := s.all[s.of[id]]
			s.know(int32(id), q.features, max(q.last, s.now))
		}
		return
	case s.links != nil:
		s.useCheckpoints(pages, facts)
		return
	case facts == nil:
		s.releaseLoose(pages)
		return
	}
	r := forecast.Request{RequestFacts: *facts, Released: s.core.now}
	path := s.storedPath(pages)
	r.Cached = min(s.cachedBlocks(path), r.Prompt)
	s.model.Begin(&r)
	s.now = s.model.Now()
	branch := s.usePath(path)
	last := len(s.runs) - 1
	if last < 0 {
		return
	}
	if block, ok := s.model.Draw(&r, min(branch, r.Prompt)); ok {
		// The run that the block is in, or if its page caches nothing the one in front, or else
		// the first one.
		k := last
		for k > 0 && int(s.runs[k].From) > block {
			k--
		}
		run := s.runs[k]
		s.all[s.pieceAt(path, int(run.From))].watched = s.model.Watch(&r, run, block)
	}
	s.model.End(&r, s.runs[max(0, last-1)], s.runs[last])
}

// usePath uses the pieces of a path, notes its runs, and returns where it ends to belong to other
// prompts too.
func (s *pieces) usePath(path []messages.PageID) (branch int) {
	s.runs = s.runs[:0]
	parent := noPiece
	for i := 0; i < len(path); {
		if !s.core.Holds(path[i]) {
			// The blocks behind a gap are not reached from those in front.
			parent = noPiece
			i++
			continue
		}
		end := s.runEnd(path, i)
		last, n := end == len(path), s.of[path[i]]
		whole := n == noPiece || int(s.all[n].pages) == end-i && s.all[n].children == 0
		if last && end-i > 1 && whole {
			end-- // the last block of the prompt is a piece of its own
		}
		run := forecast.Run{From: int32(i), Last: end == len(path) && end-i == 1}
		parent = s.useRun(path[i:end], &run, !last, parent)
		s.runs = append(s.runs, run)
		if s.all[parent].branches > 1 && end < len(path) {
			branch = end
		}
		i = end
	}
	return branch
}

// small is a number of uses as the model takes it.
func small(uses int) uint8 { return uint8(min(uses, 255)) }

// pieceAt is the piece of a block of a path.
func (s *pieces) pieceAt(path []messages.PageID, block int) int32 {
	if path[block] == messages.NoPage {
		return noPiece
	}
	return s.of[path[block]]
}

// storedPath is a path without the pages at its end that have no contents, as that of a token
// that has not been computed. The model would otherwise take the end of the path for a block
// that can be used again.
func (s *pieces) storedPath(pages []messages.PageID) []messages.PageID {
	n := len(pages)
	for n > 0 && !s.core.Holds(pages[n-1]) {
		n--
	}
	return pages[:n]
}

// cachedBlocks is the number of leading blocks of a path that were cached before the request:
// their pages belong to pieces already.
func (s *pieces) cachedBlocks(path []messages.PageID) (n int) {
	for n < len(path) && s.pieceAt(path, n) != noPiece {
		n++
	}
	return n
}

// runEnd is the end of the run of pages from i on that belong to one piece, have one priority
// and consecutive depths.
func (s *pieces) runEnd(pages []messages.PageID, i int) int {
	first, n := &s.core.pages[pages[i]], s.of[pages[i]]
	end := i + 1
	for ; end < len(pages) && s.core.Holds(pages[end]) && s.of[pages[end]] == n; end++ {
		g := &s.core.pages[pages[end]]
		if g.Depth != first.Depth+int32(end-i) || g.Priority != first.Priority {
			break
		}
	}
	return end
}

// releaseLoose makes a piece of each run of pages that belong to none. Pages that belong to one
// stay there with its old use: a page that leaves a window was not used by a request that ends.
func (s *pieces) releaseLoose(pages []messages.PageID) {
	for i := 0; i < len(pages); {
		if !s.core.Holds(pages[i]) || s.of[pages[i]] != noPiece {
			i++
			continue
		}
		end := s.runEnd(pages, i)
		s.open(s.fresh(int32(pages[i])), pages[i:end]...)
		i = end
	}
}

// useRun makes a run of a path one piece that is used once more, and returns it. GoesOn says
// that the path does behind it. The run gets the uses of the pieces.
func (s *pieces) useRun(pages []messages.PageID, r *forecast.Run, goesOn bool, parent int32) int32 {
	n := s.of[pages[0]]
	uses := s.all[n].uses + 1 // of noPiece 0
	r.Uses, r.Front = small(uses), small(s.all[parent].uses)
	if r.Last && parent != noPiece {
		r.Uses = 1 // a prompt may end there often, and not be gone on from
	}
	f := s.model.Piece(*r)
	if n != noPiece {
		f = s.model.StillAwaited(f, s.all[n].features)
	}
	switch {
	case n == noPiece:
		n = s.open(f, pages...)
		s.hang(n, parent)
	case int(s.all[n].pages) == len(pages):
		s.revive(n)
	default:
		n = s.split(n, pages, goesOn)
	}
	q := &s.all[n]
	q.features, q.last, q.uses = f, s.now, uses
	if parent != noPiece {
		s.supersedeEnd(parent, n)
		if r.Last {
			s.all[parent].end, s.all[n].promptEnd = n, true
		}
	}
	return n
}

// revive undoes that a piece is superseded: it was used after all.
func (s *pieces) revive(n int32) {
	q := &s.all[n]
	if !q.superseded {
		return
	}
	q.superseded = false
	if q.parent != noPiece {
		s.all[q.parent].branches++
	}
}

// split makes the pages at the beginning of a piece, which a request has used, a piece of their
// own. The rest keeps the number, since pieces hang on it, and hangs on the new piece. It is
// superseded if the request goes on elsewhere, and nothing but the last block of a prompt hangs
// on it.
func (s *pieces) split(old int32, pages []messages.PageID, goesOn bool) int32 {
	n := s.open(forecast.Features{}, pages...)
	q := &s.all[old]
	q.pages -= int32(len(pages))
	// The new piece replaces the old one in front of it.
	s.all[n].parent, q.parent = q.parent, noPiece
	s.all[n].superseded = q.superseded
	s.revive(n)
	s.hang(old, n)
	if goesOn && !q.superseded && s.onlyEnd(old) {
		s.supersede(old, n)
	}
	return n
}

// supersedeEnd supersedes the last block of a prompt that hangs on a piece, if a request has
// gone on from there with another one, as the next turn of a conversation does. With more than
// two branches the piece in front is shared by many prompts, and their ends are left alone.
func (s *pieces) supersedeEnd(front, next int32) {
	e := s.endOf(front)
	if e != noPiece && e != next && s.all[front].branches <= 2 && s.all[e].children == 0 {
		s.supersede(e, front)
	}
}

// onlyEnd tells whether nothing hangs on a piece but the last block of a prompt.
func (s *pieces) onlyEnd(n int32) bool {
	if s.endOf(n) != noPiece {
		return s.all[n].branches == 1
	}
	return s.all[n].branches == 0
}

// supersede marks a piece that hangs on front as superseded, and the last block of a prompt
// that hangs on it. It can still be matched, and loses only its value.
func (s *pieces) supersede(n, front int32) {
	if e := s.endOf(n); e != noPiece {
		s.supersede(e, n)
	}
	q := &s.all[n]
	q.features, q.superseded = s.model.Supersede(q.features, q.watched), true
	s.all[front].branches--
}
