package sequence

// CompleteImport completes the admission of a sequence whose contents come from another
// engine: the tables are those of a sequence with n computed tokens, none of which is
// computed yet, and others may hold pages of the first shared blocks.
func CompleteImport(s *Sequence, n TokenCount, shared BlockIndex) {
	s.sharedBlocks = shared
	for p := range s.pools {
		if shape := &s.arena.shapes[p]; !shape.full {
			s.pools[p].windowStart = min(shape.firstKept(n), BlockIndex(len(s.pools[p].beams[0])))
		}
	}
	s.admitted = true
}

// HoldsSymbols tells whether the tree keeps symbols for the prompt of a sequence.
func HoldsSymbols(s *Sequence) bool { return s.symbols != nil }
