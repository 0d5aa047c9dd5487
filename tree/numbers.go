package tree

// numbers gives values small numbers, and counts references of them. A value without
// references is free, and its number is given again.
type numbers[V comparable] struct {
	// index[values[n]] is n for each number in use. A free number stands for the zero value.
	index  map[V]int32
	values []V
	refs   []int32
	free   []int32
}

func newNumbers[V comparable]() numbers[V] { return numbers[V]{index: map[V]int32{}} }

// retain adds a reference to a value and returns its number.
func (s *numbers[V]) retain(v V) int32 {
	n, ok := s.index[v]
	if !ok {
		n = int32(len(s.values))
		if k := len(s.free); k > 0 {
			n, s.free = s.free[k-1], s.free[:k-1]
			s.values[n] = v
		} else {
			s.values, s.refs = append(s.values, v), append(s.refs, 0)
		}
		s.index[v] = n
	}
	s.refs[n]++
	return n
}

// release ends a reference.
func (s *numbers[V]) release(n int32) {
	if s.refs[n]--; s.refs[n] == 0 {
		s.drop(n)
	}
}

// drop makes a number free.
func (s *numbers[V]) drop(n int32) {
	var zero V
	delete(s.index, s.values[n])
	s.values[n] = zero
	s.free = append(s.free, n)
}

// check verifies that values are found, and have at least so many references.
func (s *numbers[V]) check(c *checker, what string, least []int32) {
	var zero V
	for n, refs := range least {
		c.expect(s.refs[n] > 0 || s.values[n] == zero, "%s %d has no references and is not free", what, n)
		c.expect(s.refs[n] >= refs, "%s %d has %d references, blocks hold %d", what, n, s.refs[n], refs)
		if s.refs[n] > 0 {
			c.expect(s.index[s.values[n]] == int32(n), "%s %d is not found", what, n)
		}
	}
	c.expect(len(s.index)+len(s.free) == len(s.values),
		"%d of %d are in use as %s and %d free", len(s.index), len(s.values), what, len(s.free))
}
