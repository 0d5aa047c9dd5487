package handover

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Opening is the first message of a stream: what its pages depend on, and what its sequence is.
type Opening struct {
	// Answers: the source reads answers, and releases the pages when the receiver says so.
	Answers  bool
	Shape    Shape
	Sequence Sequence
}

// Sequence describes a sequence. Salt and names are bytes, because they may be no text: JSON
// would replace what is no UTF-8, and two salts could become one.
type Sequence struct {
	Salt      []byte
	LoRA      []byte
	HasLoRA   bool
	Session   []byte
	Retention *messages.Retention
	// Prompt and Computed are counts: of the prompt's tokens, and of the leading tokens whose keys
	// and values the pages have.
	Prompt   int
	Computed int
	Tokens   []byte // four for each token
	Items    []messages.MultimodalItem
	// NoStore: an invalidation has selected the sequence, so the receiver stores nothing of it.
	NoStore bool
	// Encoder is the key of an encoder–decoder model's input, which has all of it;
	// InputRetention and InputNoStore are of the input.
	Encoder        []byte              `json:",omitempty"`
	Weights        []byte              `json:",omitempty"`
	InputRetention *messages.Retention `json:",omitempty"`
	InputNoStore   bool                `json:",omitempty"`
}

// SequenceOf describes a sequence of the source.
func SequenceOf(s *protocol.SequenceState) Sequence {
	tokens := make([]byte, 0, 4*len(s.Tokens))
	for _, t := range s.Tokens {
		tokens = binary.LittleEndian.AppendUint32(tokens, uint32(t))
	}
	return Sequence{
		Salt: []byte(s.Namespace.Salt), LoRA: []byte(s.Namespace.LoRA), HasLoRA: s.Namespace.HasLoRA,
		Session: []byte(s.Session), Retention: s.Retention, Prompt: s.Prompt, Computed: s.Computed,
		Tokens: tokens, Items: itemsOf(s.Covers), NoStore: s.NoStore,
		Encoder: []byte(s.Namespace.Encoder), Weights: []byte(s.Namespace.Weights),
		InputRetention: s.InputRetention, InputNoStore: s.InputNoStore,
	}
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

// Import is the request for the sequence. The engine that admits it checks the values.
func (s *Sequence) Import() *protocol.BeginImport {
	r := &protocol.BeginImport{
		Prompt: messages.AdmitRequest{
			Namespace: messages.Namespace{Salt: string(s.Salt), LoRA: string(s.LoRA), HasLoRA: s.HasLoRA,
				Encoder: string(s.Encoder), Weights: string(s.Weights)},
			Session: string(s.Session), Retention: s.Retention, EncoderRetention: s.InputRetention,
			Tokens: make([]messages.Token, len(s.Tokens)/4), Multimodal: s.Items,
		},
		Length: s.Prompt, Computed: s.Computed, NoStore: s.NoStore, InputNoStore: s.InputNoStore,
	}
	for i := range r.Prompt.Tokens {
		r.Prompt.Tokens[i] = messages.Token(binary.LittleEndian.Uint32(s.Tokens[4*i:]))
	}
	return r
}

// Open writes the opening of a stream.
func (w *Writer) Open(o *Opening) error { return w.message(o) }

// Opening reads the opening of a stream.
func (r *Reader) Opening() (*Opening, error) {
	o := new(Opening)
	return o, r.message(o)
}

// ErrRefused says that the receiver has refused a hand-over.
var ErrRefused = errors.New("the receiver refused")

// refusalBytes is how much of a refusal goes into the source's error.
const refusalBytes = 4096

// answer is what a receiver says. It may refuse instead of any answer that is due, since what it
// refuses for, such as too few pages, shows at any moment.
type answer struct {
	Wanted  []bool `json:",omitempty"` // by page of the list that both sides know
	Refused string `json:",omitempty"`
}

// Answer tells the source which pages it is to send, or, with nil, that the sequence is whole.
// From then on the source may give its pages up, so the receiver calls it when its sequence can be
// named by its host, and not before.
func (w *Writer) Answer(wanted []bool) error { return w.message(&answer{Wanted: wanted}) }

// Refuse tells the source why the receiver gives the sequence up.
func (w *Writer) Refuse(why error) error { return w.message(&answer{Refused: why.Error()}) }

// Answer reads which of n pages are to be sent; with 0, that the sequence is whole.
func (r *Reader) Answer(n int) (wanted []bool, err error) {
	var a answer
	switch err := r.message(&a); {
	case err != nil:
		return nil, err
	case a.Refused != "":
		return nil, fmt.Errorf("%w: %s", ErrRefused, a.Refused[:min(len(a.Refused), refusalBytes)])
	case len(a.Wanted) != n:
		return nil, corrupt("an answer of %d pages, %d are due", len(a.Wanted), n)
	}
	return a.Wanted, nil
}
