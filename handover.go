package kvactor

import (
	"context"
	"io"

	"github.com/kvactor/kvactor/actors"
)

// Exported is a sequence that was written for another engine. This one holds its pages until
// Release.
type Exported = actors.Exported

// Imported is a sequence that has come from another engine, and what the source said of it.
type Imported struct {
	Sequence   *Sequence
	Namespace  Namespace
	Session    string
	Retention  *Retention
	Tokens     []Token // of the sequence, prompt first
	Multimodal []MultimodalItem
	// Of an encoder–decoder model.
	Encoder          []Token
	EncoderItems     []MultimodalItem
	EncoderRetention *Retention

	Pages       int   // that have come
	SharedPages int   // that the engine had, and that the sequence shares
	Bytes       int64 // of the stream
}

// Export writes a running sequence to w, for Import of an engine with the same pools: its tokens
// and items, namespace, retention, and the contents of its pages. The prompt must be committed, and
// the beam width 1. No kernel of the sequence may be under way when Export is called. From the
// first byte that is written the sequence may go on, or be released; the engine serves others
// meanwhile. The pages are held until Exported.Release. Call it when the receiver has said that it
// has them: without the hold they may be evicted, and a second attempt would lack them.
//
// A write that waits when ctx ends is interrupted if w has the method SetDeadline of a net.Conn; so
// are the host's own reads of w then. What is written is as secret as the prompt: use a connection
// that is encrypted.
func (e *Engine) Export(ctx context.Context, s *Sequence, w io.Writer) (*Exported, error) {
	if err := e.check([]Step{{Sequence: s}}, call{}); err != nil {
		return nil, err
	}
	return actors.HandoversOf(e.below).Export(ctx, s.id, w)
}

// Import reads a sequence that Export has written, and starts it here: as soon as its Ready tickets
// have passed it can be decoded. ErrBadStream says that the stream is damaged or ends too early,
// ErrNotSupported which field of the model or of a pool differs, and ErrOutOfPages which pool has
// too few pages. After an error the engine keeps nothing of the stream. Import reads no byte behind
// the stream.
func (e *Engine) Import(ctx context.Context, r io.Reader) (*Imported, error) {
	m, err := actors.HandoversOf(e.below).Import(ctx, r)
	return e.imported(m, err)
}

// Send hands a running sequence over to Receive at the other end of a connection. Only pages that
// the receiver lacks are sent. It returns when the receiver has acknowledged the sequence, and
// holds the pages until then: the Exported that it returns only counts, and needs no Release. The
// sequence may go on here, meanwhile and afterwards, until it is released.
func (e *Engine) Send(
	ctx context.Context, s *Sequence, connection io.ReadWriter,
) (*Exported, error) {
	if err := e.check([]Step{{Sequence: s}}, call{}); err != nil {
		return nil, err
	}
	return actors.HandoversOf(e.below).Send(ctx, s.id, connection)
}

// Receive is Import for the other end of Send.
func (e *Engine) Receive(ctx context.Context, connection io.ReadWriter) (*Imported, error) {
	m, err := actors.HandoversOf(e.below).Receive(ctx, connection)
	return e.imported(m, err)
}

// imported makes the handle of a sequence that has come.
func (e *Engine) imported(m *actors.Imported, err error) (*Imported, error) {
	if err != nil {
		return nil, err
	}
	s := e.start(&AdmitRequest{Tokens: m.Tokens[:m.Prompt]}, &Admitted{Sequence: m.Sequence,
		ReusedTokens: m.Computed, Tables: m.Tables, Ready: m.Ready})
	s.extend(m.Tokens[m.Prompt:], nil)
	if len(m.Encoder) > 0 {
		s.admitted.Cross = &CrossAdmitted{ReusedTokens: len(m.Encoder),
			Table: m.Tables[len(m.Tables)-1][0], Ready: m.Ready}
	}
	return &Imported{
		Sequence: s, Encoder: m.Encoder, EncoderItems: m.EncoderItems,
		EncoderRetention: m.EncoderRetention, Namespace: m.Namespace, Session: m.Session,
		Retention: m.Retention, Tokens: m.Tokens, Multimodal: m.Multimodal,
		Pages: m.Pages, SharedPages: m.SharedPages, Bytes: m.Bytes,
	}, nil
}
