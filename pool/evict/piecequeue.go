package evict

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// pieceQueue is the pieces of one tenant and one priority that have pages which may be evicted.
type pieceQueue struct {
	pieces        *pieces
	leaves, inner []int32     // see pieces
	found         []candidate // of least value, the least one last, see choose
	ranked        bool        // a ranking had been lent when they were found
	start         int         // of the last survey
}

// NewQueue makes a queue.
func (s *pieces) NewQueue() Queue { return &pieceQueue{pieces: s} }

// Add adds a page to the list of its piece, the deepest first. Pages nearly always come from
// the deepest on, so the search ends at once.
func (k *pieceQueue) Add(p int32) {
	n := k.pieces.pieceFor(k, p)
	q, pages := &k.pieces.all[n], k.pieces.core.pages
	next := None
	for before := q.tail; before != None && k.deeper(p, before); before = pages[before].Prev {
		next = before
	}
	q.link(pages, p, next)
	if q.queue == nil {
		q.queue = k
		k.put(k.setOf(q), n)
	}
}

// deeper tells whether page a of a piece is evicted before page b.
func (k *pieceQueue) deeper(a, b int32) bool {
	x, y := &k.pieces.core.pages[a], &k.pieces.core.pages[b]
	return cmp.Or(cmp.Compare(y.Depth, x.Depth), cmp.Compare(x.Tie, y.Tie), cmp.Compare(a, b)) < 0
}

// Remove removes a page from the list of its piece.
func (k *pieceQueue) Remove(p int32) {
	q := &k.pieces.all[k.pieces.of[p]]
	q.unlink(k.pieces.core.pages, p)
	if q.head != None {
		return
	}
	k.cut(k.setOf(q), q.spot)
	q.queue = nil
}

// setOf is the set that a piece is in.
func (k *pieceQueue) setOf(q *piece) *[]int32 {
	if q.children > 0 {
		return &k.inner
	}
	return &k.leaves
}

// candidates is the set that victims are chosen from. There may be inner pieces only, when the
// leaves behind them have another priority or are used.
func (k *pieceQueue) candidates() []int32 {
	if len(k.leaves) > 0 {
		return k.leaves
	}
	return k.inner
}

// put adds a piece to a set, cut removes it: the last one gets its place.
func (k *pieceQueue) put(set *[]int32, n int32) {
	k.pieces.all[n].spot = len(*set)
	*set = append(*set, n)
}

func (k *pieceQueue) cut(set *[]int32, spot int) {
	list := *set
	end := len(list) - 1
	moved := list[end]
	list[spot] = moved
	k.pieces.all[moved].spot = spot
	*set = list[:end]
}

// First is the deepest page of the piece that is worth the least of those that were compared.
func (k *pieceQueue) First() int32 { return k.pieces.all[k.choose()].head }

// Before compares the pieces of two pages.
func (k *pieceQueue) Before(a, b int32) bool {
	return k.pieces.before(k.pieces.candidate(k.pieces.of[a]), k.pieces.candidate(k.pieces.of[b]))
}

// peekLimit is how many pieces of a set a look ahead compares: it is frequent and only a guess.
const peekLimit = 256

// Peek appends pages that are likely to be evicted next: those of the pieces of least value of
// every part of the sets.
func (k *pieceQueue) Peek(n int, list []int32) []int32 {
	end := len(list) + n
	for _, set := range [2][]int32{k.leaves, k.inner} {
		k.pieces.peeked = k.pieces.peeked[:0]
		step := max(1, len(set)/peekLimit)
		for i := 0; i < len(set); i += step {
			k.pieces.peeked = append(k.pieces.peeked, k.pieces.candidate(set[i]))
		}
		slices.SortFunc(k.pieces.peeked, func(a, b candidate) int {
			if k.pieces.before(a, b) {
				return -1
			}
			return 1
		})
		for _, c := range k.pieces.peeked {
			for p := k.pieces.all[c.piece].head; p != None &&
				len(list) < end; p = k.pieces.core.pages[p].Next {
				list = append(list, p)
			}
		}
	}
	return list
}

// Check verifies the pieces of the queue, that each is in its set once, and how many pages they
// have.
func (k *pieceQueue) Check(pages int) error {
	var errs []error
	n := 0
	for _, set := range [2][]int32{k.leaves, k.inner} {
		for i, m := range set {
			q := &k.pieces.all[m]
			if q.queue != k || q.spot != i || q.head == None {
				errs = append(errs, fmt.Errorf("piece %d is at %d of a set, and says %d", m, i, q.spot))
				continue
			}
			if (q.children > 0) != (len(k.inner) > i && k.inner[i] == m) {
				errs = append(errs, fmt.Errorf("piece %d with %d children is in the wrong set", m, q.children))
			}
			last := None
			for p := q.head; p != None && n <= len(k.pieces.core.pages); p = k.pieces.core.pages[p].Next {
				if k.pieces.of[p] != m || k.pieces.core.pages[p].Prev != last ||
					last != None && !k.deeper(last, p) {
					errs = append(errs, fmt.Errorf("page %d of piece %d is listed behind page %d in piece %d",
						p, k.pieces.of[p], last, m))
				}
				last = p
				n++
			}
			if q.tail != last {
				errs = append(errs, fmt.Errorf("piece %d ends with page %d, not %d", m, q.tail, last))
			}
		}
	}
	if n != pages {
		errs = append(errs, fmt.Errorf("pieces list %d pages of a queue of %d", n, pages))
	}
	return errors.Join(errs...)
}
