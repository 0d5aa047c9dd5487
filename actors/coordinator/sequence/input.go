package sequence

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// input is what a sequence of an encoder–decoder model knows of the encoder's input.
// The pages of cross pools hold the keys and values that the decoder's layers compute
// from the encoder's output. An encoder looks both ways, so they depend on the whole
// input; they are all computed at once, before the first token of the decoder, and
// never change. So a sequence has one table in each cross pool, for all its beams:
// it neither grows nor leaves a window, and no one writes to pages that are computed.
type input struct {
	tokens   []messages.Token // padded to whole blocks
	length   TokenCount       // without the padding
	retained BlockIndex       // leading blocks that have had this request's retention
	computed TokenCount       // that of the reused blocks, or all tokens
	cursor   protocol.Cursor  // of the last block that the tree was seen to hold
	noStore  bool             // an invalidation named the input
}

// BeginInput sets the encoder's input of an opened sequence. Tokens, padded to whole
// blocks, are copied.
func (s *Sequence) BeginInput(padded []messages.Token, length TokenCount) {
	s.input.tokens = append(s.input.tokens, padded...)
	s.input.length = length
}

// HasInput tells whether the sequence is one of an encoder–decoder model.
func (s *Sequence) HasInput() bool { return len(s.input.tokens) > 0 }

// InputTokens are the encoder's tokens, padded to whole blocks.
func (s *Sequence) InputTokens() []messages.Token { return s.input.tokens }

// InputLength is the number of the encoder's tokens without the padding.
func (s *Sequence) InputLength() TokenCount { return s.input.length }

// InputComputed is the number of leading tokens of the padded input whose keys and
// values are in the pages of the cross pools.
func (s *Sequence) InputComputed() TokenCount { return s.input.computed }

// InputPending tells whether the cross pools have not got all keys and values yet: the
// next commit brings them, since no layer of the decoder could have computed anything
// without them.
func (s *Sequence) InputPending() bool { return int(s.input.computed) < len(s.input.tokens) }

// InputCursor is where the tree was seen to hold the last stored block of the input.
func (s *Sequence) InputCursor() protocol.Cursor { return s.input.cursor }

// StoresInput tells whether the sequence still offers its input to the tree.
func (s *Sequence) StoresInput() bool { return !s.input.noStore }

// StopStoringInput makes the sequence offer nothing of its input from now on.
func (s *Sequence) StopStoringInput() { s.input.noStore = true }

// InputRetained is the number of leading blocks of the input that have had the
// retention of this request: those that were reused, and all once they are stored.
func (s *Sequence) InputRetained() BlockIndex { return s.input.retained }

// AdmitInput notes how many leading blocks of the input were reused.
func (s *Sequence) AdmitInput(reused BlockIndex) {
	s.input.retained = reused
	s.input.computed = TokenCount(int(reused) * s.arena.tokensPerBlock)
}

// CommitInput notes that all of the input is computed, and where the tree has stored
// it; the zero Cursor if nothing was offered.
func (s *Sequence) CommitInput(cursor protocol.Cursor) {
	s.input.computed = TokenCount(len(s.input.tokens))
	s.input.retained = s.arena.wholeBlocks(s.input.computed)
	if cursor != (protocol.Cursor{}) {
		s.input.cursor = cursor
	}
}

// cross tells whether a pool is a cross pool.
func (s *Sequence) cross(pool int) bool { return pool >= s.arena.selfPools }
