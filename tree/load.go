package tree

import "github.com/kvactor/kvactor/internal/protocol"

// blocksInTree answers what is in the tree of the blocks of a prompt, whatever could be
// matched of it.
func (t *matcher) blocksInTree(s *protocol.BlocksInTree) {
	s.Blocks = append(s.Blocks[:0], t.path...)
	s.Pages = resize(s.Pages, len(t.arena.pools))
	for p := range t.arena.pools {
		s.Pages[p] = resize(s.Pages[p], len(t.path))
		t.copyLocations(s.Pages[p], p, 0, int32(len(t.path)))
	}
}
