package cross

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// Key writes an encoder input as a string: two inputs have the same key if and
// only if they have the same tokens, covered by the same items in the same way.
// The items are valid; their order does not matter.
//
//	length, 8 bytes │ tokens, 4 bytes each │ items by start: start 8, length 8, hash 32
func Key(tokens []messages.Token, items []messages.MultimodalItem) string {
	b := make([]byte, 0, keyHeader+len(tokens)*4+len(items)*48)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tokens)))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	if len(items) > 1 {
		items = slices.Clone(items)
		slices.SortFunc(items, func(a, b messages.MultimodalItem) int { return cmp.Compare(a.Start, b.Start) })
	}
	for _, item := range items {
		b = binary.LittleEndian.AppendUint64(b, uint64(item.Start))
		b = binary.LittleEndian.AppendUint64(b, uint64(item.Length))
		b = append(b, item.Hash[:]...)
	}
	return string(b)
}

const keyHeader = 8

// InputTokens is the number of tokens of the input whose key a namespace has.
func InputTokens(ns messages.Namespace) int { return keyLength(ns.Encoder) }

// keyLength is the number of tokens of the input that has the key.
func keyLength(key string) int {
	n := uint64(0)
	for i := range keyHeader {
		n |= uint64(key[i]) << (8 * i)
	}
	return int(n)
}

// input is an encoder input as the cross side knows it.
type input struct {
	namespace messages.Namespace // with the key
	tokens    []messages.Token   // padded to whole blocks
	length    int                // without the padding
}

// inputOf makes the input of a valid request or prefix.
func (j *Join) inputOf(ns messages.Namespace, tokens []messages.Token, items []messages.MultimodalItem) input {
	ns.Encoder = Key(tokens, items)
	tpb := j.config.TokensPerBlock
	padded := make([]messages.Token, (len(tokens)+tpb-1)/tpb*tpb)
	copy(padded, tokens)
	return input{namespace: ns, tokens: padded, length: len(tokens)}
}
