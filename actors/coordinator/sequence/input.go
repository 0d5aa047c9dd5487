package sequence

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Input is what a sequence of an encoder–decoder model knows of the encoder's input.
// The pages of cross pools hold the keys and values that the decoder's layers compute
// from the encoder's output. An encoder looks both ways, so they depend on the whole
// input; they are all computed at once, before the first token of the decoder, and
// never change. So a sequence has one table in each cross pool, for all its beams:
// it neither grows nor leaves a window, and no one writes to pages that are computed.
type Input struct {
	tokensPerBlock int

	tokens   []messages.Token // padded to whole blocks
	length   TokenCount       // without the padding
	retained BlockIndex       // leading blocks that have had this request's retention
	computed TokenCount       // that of the reused blocks, or all tokens
	cursor   protocol.Cursor  // of the last block that the tree was seen to hold
	noStore  bool             // an invalidation named the input
}

// Begin sets the encoder's input of an opened sequence. Tokens, padded to whole
// blocks, are copied.
func (in *Input) Begin(padded []messages.Token, length TokenCount) {
	in.tokens = append(in.tokens, padded...)
	in.length = length
}

// Given tells whether the sequence is one of an encoder–decoder model.
func (in *Input) Given() bool { return len(in.tokens) > 0 }

// Tokens are the encoder's tokens, padded to whole blocks.
func (in *Input) Tokens() []messages.Token { return in.tokens }

// Length is the number of the encoder's tokens without the padding.
func (in *Input) Length() TokenCount { return in.length }

// Computed is the number of leading tokens of the padded input whose keys and
// values are in the pages of the cross pools.
func (in *Input) Computed() TokenCount { return in.computed }

// Pending tells whether the cross pools have not got all keys and values yet: the
// next commit brings them, since no layer of the decoder could have computed anything
// without them.
func (in *Input) Pending() bool { return int(in.computed) < len(in.tokens) }

// Cursor is where the tree was seen to hold the last stored block of the input.
func (in *Input) Cursor() protocol.Cursor { return in.cursor }

// Stores tells whether the sequence still offers its input to the tree.
func (in *Input) Stores() bool { return !in.noStore }

// StopStoring makes the sequence offer nothing of its input from now on.
func (in *Input) StopStoring() { in.noStore = true }

// RetentionFrom is the number of leading blocks of the input that have had the
// retention of this request: those that were reused, and all once they are stored.
func (in *Input) RetentionFrom() BlockIndex { return in.retained }

// Admit notes how many leading blocks of the input were reused.
func (in *Input) Admit(reused BlockIndex) {
	in.retained = reused
	in.computed = TokenCount(int(reused) * in.tokensPerBlock)
}

// Commit notes that all of the input is computed, and where the tree has stored
// it; the zero Cursor if nothing was offered.
func (in *Input) Commit(cursor protocol.Cursor) {
	in.computed = TokenCount(len(in.tokens))
	in.retained = BlockIndex(int(in.computed) / in.tokensPerBlock)
	if cursor != (protocol.Cursor{}) {
		in.cursor = cursor
	}
}
