package evict

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/forecast"
)

const (
	// Each choice compares all pieces of a queue that has at most wholeSet.
	wholeSet = 32
	// In a longer queue a survey compares at least surveyed pieces, evenly spread, up to twice as
	// many, and keeps surveyed/keptShare of them and one for the next choices.
	surveyed  = 512
	keptShare = 32
)

// candidate is a piece with the rank that its value has at some moment.
type candidate struct {
	rank     int32
	piece    int32
	last     int64 // its last use
	features forecast.Features
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
	c := candidate{piece: n, last: q.last, features: q.features}
	if s.ranking != nil {
		c.rank = s.ranking.Rank(q.features, q.last, s.core.pages[q.head].Depth)
	}
	return c
}

// choose returns the piece of a queue that loses the next page. Values change with time, so no heap
// would stay in order. A survey finds pieces of little value instead, and these go one after the
// other; one that was used or awaited meanwhile is passed over.
func (k *pieceQueue) choose() int32 {
	set := k.candidates()
	if len(set) <= wholeSet {
		best := k.pieces.candidate(set[0])
		for _, n := range set[1:] {
			if c := k.pieces.candidate(n); k.pieces.before(c, best) {
				best = c
			}
		}
		return best.piece
	}
	if ranked := k.pieces.ranking != nil; k.ranked != ranked {
		k.ranked, k.found = ranked, k.found[:0]
	}
	for {
		for end := len(k.found); end > 0; end-- {
			c := &k.found[end-1]
			q := &k.pieces.all[c.piece]
			if q.spot < len(set) && set[q.spot] == c.piece && q.last == c.last && q.features == c.features {
				return c.piece
			}
			k.found = k.found[:end-1]
		}
		k.survey(set)
	}
}

// survey finds the pieces of least value among some of a set, the least one last. In a long set
// each survey looks at other pieces than the one before.
func (k *pieceQueue) survey(set []int32) {
	step := max(1, len(set)/surveyed)
	kept := 1 + min(len(set), surveyed)/keptShare
	k.start = (k.start + 1) % step
	for i := k.start; i < len(set); i += step {
		c := k.pieces.candidate(set[i])
		if len(k.found) == kept {
			if !k.pieces.before(c, k.found[0]) {
				continue
			}
			k.found = append(k.found[:0], k.found[1:]...)
		}
		k.found = append(k.found, c)
		for j := len(k.found) - 1; j > 0 && k.pieces.before(k.found[j-1], c); j-- {
			k.found[j], k.found[j-1] = k.found[j-1], c
		}
	}
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
