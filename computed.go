package kvactor

import (
	"context"

	"github.com/kvactor/kvactor/actors"
)

// AdmitComputed starts a sequence of a prompt whose keys and values the host already has: another
// process fills the pages, or the host has kept them itself. The sequence gets the pages that the
// token behind the prompt attends to, and no others: in a pool with a window those of the window.
// Pages that the device has are shared. The host waits for Ready, writes the missing pages, and
// commits the whole prompt, not a part of it. A release with Discard and without that commit leaves
// nothing.
//
// A shorter prompt that begins like this one finds few blocks in a pool with a window, often none,
// and matches no further. A host that has the keys and values of all blocks uses Admit, which takes
// all pages. The request counts in no statistics of admissions.
func (e *Engine) AdmitComputed(
	ctx context.Context, r AdmitRequest,
) (*Sequence, []MissingPage, error) {
	a, err := actors.HandoversOf(e.below).AdmitComputed(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	s := e.start(&r, &Admitted{Sequence: a.Sequence, Tables: a.Tables, Ready: a.Ready})
	return s, a.Missing, nil
}
