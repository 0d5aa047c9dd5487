package sequence

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// HoldSymbols says that the prompt has tokens that items cover: the tree keeps the symbols that
// stand for them until ReleaseSymbols. A sequence and its forks share them.
func (s *Sequence) HoldSymbols() {
	s.symbols = new(int)
	*s.symbols = 1
}

// ReleaseSymbols gives the symbols up, without which the sequence can offer nothing to the
// tree any more. It returns the prompt if no other sequence shares them, for the tree to
// forget them, else nil. Without symbols it does nothing.
func (s *Sequence) ReleaseSymbols() []messages.Token {
	if s.symbols == nil {
		return nil
	}
	*s.symbols--
	last := *s.symbols == 0
	s.symbols, s.NoStore = nil, true
	if !last {
		return nil
	}
	return slices.Clone(s.tokens[0][:s.Prompt])
}

// HoldsSymbols tells whether the tree keeps symbols for the prompt of a sequence.
func HoldsSymbols(s *Sequence) bool { return s.symbols != nil }

// HeldSymbols lists the prompts whose symbols sequences hold, each once.
func (a *Arena) HeldSymbols() (held []protocol.HeldSymbols) {
	a.eachHolder(func(i int, s *Sequence) {
		if i == len(held) {
			held = append(held, protocol.HeldSymbols{Tokens: slices.Clone(s.tokens[0][:s.Prompt])})
		}
	})
	return held
}

// ForgetSymbols takes over what the tree says of HeldSymbols: sequences whose symbols are lost
// can offer nothing any more. No sequence has changed between the two.
func (a *Arena) ForgetSymbols(held []protocol.HeldSymbols) {
	a.eachHolder(func(i int, s *Sequence) {
		if held[i].Lost {
			s.symbols, s.NoStore = nil, true
		}
	})
}

// eachHolder visits the sequences that hold symbols, with the index of their prompt: prompts
// are counted in the order in which their first holders come.
func (a *Arena) eachHolder(visit func(prompt int, s *Sequence)) {
	prompts := map[*int]int{}
	a.Each(func(s *Sequence) {
		if s.symbols == nil {
			return
		}
		i, seen := prompts[s.symbols]
		if !seen {
			i = len(prompts)
			prompts[s.symbols] = i
		}
		visit(i, s)
	})
}
