package tree

import (
	"fmt"
	"math"

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
// for the same symbol, so that everything else compares plain integers. Number n stands
// in prompts as −1−n. Each token of a sequence or stored block holds a reference.
type symbols struct{ numbers[symbol] }

// entry returns the index of the entry of a negative token.
func entry(tok messages.Token) int32 { return -1 - int32(tok) }

// acquire replaces covered tokens by symbols, which the caller holds from now on.
func (s *symbols) acquire(tokens []messages.Token, items []messages.MultimodalItem) {
	replace(tokens, items,
		func(sym symbol) messages.Token { return messages.Token(-1 - s.numbers.retain(sym)) })
}

// lookup replaces covered tokens by symbols for the time of one call: the caller
// holds nothing.
func (s *symbols) lookup(tokens []messages.Token, items []messages.MultimodalItem) {
	replace(tokens, items, func(sym symbol) messages.Token {
		if n, ok := s.index[sym]; ok {
			return messages.Token(-1 - n)
		}
		// A symbol that is not in the table is in no stored block, so a number
		// for it would be of no use.
		return unknownSymbol
	})
}

// replace replaces covered tokens, but for those that were replaced before.
func replace(
	tokens []messages.Token, items []messages.MultimodalItem, with func(symbol) messages.Token,
) {
	for k := range items {
		it := &items[k]
		for i, tok := range tokens[it.Start : it.Start+it.Length] {
			if tok >= 0 {
				tokens[it.Start+i] = with(symbol{hash: it.Hash, position: int32(i), token: tok})
			}
		}
	}
}

// none tells that no token anywhere is a symbol, so that most work on symbols can
// be left out.
func (s *symbols) none() bool { return len(s.index) == 0 }

// retain adds a reference to each symbol among tokens.
func (s *symbols) retain(tokens []messages.Token) { s.each(tokens, func(n int32) { s.refs[n]++ }) }

// release ends a reference to each symbol among tokens.
func (s *symbols) release(tokens []messages.Token) {
	s.each(tokens, func(n int32) {
		// A wrong release would free the number of a stored block, and give it to
		// other contents: that would match what is not equal, so it is a panic.
		if n < 0 || int(n) >= len(s.refs) || s.refs[n] == 0 {
			panic(fmt.Sprintf("tree: release of symbol %d, which has no references", -1-n))
		}
		s.numbers.release(n)
	})
}

// each calls f with the entry of each symbol among tokens.
func (s *symbols) each(tokens []messages.Token, f func(n int32)) {
	for _, tok := range tokens {
		if tok < 0 {
			f(entry(tok))
		}
	}
}

// missing tells whether a token is a symbol whose entry is free.
func (s *symbols) missing(tok messages.Token) bool {
	return tok < 0 && (int(entry(tok)) >= len(s.refs) || s.refs[entry(tok)] == 0)
}

// restore makes tokens those that the host passed, and returns them.
func (s *symbols) restore(tokens []messages.Token) []messages.Token {
	for i, tok := range tokens {
		if tok < 0 {
			tokens[i] = s.values[entry(tok)].token
		}
	}
	return tokens
}

// covers returns which items cover tokens; nil if none does.
func (s *symbols) covers(tokens []messages.Token) []messages.Cover {
	var out []messages.Cover
	for i, tok := range tokens {
		if tok >= 0 {
			continue
		}
		if out == nil {
			out = make([]messages.Cover, len(tokens))
		}
		e := &s.values[entry(tok)]
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
