package coordinator

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// What is particular to encoder–decoder models. An encoder looks both ways: the keys
// and values of its first token depend on its last. So what cross pools hold is the
// same only if the whole input is: all tokens, the items that cover them, the length,
// salt and LoRA adapter. What the decoder computes depends on all of that as well.
// The key writes an input into one string, which is a part of the namespace of both.
// It is compared in full, like tokens; no number stands for it.
//
// To the cross pools an input is a prompt that is padded to whole blocks. The key has
// the length, so padding is never mistaken for tokens. An input of n tokens takes
// ⌈n/tpb⌉ pages, and identical inputs share all of them.

// keyHeader is the length of the key's first part.
const keyHeader = 8

// keyItem is the length of an item in the key.
const keyItem = 48

// EncoderKey writes an input as a string: two inputs have the same key if and only if
// they have the same tokens, covered by the same items in the same way. The items are
// valid; their order does not matter.
//
//	length, 8 bytes │ tokens, 4 bytes each │ items by start: start 8, length 8, hash 32
func EncoderKey(tokens []messages.Token, items []messages.MultimodalItem) string {
	b := make([]byte, 0, keyHeader+len(tokens)*4+len(items)*48)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tokens)))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	// Sorted, because items may come in any order and mean the same.
	if len(items) > 1 {
		items = slices.Clone(items)
		slices.SortFunc(items,
			func(a, b messages.MultimodalItem) int { return cmp.Compare(a.Start, b.Start) })
	}
	for _, item := range items {
		b = binary.LittleEndian.AppendUint64(b, uint64(item.Start))
		b = binary.LittleEndian.AppendUint64(b, uint64(item.Length))
		b = append(b, item.Hash[:]...)
	}
	return string(b)
}

// ParseEncoderKey reads the input of which a string is the key; ok is false if it is the
// key of none. Whether the engine admits the input is not checked.
func ParseEncoderKey(
	key string,
) (tokens []messages.Token, items []messages.MultimodalItem, ok bool) {
	b := []byte(key)
	if len(b) < keyHeader {
		return nil, nil, false
	}
	n := binary.LittleEndian.Uint64(b)
	if b = b[keyHeader:]; n > uint64(len(b)/4) || (len(b)-4*int(n))%keyItem != 0 {
		return nil, nil, false
	}
	for ; n > 0; n-- {
		tokens, b = append(tokens, messages.Token(binary.LittleEndian.Uint32(b))), b[4:]
	}
	for ; len(b) > 0; b = b[keyItem:] {
		start, length := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		if start > uint64(len(tokens)) || length > uint64(len(tokens)) {
			return nil, nil, false
		}
		items = append(items, messages.MultimodalItem{Start: int(start), Length: int(length),
			Hash: [32]byte(b[16:keyItem])})
	}
	return tokens, items, EncoderKey(tokens, items) == key
}

// dropPartialInputs makes matches of a part of an encoder's input matches of nothing. The encoder
// runs over the whole input if a token of it is missing, and its host may write every page: none
// may be shared then.
func dropPartialInputs(match *protocol.Match) {
	for i := range match.Items {
		if m := &match.Items[i]; m.Cross && m.Matched < len(m.Tokens) {
			m.Matched, m.Blocks, m.IDs, m.Cursor = 0, 0, nil, protocol.Cursor{}
			for p := range m.Pages {
				m.Pages[p] = m.Pages[p][:0]
			}
		}
	}
}

// keyed is a namespace with the weights' identity and the key of the encoder's input; models
// without an encoder have none.
func (c *Config) keyed(
	ns messages.Namespace, tokens []messages.Token, items []messages.MultimodalItem,
) messages.Namespace {
	ns.Weights = c.identity
	if c.EncoderMaxLen > 0 {
		ns.Encoder = EncoderKey(tokens, items)
	}
	return ns
}

// padded is an input with zeros up to a block boundary; nil without an encoder.
func (c *Config) padded(tokens []messages.Token) []messages.Token {
	if c.EncoderMaxLen == 0 {
		return nil
	}
	padded := make([]messages.Token, c.blocks(len(tokens))*c.TokensPerBlock)
	copy(padded, tokens)
	return padded
}

// StoredAs returns the namespace under which the blocks of a prefix are stored, and their
// tokens: those of the prefix, or, without any, those of the encoder's input, padded to whole
// blocks.
func (c *Config) StoredAs(p *messages.Prefix) (messages.Namespace, []messages.Token) {
	tokens := p.Tokens
	if len(tokens) == 0 {
		tokens = c.padded(p.Encoder)
	}
	return c.keyed(p.Namespace, p.Encoder, p.EncoderItems), tokens
}

// validateEncoder checks an encoder input, which is there exactly if the model has an
// encoder.
func (c *Config) validateEncoder(tokens []messages.Token, items []messages.MultimodalItem) error {
	switch {
	case c.EncoderMaxLen == 0 && len(tokens)+len(items) > 0:
		return refusals.New(messages.ErrNotSupported,
			"encoder tokens are for encoder-decoder models only")
	case c.EncoderMaxLen == 0:
		return nil
	case len(tokens) == 0:
		return refusals.New(messages.ErrBadRequest,
			"encoder tokens are empty: the model is an encoder-decoder")
	}
	if err := c.validatePrefix(tokens, items); err != nil {
		return refusals.New(messages.ErrBadRequest, "encoder input: %v", err)
	}
	return nil
}

// validateEncoderLength refuses an encoder input that is too long.
func (c *Config) validateEncoderLength(n int) error {
	if n > c.EncoderMaxLen {
		return refusals.New(messages.ErrTooLong,
			"an encoder input of %d tokens is over encoder_max_len %d", n, c.EncoderMaxLen)
	}
	return nil
}

// ValidatePrefix checks the values of a prefix with its encoder input. With an
// encoder–decoder model a prefix without tokens names the input itself.
func (c *Config) ValidatePrefix(p *messages.Prefix) error {
	if err := refusals.Namespace(&p.Namespace); err != nil {
		return err
	}
	if c.EncoderMaxLen == 0 || len(p.Tokens)+len(p.Multimodal) > 0 {
		if err := c.validatePrefix(p.Tokens, p.Multimodal); err != nil {
			return err
		}
	}
	return c.validateEncoder(p.Encoder, p.EncoderItems)
}
