package sequence

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Begin sets what the admission says of an opened sequence; tokens are copied. A
// chunk above 0 computes the prompt in chunks.
func (s *Sequence) Begin(o Origin, tokens []messages.Token, chunk TokenCount) {
	s.Origin, s.chunk = o, chunk
	s.tokens[0] = append(s.tokens[0], tokens...)
}

// Plan notes how much of the prompt an admission is about to reuse: so many whole
// blocks, and matched tokens in all, which are computed if it is admitted.
func (s *Sequence) Plan(reused BlockIndex, matched TokenCount) {
	s.reusedBlocks, s.computed = reused, matched
}

// Cut ends the prompt of an admitted sequence behind its first tokens, all of them computed. It
// returns the rest if the tree keeps symbols for it, for the tree to forget them. If there are
// any, the sequence stores nothing more: an append has no items, and what it computes of these
// tokens would be found without them.
func Cut(s *Sequence, tokens TokenCount) (rest []messages.Token) {
	if s.symbols != nil {
		rest = slices.Clone(s.tokens[0][tokens:s.Prompt])
		s.NoStore = s.NoStore || slices.ContainsFunc(rest, func(t messages.Token) bool { return t < 0 })
	}
	s.tokens[0], s.Prompt = s.tokens[0][:tokens], tokens
	return rest
}

// Admit completes the admission: what was planned is reused. reserves are by pool.
func (s *Sequence) Admit(reserves func(pool int) PageCount) {
	s.sharedBlocks, s.retainedBlocks = s.reusedBlocks, s.reusedBlocks
	for p := range s.pools {
		s.setReserve(p, reserves(p))
		if s.arena.keepsAll(p) {
			continue
		}
		s.pools[p].windowStart = s.arena.firstKept(p, s.computed)
	}
	s.admitted = true
}

// Spread gives every beam the tokens and the tables of the first. A sequence in
// chunks only notes the number: it has one table until its prompt is computed.
func (s *Sequence) Spread(beams int) {
	if beams < 2 {
		return
	}
	// The references of further beams would be pages beside the reserve; they are added when
	// the prompt is computed and the reserve ends.
	if s.chunk > 0 {
		s.pendingBeams = beams
		return
	}
	spreadBeams(s, beams)
}

// spreadBeams gives further beams what the first one has. Working pages and the tables of an
// input are one for all beams.
func spreadBeams(s *Sequence, beams int) {
	s.tokens = spread(s.tokens, beams)
	for p := range s.arena.tokenPools {
		s.pools[p].beams = spread(s.pools[p].beams, beams)
	}
}

// spread copies the first list into n−1 further ones.
func spread[T any](lists [][]T, n int) [][]T {
	first := lists[0]
	lists = Reopen(lists[:1], n)
	lists[0] = first
	for i := 1; i < n; i++ {
		lists[i] = append(lists[i], first...)
	}
	return lists
}

// Extend adds sampled tokens to a sequence of one beam; Shorten takes the last n
// back.
func (s *Sequence) Extend(tokens []messages.Token) { s.tokens[0] = append(s.tokens[0], tokens...) }

// Shorten is described with Extend.
func (s *Sequence) Shorten(n int) { s.tokens[0] = s.tokens[0][:len(s.tokens[0])-n] }

// ExtendBeams makes each beam a copy of its parent and one more token.
func (s *Sequence) ExtendBeams(steps []messages.BeamStep) {
	tokens := make([][]messages.Token, s.Width())
	for i, b := range steps {
		tokens[i] = append(slices.Clone(s.tokens[b.Parent]), b.Token)
	}
	s.tokens = tokens
}

// OwnFrom says that no other sequence holds a block from the given one on: it is
// about to be written to. Blocks before it stay as they are.
func (s *Sequence) OwnFrom(first BlockIndex) {
	s.sharedBlocks = min(s.sharedBlocks, first)
}

// Stored is what a store has told of a sequence: the whole blocks that the tree
// knows now, and where it saw the last of them.
type Stored struct {
	Blocks BlockIndex
	Cursor protocol.Cursor
}

// Commit makes the first n tokens computed and takes what leaves the windows out of
// the tables. stored is nil if nothing was offered to the tree.
func (s *Sequence) Commit(n TokenCount, stored *Stored) {
	for p := range s.pools {
		from, to := s.LeavingWindow(p, n)
		for _, table := range s.pools[p].beams {
			// The caller has dropped these pages in the same round.
			for b := from; b < to; b++ {
				table[b] = messages.NoPage
			}
		}
		s.pools[p].windowStart = max(s.pools[p].windowStart, to)
	}
	if stored != nil {
		s.Cursor = stored.Cursor
		// What is stored can be matched by others, and has had the retention of this request.
		s.sharedBlocks, s.retainedBlocks = max(s.sharedBlocks, stored.Blocks),
			max(s.retainedBlocks, stored.Blocks)
	}
	s.computed = n
	if s.chunk == 0 || n < s.Prompt {
		return
	}
	// All pages that the prompt needs are there.
	s.EndReserve()
	if s.pendingBeams > 1 {
		spreadBeams(s, s.pendingBeams)
		s.pendingBeams = 0
	}
}

// RetentionFrom is the first block whose priority and timer this request has not
// set: a request sets them once for each block, also if it comes to the same tokens
// again after a rewind.
func (s *Sequence) RetentionFrom() BlockIndex {
	return max(s.retainedBlocks, s.retained.blocks(s.tokens[0], s.arena.tokensPerBlock))
}

// Rewind drops the last n tokens of a sequence of one beam. The blocks that the
// tables lose are the caller's to drop before, see RewindBlocks.
func (s *Sequence) Rewind(n TokenCount) {
	length := s.Length() - n
	blocks, whole := s.arena.blocks(length), s.arena.wholeBlocks(length)
	// What the request has set on blocks that it now gives up is remembered: it must not set
	// it again, also if the same tokens come back.
	if s.Retention != nil && s.retainedBlocks > whole {
		s.retained = s.retained.with(s.tokens[0][:int(s.retainedBlocks)*s.arena.tokensPerBlock])
	}
	s.tokens[0] = s.tokens[0][:length]
	s.computed = min(s.computed, length)
	if s.retainedBlocks > whole || s.sharedBlocks > whole {
		// The last stored block is no longer the sequence's.
		s.Cursor = protocol.Cursor{}
		s.retainedBlocks = min(s.retainedBlocks, whole)
	}
	s.sharedBlocks = min(s.sharedBlocks, blocks)
	for p := range s.arena.tokenPools {
		held := &s.pools[p]
		held.beams[0] = held.beams[0][:blocks]
		held.windowStart = min(held.windowStart, blocks)
	}
}

// RewindBlocks is the number of blocks that are left after a rewind of n tokens.
func (s *Sequence) RewindBlocks(n TokenCount) BlockIndex { return s.arena.blocks(s.Length() - n) }

// DroppedBefore finds a limited pool whose window a rewind of n tokens cannot enter
// again, because the next token would attend to a block that has been dropped: the
// pool and the last such block. ok is false if there is none.
func (s *Sequence) DroppedBefore(n TokenCount) (pool int, block BlockIndex, ok bool) {
	next := min(s.computed, s.Length()-n)
	for p := range s.pools {
		shape := &s.arena.pools[p]
		dropped := min(s.pools[p].windowStart, s.arena.blocks(next)) // of those before the next token
		if !shape.Full() && BlockIndex(max(shape.FirstNeeded(int(next)), shape.SinkBlocks())) < dropped {
			return p, dropped - 1, true
		}
	}
	return 0, 0, false
}

// Fork makes f, an opened sequence, a copy of s that shares all its pages. The
// references are the caller's to claim.
func (s *Sequence) Fork(f *Sequence) {
	f.Origin = s.Origin
	f.tokens[0] = append(f.tokens[0], s.tokens[0]...)
	f.given = s.Length() - s.Prompt
	f.computed, f.reusedBlocks, f.retainedBlocks, f.retained = s.computed, s.reusedBlocks,
		s.retainedBlocks, s.retained
	f.Cursor, f.NoStore, f.admitted = s.Cursor, s.NoStore, true
	if s.symbols != nil {
		f.symbols = s.symbols
		*f.symbols++
	}
	tokens := append(f.Input.Tokens, s.Input.Tokens...)
	f.Input = s.Input
	f.Input.Tokens = tokens
	for p := range s.pools {
		// A working page is never shared: the caller has taken one for the fork.
		if p >= s.arena.tokenPools && p < s.arena.selfPools {
			continue
		}
		f.pools[p].beams[0] = append(f.pools[p].beams[0], s.pools[p].beams[0]...)
		f.pools[p].windowStart = s.pools[p].windowStart
	}
	s.sharedBlocks = s.Blocks()
	f.sharedBlocks = s.sharedBlocks
}

// CompleteImport completes the admission of a sequence whose contents come from another
// engine: the tables are those of a sequence with n computed tokens, none of which is
// computed yet, and others may hold pages of the first shared blocks.
func CompleteImport(s *Sequence, n TokenCount, shared BlockIndex) {
	s.sharedBlocks = shared
	s.given = s.Length() - s.Prompt
	for p := range s.pools {
		if !s.arena.keepsAll(p) {
			s.pools[p].windowStart = min(s.arena.firstKept(p, n), BlockIndex(len(s.pools[p].beams[0])))
		}
	}
	s.admitted = true
}

// retainedPrefixes are the token prefixes of blocks that received this request's
// retention before a rewind took them away. Each ends at a block boundary, and none
// begins another. Forks share the list, so it is never changed in place.
type retainedPrefixes [][]messages.Token

// with adds a prefix and drops those that begin it.
func (l retainedPrefixes) with(tokens []messages.Token) retainedPrefixes {
	kept := make(retainedPrefixes, 0, len(l)+1)
	for _, known := range l {
		switch n := sharedTokens(known, tokens); {
		case n == len(tokens):
			return l
		case n < len(known):
			kept = append(kept, known)
		}
	}
	return append(kept, slices.Clone(tokens))
}

// blocks is the number of leading blocks of tokens that the list has.
func (l retainedPrefixes) blocks(tokens []messages.Token, tokensPerBlock int) BlockIndex {
	n := 0
	for _, known := range l {
		n = max(n, sharedTokens(known, tokens)/tokensPerBlock)
	}
	return BlockIndex(n)
}

// sharedTokens is the number of leading tokens that a and b have in common.
func sharedTokens(a, b []messages.Token) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
