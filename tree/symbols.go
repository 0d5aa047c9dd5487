package tree

import (
	"fmt"
	"math"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// symbol is what two covered tokens have in common if they are the same token of the
// same item. The token id is a part of it, since a host may give two items with one
// hash different placeholders.
type symbol struct {
	hash     [32]byte
	position int32 // of the token in the item
	token    messages.Token
}

// unknownSymbol stands for a covered token that is not in the table, in prompts
// that hold no symbols. It is never stored, so it matches nothing.
const unknownSymbol = messages.Token(math.MinInt32)

// symbols gives the tokens that multimodal items cover negative numbers, equal only
// for the same symbol, so that everything else compares plain integers. The number
// of entry i is −1−i.
//
// Invariant: refs counts, once for each token, the sequences and stored blocks that
// hold an entry; an entry without refs is free.
type symbols struct {
	// entries[index[s]] is s, for each s in index. All other entries are free.
	index   map[symbol]int32
	entries []symbol
	refs    []int32
	free    []int32
}

// entry returns the index of the entry of a negative token.
func entry(tok messages.Token) int32 { return -1 - int32(tok) }

// acquire replaces covered tokens by symbols, which the caller holds from now on.
func (s *symbols) acquire(tokens []messages.Token, items []messages.MultimodalItem) {
	for k := range items {
		it := &items[k]
		for i, tok := range tokens[it.Start : it.Start+it.Length] {
			if tok < 0 {
				continue // replaced, and held, before
			}
			n := s.intern(symbol{hash: it.Hash, position: int32(i), token: tok})
			s.refs[n]++
			tokens[it.Start+i] = messages.Token(-1 - n)
		}
	}
}

// lookup replaces covered tokens by symbols for the time of one call: the caller
// holds nothing.
func (s *symbols) lookup(tokens []messages.Token, items []messages.MultimodalItem) {
	for k := range items {
		it := &items[k]
		for i, tok := range tokens[it.Start : it.Start+it.Length] {
			if tok < 0 {
				continue
			}
			n, ok := s.index[symbol{hash: it.Hash, position: int32(i), token: tok}]
			// A symbol that is not in the table is in no stored block, so a number
			// for it would be of no use.
			tokens[it.Start+i] = unknownSymbol
			if ok {
				tokens[it.Start+i] = messages.Token(-1 - n)
			}
		}
	}
}

// intern returns the entry of a symbol, and makes it if there is none.
func (s *symbols) intern(sym symbol) int32 {
	if n, ok := s.index[sym]; ok {
		return n
	}
	n := int32(len(s.entries))
	if k := len(s.free); k > 0 {
		n, s.free = s.free[k-1], s.free[:k-1]
		s.entries[n] = sym
	} else {
		s.entries = append(s.entries, sym)
		s.refs = append(s.refs, 0)
	}
	s.index[sym] = n
	return n
}

// none tells that no token anywhere is a symbol, so that most work on symbols can
// be left out.
func (s *symbols) none() bool { return len(s.index) == 0 }

// retain adds a reference to each symbol among tokens.
func (s *symbols) retain(tokens []messages.Token) {
	if s.none() {
		return
	}
	for tokens = fromSymbol(tokens); len(tokens) > 0; tokens = fromSymbol(tokens[1:]) {
		s.refs[entry(tokens[0])]++
	}
}

// release ends a reference to each symbol among tokens.
func (s *symbols) release(tokens []messages.Token) {
	for tokens = fromSymbol(tokens); len(tokens) > 0; tokens = fromSymbol(tokens[1:]) {
		tok := tokens[0]
		// A wrong release would free the number of a stored block, and give it to
		// other contents: that would match what is not equal, so it is a panic.
		n := entry(tok)
		if n < 0 || int(n) >= len(s.refs) || s.refs[n] == 0 {
			panic(fmt.Sprintf("tree: release of symbol %d, which has no references", tok))
		}
		if s.refs[n]--; s.refs[n] == 0 {
			s.drop(n)
		}
	}
}

// drop makes an entry free.
func (s *symbols) drop(n int32) {
	delete(s.index, s.entries[n])
	s.entries[n] = symbol{}
	s.free = append(s.free, n)
}

// missing tells whether a token is a symbol whose entry is free.
func (s *symbols) missing(tok messages.Token) bool {
	return tok < 0 && (int(entry(tok)) >= len(s.refs) || s.refs[entry(tok)] == 0)
}

// fromSymbol returns tokens from the first symbol on, none if there is no symbol.
// It looks at the signs of eight tokens at a time.
func fromSymbol(tokens []messages.Token) []messages.Token {
	for len(tokens) >= 8 && tokens[0]|tokens[1]|tokens[2]|tokens[3]|tokens[4]|tokens[5]|tokens[6]|tokens[7] >= 0 {
		tokens = tokens[8:]
	}
	for len(tokens) > 0 && tokens[0] >= 0 {
		tokens = tokens[1:]
	}
	return tokens
}

// original returns a token as the host passed it.
func (s *symbols) original(tok messages.Token) messages.Token {
	if tok < 0 {
		return s.entries[entry(tok)].token
	}
	return tok
}

// originals returns tokens as the host passed them, in a slice of their own.
func (s *symbols) originals(tokens []messages.Token) []messages.Token {
	out := slices.Clone(tokens)
	if !s.none() {
		s.restore(out)
	}
	return out
}

// restore makes tokens those that the host passed.
func (s *symbols) restore(tokens []messages.Token) {
	for i, tok := range tokens {
		tokens[i] = s.original(tok)
	}
}

// covers returns which items cover tokens; nil if none does.
func (s *symbols) covers(tokens []messages.Token) []messages.Cover {
	if s.none() {
		return nil
	}
	var out []messages.Cover
	for i, tok := range tokens {
		if tok >= 0 {
			continue
		}
		if out == nil {
			out = make([]messages.Cover, len(tokens))
		}
		e := &s.entries[entry(tok)]
		out[i] = messages.Cover{Covered: true, Hash: e.hash, Position: int(e.position)}
	}
	return out
}

// ReadTokens answers tokens as the host has passed them, and which items cover them. The
// sequence that asks holds the symbols of its prompt, so each of them has an entry.
func (t *Tree) ReadTokens(m *protocol.ReadTokens) {
	m.Covers = t.arena.symbols.covers(m.Tokens)
	t.arena.symbols.restore(m.Tokens)
}
