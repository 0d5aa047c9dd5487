package events

// deque is a queue in a ring that grows as it must.
//
// Invariant: the n elements are ring[first], ring[first+1], … around the end, and
// all other slots are zero.
type deque[T any] struct {
	ring  []T
	first int
	n     int
}

// at returns element i, counted from the oldest.
func (d *deque[T]) at(i int) *T { return &d.ring[(d.first+i)%len(d.ring)] }

// push adds an element at the end, a zero that the caller fills in.
func (d *deque[T]) push() *T {
	// The ring doubles, so n pushes cost O(n). It never shrinks: it is as long as the
	// most that was kept.
	if d.n == len(d.ring) {
		longer := make([]T, max(8, 2*d.n))
		copy(longer[copy(longer, d.ring[d.first:]):], d.ring[:d.first])
		d.ring, d.first = longer, 0
	}
	d.n++
	return d.at(d.n - 1)
}

// pop removes the oldest element and returns it.
func (d *deque[T]) pop() T {
	var zero T
	x := d.ring[d.first]
	d.ring[d.first] = zero
	d.first = (d.first + 1) % len(d.ring)
	d.n--
	return x
}
