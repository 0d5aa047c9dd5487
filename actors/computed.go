package actors

import (
	"context"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// MissingPage is a page that the host has to write: that of a block in a pool, or the working page
// of a state pool, as block 0.
type MissingPage struct {
	Pool  messages.PoolID
	Block int
	Page  messages.PageID
}

// ComputedAdmission is a sequence of tokens that were computed elsewhere.
type ComputedAdmission struct {
	Sequence messages.SequenceID
	Tables   messages.Tables
	Missing  []MissingPage     // by block
	Ready    []messages.Ticket // must have passed before the pages are written
}

// AdmitComputed starts a sequence of a prompt whose keys and values the host has already, from
// elsewhere. It has the pages that the token behind the prompt attends to, and no others: in a
// pool with a window those of the window. Pages that the device has are shared; the host
// writes the missing ones, and commits the whole prompt. A release without that commit leaves
// nothing. The request counts in no statistics of admissions.
//
// It is an import without a stream: the engine does what it does for pages of another engine.
func (h Handovers) AdmitComputed(
	ctx context.Context, r messages.AdmitRequest,
) (*ComputedAdmission, error) {
	e := h.engine
	if r.StoredOnly || r.ChunkTokens != 0 || r.BeamWidth > 1 || len(r.Encoder) > 0 {
		return nil, refusals.New(messages.ErrBadRequest,
			"an admission of computed tokens excludes stored_only, beam_width, chunk_tokens and encoder")
	}
	begun := &protocol.BeginImport{Prompt: r, Length: len(r.Tokens), Computed: len(r.Tokens),
		OwnWeights: true}
	if err := e.validate.ValidateImport(begun); err != nil {
		return nil, err
	}
	if err := first(e.Do(ctx, begun), &begun.Err); err != nil {
		return nil, err
	}
	d := &protocol.DescribeSequence{Sequence: begun.Sequence, ToWrite: true}
	if err := first(e.Do(ctx, d), &d.Err); err != nil {
		// the error says more than that of a release after it
		_ = e.exchange.discard(begun.Sequence, messages.Ticket{})
		return nil, err
	}
	a := &ComputedAdmission{Sequence: begun.Sequence, Tables: d.Tables, Ready: d.Ready}
	for i, at := range e.validate.CarriedPages(begun.Computed, 0) {
		if begun.Missing[i] {
			a.Missing = append(a.Missing, MissingPage{Pool: at.Pool, Block: at.Block,
				Page: d.Tables[at.Pool][0][at.Block]})
		}
	}
	return a, nil
}
