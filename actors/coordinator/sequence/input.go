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
	Tokens   []messages.Token // padded to whole blocks
	Length   TokenCount       // without the padding
	Computed TokenCount       // of the padded input: that of the reused blocks, or all tokens
	Cursor   protocol.Cursor  // of the last block that the tree was seen to hold
	NoStore  bool             // an invalidation named the input: it is not offered to the tree
}

// Begin sets the encoder's input of an opened sequence. Tokens, padded to whole
// blocks, are copied.
func (in *Input) Begin(padded []messages.Token, length TokenCount) {
	in.Tokens = append(in.Tokens, padded...)
	in.Length = length
}

// Given tells whether the sequence is one of an encoder–decoder model.
func (in *Input) Given() bool { return len(in.Tokens) > 0 }

// Pending tells whether the cross pools have not got all keys and values yet: the
// next commit brings them, since no layer of the decoder could have computed anything
// without them.
func (in *Input) Pending() bool { return int(in.Computed) < len(in.Tokens) }

// Commit notes that all of the input is computed, and where the tree has stored
// it; the zero Cursor if nothing was offered.
func (in *Input) Commit(cursor protocol.Cursor) {
	in.Computed = TokenCount(len(in.Tokens))
	if cursor != (protocol.Cursor{}) {
		in.Cursor = cursor
	}
}
