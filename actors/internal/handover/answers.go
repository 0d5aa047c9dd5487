package handover

import (
	"errors"
	"fmt"
)

// ErrRefused says that the receiver has refused a hand-over.
var ErrRefused = errors.New("the receiver refused")

// refusalLimit bounds the text of a refusal.
const refusalLimit = 4096

// WriteWanted tells the source which pages it is to send, one bit for each page of the
// list that both sides know.
func (w *Writer) WriteWanted(wanted []bool) error {
	body := make([]byte, (len(wanted)+7)/8)
	for i, want := range wanted {
		if want {
			body[i/8] |= 1 << (i % 8)
		}
	}
	return w.Frame(Wanted, body)
}

// ReadWanted reads which of n pages are to be sent.
func (r *Reader) ReadWanted(n int) ([]bool, error) {
	h, err := r.answer()
	if err != nil {
		return nil, err
	}
	body, err := r.frame(h, Wanted, (n+7)/8)
	if err != nil {
		return nil, err
	}
	if len(body) != (n+7)/8 {
		return nil, corrupt("answer of %d bytes for %d pages", len(body), n)
	}
	wanted := make([]bool, n)
	for i := range wanted {
		wanted[i] = body[i/8]&(1<<(i%8)) != 0
	}
	return wanted, nil
}

// Acknowledge tells the source that the sequence is whole.
func (w *Writer) Acknowledge() error { return w.Frame(Acknowledged, nil) }

// Refuse tells the source why the receiver gives the sequence up.
func (w *Writer) Refuse(why error) error {
	text := why.Error()
	return w.Frame(Refused, []byte(text[:min(len(text), refusalLimit)]))
}

// ReadAcknowledged returns when the receiver has said that the sequence is whole.
func (r *Reader) ReadAcknowledged() error {
	h, err := r.answer()
	if err != nil {
		return err
	}
	_, err = r.frame(h, Acknowledged, 0)
	return err
}

// answer reads the header of an answer, or the refusal that comes in its place.
func (r *Reader) answer() (Header, error) {
	h, err := r.Next()
	if err != nil || h.Kind != Refused {
		return h, err
	}
	text, err := r.frame(h, Refused, refusalLimit)
	if err != nil {
		return h, err
	}
	return h, fmt.Errorf("%w: %s", ErrRefused, text)
}
