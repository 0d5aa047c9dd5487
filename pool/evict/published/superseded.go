package published

import "github.com/kvactor/kvactor/pool/evict"

// The parts of supersededLRU.
const (
	superseded uint8 = iota
	current
)

// supersededLRU is LRU, but what is left of a run of blocks that a prompt has left in its middle
// goes first.
type supersededLRU struct{ perBlock }

func newSuperseded(c *evict.Core, o evict.Options) evict.Policy {
	s := &supersededLRU{}
	s.setup(c, o, s)
	return s
}

// use makes a block the one used last. One that has just come behind another block supersedes
// what followed there, if that was one run.
func (s *supersededLRU) use(p int32, fresh bool) {
	r := &s.pages[p]
	r.part, r.rank = current, s.next()
	front := s.links[p].Front
	if !fresh || front == evict.None {
		return
	}
	if behind := s.links[front].Behind; len(behind) == 2 {
		s.supersede(behind[0] + behind[1] - p)
	}
}

// supersede makes a block and all behind it the next victims, up to where they part.
func (s *supersededLRU) supersede(p int32) {
	for {
		s.shift(p, superseded, s.pages[p].rank)
		behind := s.links[p].Behind
		if len(behind) != 1 {
			return
		}
		p = behind[0]
	}
}

// first is the superseded page that was used least recently, or else the page.
func (s *supersededLRU) first(q *blockQueue) int32 {
	if p := q.top(superseded); p != evict.None {
		return p
	}
	return q.top(current)
}
