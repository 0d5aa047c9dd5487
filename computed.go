package kvactor

import (
	"context"

	"github.com/kvactor/kvactor/actors"
)

// AdmitComputed starts a sequence of a prompt whose keys and values the host has already, from
// elsewhere: a host whose pages another process fills, or that has kept them itself. The
// sequence has the pages that the token behind the prompt attends to, and no others: in a pool
// with a window those of the window. Pages that the device has are shared. The host waits for
// Ready, writes the missing pages, and commits the whole prompt, not a part of it. A release
// with Discard and without that commit leaves nothing.
//
// Prompts that end within the prompt then match as far as the window lets them: often not at
// all in its pool. Admit takes all pages, where the host has them. The request counts in no
// statistics of admissions.
func (e *Engine) AdmitComputed(ctx context.Context, r AdmitRequest) (*Sequence, []MissingPage, error) {
	a, err := actors.HandoversOf(e.below).AdmitComputed(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	s := &Sequence{
		engine: e, id: a.Sequence, admitted: Admitted{Sequence: a.Sequence},
		prompt: len(r.Tokens), length: len(r.Tokens), tables: a.Tables,
		tokens: e.promptOf(r.Tokens), appended: make([][]Token, 1),
	}
	s.await(a.Ready, 0)
	e.mu.Lock()
	e.enter(s)
	e.mu.Unlock()
	return s, a.Missing, nil
}
