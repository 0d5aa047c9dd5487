package tree

import "github.com/kvactor/kvactor/messages"

// spares are arrays of tokens that namings had and need no more, for namings to
// come, by size as those on the shelf. New memory would cost more than all that
// is written to it.
type spares struct {
	stacks [sizes][][]messages.Token
	tokens int // that all of them have room for
	hand   int // the size that gives way next
}

// take gives an array with room for n tokens, or nil.
func (s *spares) take(n int) []messages.Token {
	for size := sizeOf(n); size < min(sizeOf(n)+2, sizes); size++ {
		top := len(s.stacks[size]) - 1
		if top < 0 || cap(s.stacks[size][top]) < n {
			continue
		}
		a := s.stacks[size][top]
		s.stacks[size][top] = nil
		s.stacks[size] = s.stacks[size][:top]
		s.tokens -= cap(a)
		return a
	}
	return nil
}

// put adds an array. If there is more room than the limit, arrays of each size
// in turn go to the garbage collector.
func (s *spares) put(a []messages.Token, limit int) {
	size := sizeOf(cap(a))
	s.stacks[size] = append(s.stacks[size], a)
	s.tokens += cap(a)
	for s.tokens > limit {
		s.hand = (s.hand + 1) % sizes
		if top := len(s.stacks[s.hand]) - 1; top >= 0 {
			s.tokens -= cap(s.stacks[s.hand][top])
			s.stacks[s.hand][top] = nil
			s.stacks[s.hand] = s.stacks[s.hand][:top]
		}
	}
}

// Restock takes back tokens that were handed out with namings. As many are kept
// as half of the blocks that are held have, and some.
func (t *Tree) Restock(spent [][]messages.Token) {
	for _, a := range spent {
		t.spares.put(a, (t.held/2+shelved)*t.tpb)
	}
}
