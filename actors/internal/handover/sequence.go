package handover

import (
	"encoding/binary"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// attributes is the frame that describes a sequence. Salt and names are bytes, because
// they may be no text.
// JSON would replace what is no UTF-8, and two salts could become one.
type attributes struct {
	Salt      []byte
	LoRA      []byte
	HasLoRA   bool
	Session   []byte
	Retention *messages.Retention
	// Prompt, Computed, Tokens and Items are counts: of the prompt's tokens, of the leading
	// tokens whose keys and values the pages have, of all tokens, and of multimodal items.
	Prompt   int
	Computed int
	Tokens   int
	Items    int
	// NoStore: an invalidation has selected the sequence, so the receiver stores nothing of it.
	NoStore bool
	// Encoder is the key of an encoder–decoder model's input, which has all of it;
	// InputRetention and InputNoStore are of the input.
	Encoder        []byte              `json:",omitempty"`
	Weights        []byte              `json:",omitempty"`
	InputRetention *messages.Retention `json:",omitempty"`
	InputNoStore   bool                `json:",omitempty"`
}

// attributesLimit bounds the frame that describes a sequence: names and ranges of
// retention.
// It is in bytes.
const attributesLimit = 4 << 20

// itemBytes is the length of an item: hash, start and length.
// These are 32, 8 and 8 bytes.
const itemBytes = 48

// WriteSequence writes what a sequence is.
// Tokens and items have frames of their own in binary: a prompt of a million tokens is 4 MB
// so, and would be more and slower as JSON.
func (w *Writer) WriteSequence(s *protocol.SequenceState) error {
	items := itemsOf(s.Covers)
	a := attributes{
		Salt: []byte(s.Namespace.Salt), LoRA: []byte(s.Namespace.LoRA), HasLoRA: s.Namespace.HasLoRA,
		Session:   []byte(s.Session),
		Retention: s.Retention, Prompt: s.Prompt, Computed: s.Computed, Tokens: len(s.Tokens),
		Items: len(items), NoStore: s.NoStore,
		Encoder: []byte(s.Namespace.Encoder), Weights: []byte(s.Namespace.Weights),
		InputRetention: s.InputRetention, InputNoStore: s.InputNoStore,
	}
	if err := w.writeJSON(Sequence, &a, attributesLimit); err != nil {
		return err
	}
	body := make([]byte, 0, 4*len(s.Tokens))
	for _, t := range s.Tokens {
		body = binary.LittleEndian.AppendUint32(body, uint32(t))
	}
	// The frame of items is left out if there are none: Items in the frame before says so.
	if err := w.Frame(Tokens, body); err != nil || len(items) == 0 {
		return err
	}
	body = make([]byte, 0, itemBytes*len(items))
	for _, it := range items {
		body = append(body, it.Hash[:]...)
		body = binary.LittleEndian.AppendUint64(body, uint64(it.Start))
		body = binary.LittleEndian.AppendUint64(body, uint64(it.Length))
	}
	return w.Frame(Items, body)
}

// itemsOf are the items that cover tokens. An item begins where a position is 0, so that
// one which follows another of the same content is one of its own.
func itemsOf(covers []messages.Cover) (items []messages.MultimodalItem) {
	for i, c := range covers {
		switch {
		// A token of the text, which ends the item before it.
		case !c.Covered:
		case c.Position == 0:
			items = append(items, messages.MultimodalItem{Hash: c.Hash, Start: i, Length: 1})
		default:
			items[len(items)-1].Length++
		}
	}
	return items
}

// ReadSequence reads what a sequence is, of at most maxTokens tokens. Only lengths are
// checked: the engine that admits it checks the values.
func (r *Reader) ReadSequence(maxTokens int) (*protocol.BeginImport, error) {
	var a attributes
	if err := r.readJSON(Sequence, &a, attributesLimit); err != nil {
		return nil, err
	}
	// An item covers at least one token, so there are no more items than tokens. These two
	// bound the memory that the next frames take.
	if a.Tokens < 1 || a.Tokens > maxTokens || a.Items < 0 || a.Items > a.Tokens {
		return nil, corrupt("%d tokens and %d items, at most %d tokens are due", a.Tokens, a.Items,
			maxTokens)
	}
	s := &protocol.BeginImport{
		Prompt: messages.AdmitRequest{
			Namespace: messages.Namespace{Salt: string(a.Salt), LoRA: string(a.LoRA), HasLoRA: a.HasLoRA,
				Encoder: string(a.Encoder), Weights: string(a.Weights)},
			Session: string(a.Session), Retention: a.Retention, EncoderRetention: a.InputRetention,
		},
		Length: a.Prompt, Computed: a.Computed, NoStore: a.NoStore, InputNoStore: a.InputNoStore,
	}
	body, err := r.exactly(Tokens, 4*a.Tokens)
	if err != nil {
		return nil, err
	}
	s.Prompt.Tokens = make([]messages.Token, a.Tokens)
	for i := range s.Prompt.Tokens {
		s.Prompt.Tokens[i] = messages.Token(binary.LittleEndian.Uint32(body[4*i:]))
	}
	if a.Items == 0 {
		return s, nil
	}
	if body, err = r.exactly(Items, itemBytes*a.Items); err != nil {
		return nil, err
	}
	for it := range slices.Chunk(body, itemBytes) {
		start, length := binary.LittleEndian.Uint64(it[32:]), binary.LittleEndian.Uint64(it[40:])
		// Compared before they become int: a length of 2⁶³ would be negative, and valid.
		if start > uint64(a.Tokens) || length > uint64(a.Tokens) {
			return nil, corrupt("an item of %d tokens at %d, in a prompt of %d", length, start, a.Tokens)
		}
		s.Prompt.Multimodal = append(s.Prompt.Multimodal, messages.MultimodalItem{Hash: [32]byte(it),
			Start: int(start), Length: int(length)})
	}
	return s, nil
}

// exactly reads a frame whose body has so many bytes.
// A frame of another length does not fit what was said before it, whatever its checksum.
func (r *Reader) exactly(k Kind, length int) ([]byte, error) {
	body, err := r.Frame(k, length)
	if err == nil && len(body) != length {
		err = corrupt("a %v frame of %d bytes, %d are due", k, len(body), length)
	}
	return body, err
}
