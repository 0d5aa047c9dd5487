package tree

// sessions gives the names of sessions small numbers, so that a block remembers its
// session in four bytes.
//
// Invariant: refs counts the blocks that belong to each session; a session without
// blocks is free, since an invalidation of it would find nothing.
type sessions struct {
	// names[index[name]] is name. The empty name is never in index, and stands in
	// names for a free number.
	index map[string]int32
	names []string
	refs  []int32
	free  []int32
}

// find returns the number of a name that some block belongs to, else none.
func (s *sessions) find(name string) int32 {
	if n, ok := s.index[name]; ok && name != "" {
		return n
	}
	return none
}

// add adds a block to the session of this name and returns its number; the empty
// name is no session.
func (s *sessions) add(name string) int32 {
	if name == "" {
		return none
	}
	n, ok := s.index[name]
	if !ok {
		n = int32(len(s.names))
		if k := len(s.free); k > 0 {
			n, s.free = s.free[k-1], s.free[:k-1]
			s.names[n] = name
		} else {
			s.names = append(s.names, name)
			s.refs = append(s.refs, 0)
		}
		s.index[name] = n
	}
	s.refs[n]++
	return n
}

// remove takes a block out of session n, which may be none. The number may be given
// to another name at once: no block has it any more.
func (s *sessions) remove(n int32) {
	if n == none {
		return
	}
	if s.refs[n]--; s.refs[n] == 0 {
		delete(s.index, s.names[n])
		s.names[n] = ""
		s.free = append(s.free, n)
	}
}
