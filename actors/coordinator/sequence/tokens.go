package sequence

import "github.com/kvactor/kvactor/messages"

// beamTokens are the tokens of a sequence, in memory of its slot that the next sequence there
// uses again.
type beamTokens struct {
	tokens [][]messages.Token // by beam, all of one length; covered ones are symbols
}

// Extend adds sampled tokens to a sequence of one beam; Shorten takes the last n
// back.
func (s *beamTokens) Extend(tokens []messages.Token) {
	s.tokens[0] = append(s.tokens[0], tokens...)
}

// Shorten is described with Extend.
func (s *beamTokens) Shorten(n int) { s.tokens[0] = s.tokens[0][:len(s.tokens[0])-n] }
