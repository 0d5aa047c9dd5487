// Package heap keeps a slice in the order of a binary heap whose elements know
// their own indices, so that any of them can be moved or removed.
//
// The caller owns the slice and says by an Order what comes first and where an
// element's index is kept. So the elements can be small numbers that stand for
// records in arrays of the caller:
//
//	heap   [2 0 1]     element 2 comes first
//	index  [1 2 0]     of elements 0, 1, 2: what Order.Moved has noted
//
// The standard library's container/heap is not used because it passes every
// element as an interface value, which allocates for all but pointers and
// small numbers, and swaps elements on each level where one move does.
//
// # Invariants
//
//  1. No element comes before the one at (i−1)/2, for i > 0: the first is h[0].
//  2. Order.Moved was last called for h[i] with i, and with Removed for an
//     element that is not in the heap any more.
//
// # Costs
//
// Push, Pop, Remove and Fix compare at most two elements a level, ⌈log₂ n⌉
// levels, and allocate nothing but the growth of the slice in Push.
package heap

// Removed is the index that Order.Moved gets for an element that leaves the heap.
const Removed = -1

// Order says which element comes first and notes where each one is. An order is
// passed to each call and kept nowhere, so a struct of one pointer will do.
type Order[T any] interface {
	// Before tells whether a comes before b. It must be a strict order; ties
	// that matter are broken by it.
	Before(a, b T) bool
	// Moved notes that x is at index i from now on, or gone if i is Removed.
	Moved(x T, i int)
}

// Push adds x to the heap.
func Push[T any, O Order[T]](h *[]T, o O, x T) {
	*h = append(*h, x)
	up(*h, o, len(*h)-1, x)
}

// Pop removes the first element of the heap, which is not empty, and returns it.
func Pop[T any, O Order[T]](h *[]T, o O) T { return Remove(h, o, 0) }

// Remove removes the element at index i and returns it.
func Remove[T any, O Order[T]](h *[]T, o O, i int) T {
	var zero T
	s := *h
	n := len(s) - 1
	x, last := s[i], s[n]
	s[n] = zero // the array must not keep what an element points to
	*h = s[:n]
	if i < n {
		sift(s[:n], o, i, last)
	}
	o.Moved(x, Removed)
	return x
}

// Fix restores the order of the heap after the element at index i has changed.
func Fix[T any, O Order[T]](h []T, o O, i int) { sift(h, o, i, h[i]) }

// Misplaced returns the index of an element that comes before the one above it,
// or -1: the first invariant for a Check to report.
func Misplaced[T any, O Order[T]](h []T, o O) int {
	for i := 1; i < len(h); i++ {
		if o.Before(h[i], h[(i-1)/2]) {
			return i
		}
	}
	return -1
}

// sift puts x where it belongs, starting from the free index i.
func sift[T any, O Order[T]](h []T, o O, i int, x T) {
	if i > 0 && o.Before(x, h[(i-1)/2]) {
		up(h, o, i, x)
		return
	}
	down(h, o, i, x)
}

// up moves elements down from above the free index i until x fits, and puts it there.
func up[T any, O Order[T]](h []T, o O, i int, x T) {
	for i > 0 {
		parent := (i - 1) / 2
		if !o.Before(x, h[parent]) {
			break
		}
		h[i] = h[parent]
		o.Moved(h[i], i)
		i = parent
	}
	h[i] = x
	o.Moved(x, i)
}

// down moves elements up from below the free index i until x fits, and puts it there.
func down[T any, O Order[T]](h []T, o O, i int, x T) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if right := child + 1; right < len(h) && o.Before(h[right], h[child]) {
			child = right
		}
		if !o.Before(h[child], x) {
			break
		}
		h[i] = h[child]
		o.Moved(h[i], i)
		i = child
	}
	h[i] = x
	o.Moved(x, i)
}
