package handover

import (
	"errors"
	"fmt"
)

// ErrRefused says that the receiver has refused a hand-over.
var ErrRefused = errors.New("the receiver refused")

// refusalLimit bounds the text of a refusal.
// It is in bytes. The text goes into an error and a log at the source, so a receiver
// that sends more of it gains nothing.
const refusalLimit = 4096

// WriteWanted tells the source which pages it is to send, one bit for each page of the
// list that both sides know.
// The bits are in the order of the list, the lowest bit of a byte first. Bits behind the
// last page are 0. Both sides compute the list from the number of computed tokens, so no
// page has to be named here.
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
	// The limit above bounds the memory; a shorter answer would leave pages undecided.
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
// From then on the source may give its pages up, so the receiver calls it when its
// sequence can be named by its host, and not before.
func (w *Writer) Acknowledge() error { return w.Frame(Acknowledged, nil) }

// Refuse tells the source why the receiver gives the sequence up.
func (w *Writer) Refuse(why error) error {
	// A text that is cut may end within a rune. It is shown and never parsed.
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
// A receiver may refuse instead of any answer that is due, since what it refuses for, such
// as too few pages, shows at any moment.
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
