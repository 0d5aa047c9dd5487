package offloader

// front is the pieces of least value of a level that have been found, the least one last. All are members of the level, each
// is there once.
//
// A level may have ten thousands of pieces, so a choice does not look at all. A piece is compared when it comes, since many are
// worth little from then on, and after that in turn, one for each page that is displaced. The pool compares in turn as
// well, when requests end; its leaves come before inner pieces, which are not told apart here, since the pieces of one prefix come to host
// memory one by one.
type front struct {
	list  [frontSize]candidate
	n     int
	sweep int    // index of the member that is compared next
	round uint64 // of the decisions that the values belong to: those of one Move have one moment, so their values are comparable
	// chosen is the piece that was chosen last, if that was in this round and the level was compared as a whole, otherwise noPiece. It loses its
	// pages without further comparisons, as long as no piece of less value comes.
	chosen int32
}

const (
	// frontSize is how many pieces of least value a level keeps from one choice to the next. A level of no more is
	// compared as a whole.
	frontSize = 16
	// surveyLimit is about how many members are compared where none is kept.
	surveyLimit = 1024
)

// candidate is a piece with what it is compared by.
type candidate struct {
	last  int64
	rank  int32 // by the value
	piece int32
}

// candidate gives a piece its value of this moment. Without a ranking all are worth the same, and the last use decides.
func (s *pieces) candidate(n int32) candidate {
	q := &s.all[n]
	c := candidate{piece: n, last: q.last}
	if s.ranking != nil {
		depth := int32(0)
		if s.byDepth {
			depth = s.pages[q.head].depth
		}
		c.rank = s.ranking.Rank(q.features, q.last, depth)
	}
	return c
}

// candidateBefore tells whether candidate c is displaced before candidate d.
func (s *pieces) candidateBefore(c, d candidate) bool {
	if c.rank != d.rank {
		return c.rank < d.rank
	}
	if c.last != d.last {
		return c.last < d.last
	}
	return s.pageBefore(s.all[c.piece].head, s.all[d.piece].head)
}

// choose is the piece of a level, which has some, that loses the next page: of those that are compared the one of
// least value.
func (s *pieces) choose(l *level) int32 {
	f := &l.front
	if len(l.members) <= frontSize {
		// Few are compared as a whole, once for all pages that the least one loses.
		if !s.isChosen(f) {
			f.round, f.n = s.round, 0
			for _, n := range l.members {
				s.add(f, s.candidate(n))
			}
			f.chosen = f.list[f.n-1].piece
		}
		return f.chosen
	}
	s.renew(f)
	if f.n == 0 {
		step := max(1, len(l.members)/surveyLimit)
		for k := 0; k < len(l.members); k += step {
			s.add(f, s.candidate(l.members[k]))
		}
	}
	// One member is compared in turn. With four a decision takes half as long again; the hit rate is 0.1 points higher on one of the traces of
	// docs/policies.md and the same on the others.
	if f.sweep >= len(l.members) {
		f.sweep = 0
	}
	s.add(f, s.candidate(l.members[f.sweep]))
	f.sweep++
	return f.list[f.n-1].piece
}

// isChosen tells whether the piece that was chosen last in this round is still the one of least value in a front.
//
// Pieces that come are offered to the front, so only the last two have to be compared: of two pieces of equal value the one with
// the deeper page goes first, and the chosen one has lost its deepest. Where values depend on the depth of the next page they change with each, and
// without a ranking pieces are not offered when they come: then all are compared again.
func (s *pieces) isChosen(f *front) bool {
	k := f.n - 1
	if f.round != s.round || k < 0 || f.chosen != f.list[k].piece || s.byDepth || s.ranking == nil {
		return false
	}
	return k == 0 || !s.candidateBefore(f.list[k-1], f.list[k])
}

// offer compares a piece that has come to a level.
func (s *pieces) offer(l *level, n int32) {
	s.renew(&l.front)
	s.add(&l.front, s.candidate(n))
}

// renew gives the candidates the values of this round. Not only time may have passed since the last one: while plain LRU decides
// all ranks are equal.
func (s *pieces) renew(f *front) {
	if f.round == s.round {
		return
	}
	f.round, f.chosen = s.round, noPiece
	for k := range f.list[:f.n] {
		c := s.candidate(f.list[k].piece)
		i := k
		for ; i > 0 && s.candidateBefore(f.list[i-1], c); i-- {
			f.list[i] = f.list[i-1]
		}
		f.list[i] = c
	}
}

// add adds a candidate, to a full list instead of the one of most value, unless it is worth more than all of them or is there
// already.
//
// Most pieces that are compared are worth more, which takes one comparison.
func (s *pieces) add(f *front, c candidate) {
	if f.n == frontSize && !s.candidateBefore(c, f.list[0]) {
		return
	}
	for k := range f.list[:f.n] {
		if f.list[k].piece == c.piece {
			return
		}
	}
	// From the end: where the list is full the first one goes.
	if f.n == frontSize {
		copy(f.list[:], f.list[1:])
		f.n--
	}
	i := f.n
	for ; i > 0 && s.candidateBefore(f.list[i-1], c); i-- {
		f.list[i] = f.list[i-1]
	}
	f.list[i] = c
	f.n++
}

// remove removes a piece that leaves the level, or whose value changes. The one that is displaced is the last one.
func (f *front) remove(n int32) {
	if f.chosen == n {
		f.chosen = noPiece // the number may be used again
	}
	for k := f.n - 1; k >= 0; k-- {
		if f.list[k].piece == n {
			copy(f.list[k:f.n], f.list[k+1:f.n])
			f.n--
			return
		}
	}
}
