package events

import (
	"math/bits"

	"github.com/kvactor/kvactor/messages"
)

// tokenBuffers are arrays of tokens that no run needs any more, for runs to
// come: fresh memory would cost more than all that is written to it, and the
// garbage collector more than both. They are stacked by size, four classes for
// each doubling, so that one that is taken is at most half as large again as
// was asked.
//
// Invariant: tokens is the room of all arrays in stacks.
type tokenBuffers struct {
	stacks [bufferClasses][][]messages.Token
	tokens int
	next   int // the class that gives up an array next
}

// bufferClasses is the number of classes of sizes up to 2³¹.
const bufferClasses = 124

// bufferClass returns the class of arrays with room for n tokens.
func bufferClass(n int) int {
	if n < 4 {
		return n
	}
	e := bits.Len(uint(n)) - 1
	return 4*(e-1) + n>>(e-2)&3
}

// take returns an empty array with room for n tokens.
func (s *tokenBuffers) take(n int) []messages.Token {
	class := bufferClass(n)
	for c := class; c < min(class+2, bufferClasses); c++ {
		top := len(s.stacks[c]) - 1
		// Only the top is looked at, so a take costs at most two looks; if its array
		// is too short, a new one is made.
		if top < 0 || cap(s.stacks[c][top]) < n {
			continue
		}
		a := s.stacks[c][top]
		s.stacks[c][top] = nil
		s.stacks[c] = s.stacks[c][:top]
		s.tokens -= cap(a)
		return a[:0]
	}
	return make([]messages.Token, 0, n)
}

// put adds an array. While there is more room than limit, arrays of each class
// in turn go to the garbage collector: so no class is given up before others.
func (s *tokenBuffers) put(a []messages.Token, limit int) {
	class := bufferClass(cap(a))
	s.stacks[class] = append(s.stacks[class], a)
	s.tokens += cap(a)
	for s.tokens > limit {
		s.next = (s.next + 1) % bufferClasses
		if top := len(s.stacks[s.next]) - 1; top >= 0 {
			s.tokens -= cap(s.stacks[s.next][top])
			s.stacks[s.next][top] = nil
			s.stacks[s.next] = s.stacks[s.next][:top]
		}
	}
}
