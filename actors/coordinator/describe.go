package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// describe serves DescribeSequence: what a hand-over says of a sequence, and what its
// pages wait for.
//
//	start ─▶ asking ─▶ answer
//	         the tree turns symbols into tokens and items,
//	         the offloader says what the pages wait for
//
// tokens is the record lent to the tree.
type describe struct {
	*shared
	stages[describe]
	request  *protocol.DescribeSequence
	sequence *sequence.Sequence
	tokens   *protocol.ReadTokens
	query    int // index of the question in the Move
}

// start copies what the sequence knows of itself.
func (d *describe) start(request any) {
	d.request = request.(*protocol.DescribeSequence)
	r := d.request
	r.State, r.Tables, r.Ready, r.Err = protocol.SequenceState{}, nil, nil, nil
	s, err := d.find(r)
	if err != nil {
		r.Err = err
		d.kernel.reply()
		return
	}
	d.sequence = s
	r.State = protocol.SequenceState{
		Namespace: s.Namespace, Session: s.Session, Retention: cloneRetention(s.Retention),
		Prompt: int(s.Prompt), Computed: int(s.Computed()), NoStore: s.NoStore,
		Input: int(s.Input.Length), InputRetention: cloneRetention(s.InputRetention),
		InputNoStore: s.Input.NoStore,
	}
	// A copy: the sequence goes on while the host reads its answer.
	tokens := slices.Clone(s.Tokens(0))
	// A new record each time: the tree keeps one that it fails over.
	d.tokens = &protocol.ReadTokens{Header: protocol.Header{Epoch: d.kernel.epoch}, Tokens: tokens}
	d.ask()
	d.wait(d, "describe: asking", (*describe).end)
	d.kernel.toTree(d.tokens)
	d.out.move.send()
}

// find gives the sequence, and refuses what cannot be handed over.
//
// Each refusal names what a stream of a hand-over has no field for. It comes before any
// copy of tokens or tables, so that a refused request costs no memory.
func (d *describe) find(r *protocol.DescribeSequence) (*sequence.Sequence, error) {
	id := r.Sequence
	s, refusal := d.sequences.Find(id)
	switch {
	case refusal != nil:
		return nil, refusal
	// The stream has one list of tokens and one table. Which beam goes on, and with what
	// score, is known to the search of the host, which ends at this engine.
	case s.Beams() > 1:
		return nil,
			refusals.New(messages.ErrNotSupported, "sequence %v has %d beams; one beam is handed over", id,
				s.Beams())
	// A prompt in chunks has a reserve, which is no page that could be held.
	case !s.PromptComputed() && !r.ToWrite:
		return nil, refusals.New(messages.ErrBadRequest,
			"sequence %v: %d of %d tokens of the prompt are computed; a hand-over takes all", id,
			s.Computed(), s.Prompt)
	// A tree that was emptied after a failure has lost the symbols, and with them the tokens
	// that they stand for.
	case !sequence.HoldsSymbols(s) && firstNegative(s.Tokens(0)) >= 0:
		return nil, refusals.New(messages.ErrNotSupported,
			"sequence %v: its multimodal items were lost with a failed actor", id)
	}
	return s, nil
}

// ask asks what the pages wait for: whole computed blocks are read, all others written.
//
// The tables of the question are copies: the record is lent to the offloader, and those of
// the sequence belong to it.
func (d *describe) ask() {
	s := d.sequence
	d.out.reset()
	whole := int(s.Computed()) / d.config.TokensPerBlock
	d.query = d.out.move.ask(d.all.end, func(p int) (read, write []messages.PageID) {
		table := slices.Clone(s.Table(p))
		first := min(whole, len(table))
		if d.states.has(p) {
			first = 0 // every kernel writes the working page
		}
		if d.cross.has(p) {
			first = len(table) // the input is computed, and no kernel writes it again
		}
		return table[:first], table[first:]
	})
}

// end answers what both have said.
func (d *describe) end() {
	d.request.State.Tokens, d.request.State.Covers = d.tokens.Tokens, d.tokens.Covers
	d.out.move.received()
	d.request.Ready = slices.Clone(d.out.move.tickets(d.query))
	d.request.Tables = d.sequence.CopyTables(nil)
	d.kernel.reply()
}
