package handover

import (
	"encoding/binary"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// attributes is the frame that describes a sequence. Salt and names are bytes, because
// they may be no text.
type attributes struct {
	Salt      []byte
	LoRA      []byte
	HasLoRA   bool
	Session   []byte
	Retention *messages.Retention
	Prompt    int
	Computed  int
	Tokens    int
	Items     int
	NoStore   bool
}

// attributesLimit bounds the frame that describes a sequence: names and ranges of
// retention.
const attributesLimit = 4 << 20

// itemBytes is the length of an item: hash, start and length.
const itemBytes = 48

// WriteSequence writes what a sequence is.
func (w *Writer) WriteSequence(s *protocol.SequenceState) error {
	items := itemsOf(s.Covers)
	a := attributes{
		Salt: []byte(s.Namespace.Salt), LoRA: []byte(s.Namespace.LoRA), HasLoRA: s.Namespace.HasLoRA, Session: []byte(s.Session),
		Retention: s.Retention, Prompt: s.Prompt, Computed: s.Computed, Tokens: len(s.Tokens), Items: len(items), NoStore: s.NoStore,
	}
	if err := w.writeJSON(Sequence, &a, attributesLimit); err != nil {
		return err
	}
	body := make([]byte, 0, 4*len(s.Tokens))
	for _, t := range s.Tokens {
		body = binary.LittleEndian.AppendUint32(body, uint32(t))
	}
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
	if a.Tokens < 1 || a.Tokens > maxTokens || a.Items < 0 || a.Items > a.Tokens {
		return nil, corrupt("%d tokens and %d items, at most %d tokens are due", a.Tokens, a.Items, maxTokens)
	}
	s := &protocol.BeginImport{
		Prompt: messages.AdmitRequest{
			Namespace: messages.Namespace{Salt: string(a.Salt), LoRA: string(a.LoRA), HasLoRA: a.HasLoRA},
			Session:   string(a.Session), Retention: a.Retention,
		},
		Length: a.Prompt, Computed: a.Computed, NoStore: a.NoStore,
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
		if start > uint64(a.Tokens) || length > uint64(a.Tokens) {
			return nil, corrupt("an item of %d tokens at %d, in a prompt of %d", length, start, a.Tokens)
		}
		s.Prompt.Multimodal = append(s.Prompt.Multimodal, messages.MultimodalItem{Hash: [32]byte(it), Start: int(start), Length: int(length)})
	}
	return s, nil
}

// exactly reads a frame whose body has so many bytes.
func (r *Reader) exactly(k Kind, length int) ([]byte, error) {
	body, err := r.Frame(k, length)
	if err == nil && len(body) != length {
		err = corrupt("a %v frame of %d bytes, %d are due", k, len(body), length)
	}
	return body, err
}
