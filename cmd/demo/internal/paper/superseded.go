package paper

import "slices"

// superseded is LRU in which superseded tails go first.
type superseded struct {
	ranked
	children [][]int32 // by block: the blocks that have followed it and were cached then
	last     []int     // by block: its last request
}

func newSuperseded(capacity int, trace Trace) Cache {
	s := &superseded{ranked: newRanked(capacity, trace)}
	s.children, s.last = make([][]int32, len(s.at)), make([]int, len(s.at))
	return s
}

// Use stores a prompt, and makes the tails that it leaves behind the next victims.
func (s *superseded) Use(i int, blocks []int32) {
	for k, b := range blocks {
		known := s.Has(b)
		s.set(b, float64(i)+1, k)
		s.last[b] = i
		if known || k == 0 {
			continue
		}
		front := blocks[k-1]
		s.children[front] = slices.DeleteFunc(s.children[front], func(c int32) bool { return c == b || !s.Has(c) })
		if others := s.children[front]; len(others) == 1 {
			s.supersede(others[0])
		}
		s.children[front] = append(s.children[front], b)
	}
	s.shrink()
}

// supersede makes a block and all behind it the next victims.
func (s *superseded) supersede(b int32) {
	for {
		s.set(b, float64(s.last[b])-1e9, int(s.rank[b].depth))
		next := slices.DeleteFunc(s.children[b], func(c int32) bool { return !s.Has(c) })
		if s.children[b] = next; len(next) != 1 {
			return
		}
		b = next[0]
	}
}
