package sequence

import (
	"slices"

	"github.com/kvactor/kvactor/internal/arraypool"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// tokenArrays are the arrays that sequences keep the tokens of their first beams in.
// An array is used by at most one sequence, and the tree may refer to it: then the
// tokens that were lent do not change any more, and the sequence only appends behind
// them. An array that neither uses waits for the next sequence. It is lent from the
// moment that it is offered, so that an answer which is lost in a failure leaves nothing
// that might be written to; then the garbage collector gets the array in the end.
//
//	sequence ──Lend──▶ sequence and tree ──End──▶ tree ──Returned──▶ spare ──▶ sequence
//	                           └──────Returned──▶ sequence ──End──────▲
//
// A host that gives arrays away makes one for each request, so their memory would not be used again, and is not kept. The
// record (protocol.TokenArray) is kept for the next one.
type tokenArrays struct {
	spare   arraypool.Pool[*protocol.TokenArray]
	records []*protocol.TokenArray // without tokens, for arrays of the host's
}

const (
	// spareTokens is how many tokens the spare arrays have room for at most: 4 MiB.
	// What is more than that goes to the garbage collector.
	spareTokens = 1 << 20
	// minMore is the least room for further tokens that an array gets which must grow.
	minMore = 16
	// spareRecords is how many records without tokens are kept at most: those of the arrays that one message returns.
	spareRecords = 1024
)

// take returns a spare array with room for n tokens, or nil: one that is little longer,
// or else one of up to about four times that. The tree refers to none of the second
// kind, as it would keep too much for the tokens; but a copy costs less than memory that
// the system must supply.
func (a *tokenArrays) take(n int) *protocol.TokenArray {
	if array, ok := a.spare.Take(n, n+max(n/4, 64)); ok {
		return array
	}
	array, _ := a.spare.TakeLonger(n)
	return array
}

// put takes an array that neither a sequence nor the tree uses.
func (a *tokenArrays) put(array *protocol.TokenArray) {
	if array.Given {
		if array.Tokens = nil; len(a.records) < spareRecords {
			a.records = append(a.records, array)
		}
		return
	}
	a.spare.Put(array, len(array.Tokens), spareTokens)
}

// of returns the array of tokens that the host has made. What is behind the tokens stays the host's to know, so it is not used.
func (a *tokenArrays) of(tokens []messages.Token) *protocol.TokenArray {
	var array *protocol.TokenArray
	if n := len(a.records); n > 0 {
		array, a.records = a.records[n-1], a.records[:n-1]
	} else {
		array = &protocol.TokenArray{Given: true}
	}
	array.Tokens = slices.Clip(tokens)
	return array
}

// copyOf returns an array that begins with tokens, with room for about more of them.
func (a *tokenArrays) copyOf(tokens []messages.Token, more int) *protocol.TokenArray {
	array := a.take(len(tokens) + more)
	switch {
	case array != nil:
		copy(array.Tokens, tokens)
		return array
	case more == 0:
		// append does not clear memory that it copies to, and rounds its size up.
		memory := append([]messages.Token(nil), tokens...)
		return &protocol.TokenArray{Tokens: memory[:cap(memory)]}
	}
	memory := make([]messages.Token, len(tokens)+more)
	copy(memory, tokens)
	return &protocol.TokenArray{Tokens: memory}
}

// drop says that no sequence uses an array any more.
func (a *tokenArrays) drop(array *protocol.TokenArray) {
	if array.InUse = false; !array.Lent {
		a.put(array)
	}
}

// giveBack says that the tree does not refer to an array any more.
func (a *tokenArrays) giveBack(array *protocol.TokenArray) {
	if array.Lent = false; !array.InUse {
		a.put(array)
	}
}

// beamTokens are the tokens of a sequence.
type beamTokens struct {
	arrays *tokenArrays
	tokens [][]messages.Token // by beam, all of one length; covered ones are symbols
	// array is the memory of tokens[0], which begins where it begins; nil once beams have
	// different tokens. The tree may refer to the first lent tokens of it, which are not
	// written to.
	array *protocol.TokenArray
	lent  TokenCount
	given bool // the array is the host's until the sequence is admitted
}

// setTokens makes a copy of tokens those of the first beam of a sequence that has none.
func (s *beamTokens) setTokens(tokens []messages.Token) {
	s.array, s.lent = s.arrays.copyOf(tokens, 0), 0
	s.array.InUse = true
	s.tokens[0] = s.array.Tokens[:len(tokens)]
}

// keepTokens makes the array of tokens that of the first beam of a sequence that has
// none.
func (s *beamTokens) keepTokens(tokens []messages.Token) {
	s.array, s.lent, s.given = s.arrays.of(tokens), 0, true
	s.array.InUse = true
	s.tokens[0] = s.array.Tokens
}

// mustGrow tells whether n tokens cannot be appended where the tokens of the first beam
// are: there is no room, or the tree refers to what would be written to.
func (s *beamTokens) mustGrow(n int) bool {
	old := s.tokens[0]
	return len(old)+n > cap(old) || len(old) < int(s.lent) || s.array == nil
}

// growTokens gives the first beam an array with room for n more tokens, which may be
// written to.
func (s *beamTokens) growTokens(n int) {
	old := s.tokens[0]
	next := s.arrays.copyOf(old, n+len(old)/4+minMore)
	s.leaveTokens()
	s.array, next.InUse = next, true
	s.tokens[0] = next.Tokens[:len(old)]
}

// leaveTokens gives up the array of the first beam.
func (s *beamTokens) leaveTokens() {
	if s.array != nil {
		s.arrays.drop(s.array)
	}
	s.array, s.lent, s.given, s.tokens[0] = nil, 0, false, nil
}

// Extend adds sampled tokens to a sequence of one beam; Shorten takes the last n
// back.
func (s *beamTokens) Extend(tokens []messages.Token) {
	if s.mustGrow(len(tokens)) {
		s.growTokens(len(tokens))
	}
	s.tokens[0] = append(s.tokens[0], tokens...)
}

// Shorten is described with Extend.
func (s *beamTokens) Shorten(n int) { s.tokens[0] = s.tokens[0][:len(s.tokens[0])-n] }

// Lend offers the array of the first beam to the tree, which may refer to the first n
// tokens until the array is returned. It is nil if the tokens are not in an array of
// their own.
func (s *beamTokens) Lend(n TokenCount) *protocol.TokenArray {
	if s.array == nil {
		return nil
	}
	s.array.Lent = true
	s.lent = max(s.lent, n)
	return s.array
}

// Returned says that the tree refers to arrays no more.
func (a *Arena) Returned(arrays []*protocol.TokenArray) {
	for _, array := range arrays {
		a.tokens.giveBack(array)
	}
}
