package token

import (
	"github.com/kvactor/kvactor/internal/heap"
	"github.com/kvactor/kvactor/messages"
)

// symbol is a token of a word that is being merged, in a list.
type symbol struct {
	id         messages.Token
	prev, next int // −1: none
	gone       bool
}

// pair is a merge that can be made of a symbol and the next one, as they were
// when it was found.
type pair struct {
	merge
	left        int
	first, then messages.Token
}

// byOrder orders pairs: the lowest order of the merge first, the leftmost of equal ones
// first.
type byOrder struct{}

// Before implements heap.Order.
func (byOrder) Before(a, b pair) bool {
	return a.order < b.order || a.order == b.order && a.left < b.left
}

// Moved does nothing: no pair is removed but the first.
func (byOrder) Moved(pair, int) {}

// mergePairs merges the tokens of a word until no two neighbours can be merged. It
// passes an error on.
func (t *Tokenizer) mergePairs(ids []messages.Token, err error) ([]messages.Token, error) {
	if err != nil || len(ids) < 2 {
		return ids, err
	}
	list := make([]symbol, len(ids))
	for i, id := range ids {
		list[i] = symbol{id: id, prev: i - 1, next: i + 1}
	}
	list[len(list)-1].next = -1
	var queue []pair // a heap
	offer := func(left int) {
		if left < 0 || list[left].next < 0 {
			return
		}
		a, b := list[left].id, list[list[left].next].id
		if m, ok := t.find(a, b); ok {
			heap.Push(&queue, byOrder{}, pair{m, left, a, b})
		}
	}
	for i := range list {
		offer(i)
	}
	for len(queue) > 0 {
		p := heap.Pop(&queue, byOrder{})
		l := &list[p.left]
		if l.gone || l.next < 0 || l.id != p.first || list[l.next].id != p.then {
			continue // one of the two has been merged with another since
		}
		r := &list[l.next]
		r.gone = true
		l.id, l.next = p.id, r.next
		if l.next >= 0 {
			list[l.next].prev = p.left
		}
		offer(l.prev)
		offer(p.left)
	}
	out := ids[:0]
	for i := 0; i >= 0; i = list[i].next {
		out = append(out, list[i].id)
	}
	return out, nil
}
