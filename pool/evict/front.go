package evict

import (
	"fmt"
	"slices"
)

const (
	// frontSize is how many candidates a queue keeps from one choice to the next. With 24 the
	// mean share of docs/policies.md is 0.1 points lower. A set of wholeSet is compared as a
	// whole with each choice.
	frontSize = 32
	wholeSet  = 16
	// A choice compares one more piece, or one for every sweepTokens of a block up to
	// mostSwept. To find a better victim costs nanoseconds, to compute its tokens again
	// milliseconds.
	sweepTokens = 128
	mostSwept   = 16
	// sweptCheckpoints is how many a choice of a checkpoint compares. With one 1 % fewer blocks
	// are saved on the traces.
	sweptCheckpoints = 16
	// surveyLimit is about how many pieces are compared where no candidate is known.
	surveyLimit = 1024
	// freshShare is the part of its age for which the value of a candidate counts as that of
	// this moment: by then it has barely changed.
	freshShare = 1.0 / 16
)

// candidate is a piece with the rank of its value at some moment.
type candidate struct {
	rank  int32
	piece int32
	last  int64 // its last use
	at    int64 // when it had this value
}

// before tells whether candidate a is evicted before b. Values are often equal, as those of new
// pieces, and then the rule is LRU.
func (s *pieces) before(a, b candidate) bool {
	if a.rank != b.rank || a.last != b.last {
		return a.rank < b.rank || a.rank == b.rank && a.last < b.last
	}
	x, y := &s.core.pages[s.all[a.piece].head], &s.core.pages[s.all[b.piece].head]
	if x.Depth != y.Depth || x.Tie != y.Tie {
		return x.Depth > y.Depth || x.Depth == y.Depth && x.Tie < y.Tie
	}
	return a.piece < b.piece
}

// candidate gives a piece its value of this moment. Without a ranking all are worth the same.
func (s *pieces) candidate(n int32) candidate {
	q := &s.all[n]
	c := candidate{piece: n, last: q.last, at: s.now}
	if s.ranking != nil {
		c.rank = s.ranking.Rank(q.features, q.last, s.core.pages[q.head].Depth)
	}
	return c
}

// byDepth tells whether the value of a piece depends on its next victim.
func (s *pieces) byDepth() bool { return s.ranking != nil && s.ranking.ByDepth() }

// front is the pieces of least value of a queue that were found, the least one last, with the
// values that they had then. All are in the queue, each is there once.
//
// Values change with time, so a heap by value would be out of order. A piece is compared when it
// comes to the leaves or its features change, and after that when its turn comes: choices go
// round the set.
type front struct {
	list  []candidate
	sweep int // index in the set of the piece that is compared next
	round int // of the values, see pieces.round
}

// choose is the piece of a queue that loses the next page.
func (k *pieceQueue) choose() int32 {
	f, set := &k.front, k.candidates()
	if len(set) <= wholeSet || k.pieces.checkpoints != nil && len(set) <= frontSize {
		best := k.pieces.candidate(set[0])
		for _, n := range set[1:] {
			if c := k.pieces.candidate(n); k.pieces.before(c, best) {
				best = c
			}
		}
		return best.piece
	}
	k.renew(set)
	for range k.pieces.swept() {
		if f.sweep >= len(set) {
			f.sweep = 0
		}
		k.offer(set[f.sweep])
		f.sweep++
	}
	// The least one gets its value of this moment, as often as it changes its place.
	for {
		if len(f.list) == 0 {
			k.survey(set)
		}
		c := f.list[len(f.list)-1]
		if spot := k.pieces.all[c.piece].spot; spot >= len(set) || set[spot] != c.piece {
			f.list = f.list[:len(f.list)-1] // it is in the other set
			continue
		}
		if c.last == k.pieces.all[c.piece].last && c.isFresh(k.pieces.now) && !k.pieces.byDepth() {
			return c.piece
		}
		f.remove(c.piece)
		k.offer(c.piece)
		if f.list[len(f.list)-1].piece == c.piece {
			return c.piece
		}
	}
}

// isFresh tells whether the value of a candidate is nearly that of a moment.
func (c *candidate) isFresh(now int64) bool {
	return float32(now-c.at) <= freshShare*float32(now-c.last)
}

// renew gives the candidates new values where more than the time has changed them: the ranking
// is another one, or plain LRU begins or ends.
func (k *pieceQueue) renew(set []int32) {
	f, round := &k.front, k.pieces.round
	if k.pieces.model != nil && k.pieces.model.PlainLRU() {
		round = -1
	}
	if f.round == round && len(f.list) > 0 {
		return
	}
	f.round = round
	if k.pieces.model != nil || len(f.list) == 0 {
		k.survey(set)
		return
	}
	for i, c := range f.list {
		f.list[i] = k.pieces.candidate(c.piece)
	}
	slices.SortFunc(f.list, func(a, b candidate) int {
		if k.pieces.before(b, a) {
			return -1
		}
		return 1
	})
}

// survey makes the front from pieces of all parts of a set.
func (k *pieceQueue) survey(set []int32) {
	k.front.list = k.front.list[:0]
	step := max(1, len(set)/surveyLimit)
	for i := 0; i < len(set); i += step {
		k.offer(set[i])
	}
}

// offer compares a piece with the candidates, and keeps it instead of the one of most value
// unless it is worth more than all of them.
func (k *pieceQueue) offer(n int32) {
	f, c := &k.front, k.pieces.candidate(n)
	full := len(f.list) == frontSize
	if full && !k.pieces.before(c, f.list[0]) {
		return
	}
	f.remove(n)
	if len(f.list) == frontSize {
		f.list = append(f.list[:0], f.list[1:]...)
	}
	i := len(f.list)
	f.list = append(f.list, c)
	for ; i > 0 && k.pieces.before(f.list[i-1], c); i-- {
		f.list[i] = f.list[i-1]
	}
	f.list[i] = c
}

// remove removes the candidate of a piece, if there is one. Those that change are often those
// that were chosen, the last ones.
func (f *front) remove(n int32) {
	for i := len(f.list) - 1; i >= 0; i-- {
		if f.list[i].piece == n {
			f.list = append(f.list[:i], f.list[i+1:]...)
			return
		}
	}
}

// swept is how many more pieces a choice compares.
func (s *pieces) swept() int {
	if s.checkpoints != nil {
		return sweptCheckpoints
	}
	return max(1, min(s.config.BlockTokens/sweepTokens, mostSwept))
}

// check verifies that the candidates are pieces of the queue, each once.
func (f *front) check(k *pieceQueue) (errs []error) {
	for i, c := range f.list {
		if k.pieces.all[c.piece].queue != k {
			errs = append(errs, fmt.Errorf("piece %d at %d of a front is not in the queue", c.piece, i))
		}
		if slices.ContainsFunc(f.list[:i], func(d candidate) bool { return d.piece == c.piece }) {
			errs = append(errs, fmt.Errorf("piece %d is in a front twice", c.piece))
		}
	}
	return errs
}

// Draw draws what is known of the piece of a page.
func (s *pieces) Draw(p int32) string {
	n := s.of[p]
	if n == noPiece {
		return ""
	}
	q := &s.all[n]
	out := fmt.Sprintf(" piece %d uses %d", n, q.uses)
	if s.model != nil {
		out += fmt.Sprintf(" value %.3g", s.model.Value(q.features, q.last))
	} else {
		out += fmt.Sprintf(" last %d", q.last)
		if wait := q.features.Wait; wait != 0 {
			out += fmt.Sprintf(" wait %d", wait)
		}
	}
	if q.promptEnd {
		out += " last"
	}
	if q.superseded {
		out += " superseded"
	}
	if q.children > 0 {
		out += fmt.Sprintf(" children %d", q.children)
	}
	return out
}
