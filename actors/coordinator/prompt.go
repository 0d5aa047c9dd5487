package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// The prompts of a batch: what a request says of each, and how it is entered.

// prompt is one prompt of the batch. With an encoder–decoder model it has two parts,
// matched apart: the decoder's tokens by the self pools, the encoder's input by the
// cross pools. A prefix that a host names may have one of them only.
//
// At least one of self and cross is an index; both are indexes into the Match record of the
// batch. query and input are set when the Move is made up and read when it is answered. plans
// has an entry for every pool, also for those that the prompt does not concern. sequence is nil
// once an admission has answered the prompt with a refusal.
type prompt struct {
	sequence *sequence.Sequence
	pools    poolRange          // that it concerns
	self     int                // index of the match of the decoder's tokens, −1: none
	cross    int                // index of the match of the encoder's input, −1: none
	result   *messages.Admitted // nil but for admissions
	beams    int
	again    bool // it was admitted before: AdmitRequest.Readmitted
	stored   bool // what is stored of it is admitted: AdmitRequest.StoredOnly
	refused  *messages.Refusal
	reuse    messages.PartialReuse // how the source is reused
	query    int                   // index of its question in the Move, −1: none
	input    int                   // index of the question about its cross pools, −1: none
	plans    []poolPlan            // by pool
	states   promptStates
	// inputReady is what must have passed before the pages of the cross pools are read
	// or written to.
	inputReady []messages.Ticket
}

// errTransfer marks a prompt whose transfer failed. An admission tries such a prompt once more
// with what is left, so it is known by identity and answered by no admission.
var errTransfer = refusals.New(messages.ErrInternal,
	"a transfer into the pages of the admission failed")

// errAnswered marks a prompt that has its answer while others of its batch are admitted again.
var errAnswered = refusals.New(messages.ErrInternal, "the prompt has its answer")

// errNothing marks a prompt of which only what is stored is to be admitted, and nothing is. It
// is answered as served.
var errNothing = refusals.New(messages.ErrInternal, "nothing of the prompt is stored")

// errState refuses a prompt whose working page could not be filled with zeros. It is not
// tried again: that would be the same work once more.
var errState = refusals.New(messages.ErrInternal,
	"filling a working page of the admission with zeros failed")

// add makes a sequence of a prompt and enters it into the batch: its tokens, of which so many may
// be matched, and the encoder's input if the pools are among those that hold some.
func (b *promptBatch) add(r *messages.AdmitRequest, pools poolRange, limit int) *prompt {
	// The sequence exists from the first stage on: the tree writes symbols into its tokens,
	// and the tables grow where they will stay. Until it is admitted no one can name it.
	s := b.sequences.Open(b.kernel.stamp)
	s.Begin(sequence.Origin{
		Namespace: b.config.keyed(r.Namespace, r.Encoder, r.EncoderItems),
		Tenant:    b.config.Tenants[r.Namespace.Salt], Session: r.Session,
		Retention: cloneRetention(r.Retention), InputRetention: cloneRetention(r.EncoderRetention),
		Prompt: sequence.TokenCount(len(r.Tokens)), Arrived: b.kernel.now,
	}, r.Tokens, sequence.TokenCount(r.ChunkTokens))
	// The item is used again with its plans, which have one entry for each pool.
	it := lengthen(&b.items)
	plans := it.plans[:0]
	for range b.config.Pools {
		plans = append(plans, noPlan)
	}
	*it = prompt{sequence: s, pools: pools, self: -1, cross: -1, beams: max(1, r.BeamWidth),
		reuse: messages.PartialNone, query: -1, input: -1, plans: plans, again: r.Readmitted,
		stored: r.StoredOnly}
	if len(r.Tokens) > 0 {
		// A prefetch does not end inside a block, nor does what is only stored: they take no page
		// that a partial copy could be written to.
		var m *protocol.MatchItem
		m, it.self = b.addMatch()
		m.Cross, m.Namespace, m.Tokens, m.Multimodal, m.Limit = false, s.Namespace, s.Tokens(0),
			r.Multimodal, limit
		m.KeepSymbols, m.Partial = false, b.config.Partial && !b.storedOnly && !r.StoredOnly
	}
	if len(r.Encoder) > 0 && pools.end > b.cross.first {
		// Blocks are matched and stored whole; what a host is told is counted without the padding.
		s.Input.Begin(b.config.padded(r.Encoder), sequence.TokenCount(len(r.Encoder)))
		// The limit is the whole input, since no logits are computed from its last token.
		// Partial reuse has nothing to find: the namespace has the key of the input, so no
		// other input shares a part of a block with it.
		var m *protocol.MatchItem
		m, it.cross = b.addMatch()
		m.Cross, m.Namespace, m.Tokens, m.Multimodal, m.Limit = true, s.Namespace, s.Input.Tokens, nil,
			len(s.Input.Tokens)
		m.KeepSymbols, m.Partial = false, false
	}
	return it
}

// addStored adds a prompt that will be stored: the tree keeps the symbols of covered tokens as long
// as its sequence runs.
func (b *promptBatch) addStored(r *messages.AdmitRequest, limit int) *prompt {
	it := b.add(r, b.all, limit)
	if len(r.Multimodal) > 0 {
		it.sequence.HoldSymbols()
		b.match.Items[it.self].KeepSymbols = true
	}
	return it
}

// addPrompts adds requests for admission to the batch. Those that are wrong in
// themselves are refused in their results, which are used again. The results are in the order
// of the requests; a refused request has a result and no item.
func (b *promptBatch) addPrompts(
	requests []messages.AdmitRequest, results []messages.Admitted,
) []messages.Admitted {
	results = resized(results, len(requests))
	for i := range requests {
		r, result := &requests[i], &results[i]
		*result = messages.Admitted{Reuse: result.Reuse[:0], Tables: result.Tables,
			Ready: result.Ready[:0], Checkpoints: result.Checkpoints[:0]}
		err := b.config.Validate(r)
		// After the values: a prompt with invalid values is refused for these, however long its
		// input is.
		if err == nil {
			err = b.config.validateEncoderLength(len(r.Encoder))
		}
		if err != nil {
			result.Err = err
			continue
		}
		// Values come before lengths: invalid values are never right, with any max_seq_len.
		if n := len(r.Tokens); n > b.config.MaxSeqLen {
			result.Err = refusals.New(messages.ErrTooLong, "a prompt of %d tokens is over max_seq_len %d", n,
				b.config.MaxSeqLen)
			continue
		}
		b.addStored(r, b.config.reusable(len(r.Tokens))).result = result
	}
	return results
}

// addPrefix enters a prefix that a host names, or refuses its values. A prefix of an
// encoder–decoder model without tokens names what cross pools hold of the input, one with
// tokens what self pools hold behind it. The answer of the tree is then found by matchOf, for
// the one part that the prefix has.
func (b *promptBatch) addPrefix(p *messages.Prefix, limit int) error {
	if err := b.config.ValidatePrefix(p); err != nil {
		return err
	}
	pools := b.decoder
	if len(p.Tokens) == 0 {
		pools = b.cross
	}
	// No session and no retention: lookups, pins and prefetches change neither of a block.
	b.add(&messages.AdmitRequest{Namespace: p.Namespace, Tokens: p.Tokens, Multimodal: p.Multimodal,
		Encoder: p.Encoder, EncoderItems: p.EncoderItems}, pools, limit)
	return nil
}

// addMatch adds a question to the Match record, to be filled in, and returns its index.
// The arrays of an earlier answer there are used again. A caller that keeps the index may add
// further questions; a pointer would be to the old array then.
func (b *promptBatch) addMatch() (*protocol.MatchItem, int) {
	n := len(b.match.Items)
	it := lengthen(&b.match.Items)
	// Everything that the tree answers is emptied here, because an answer says nothing about
	// what it has not found.
	it.Matched, it.Blocks, it.Reach, it.Lacking, it.Cursor = 0, 0, 0, false, protocol.Cursor{}
	it.InTree = nil
	it.IDs, it.CheckpointPages = it.IDs[:0], it.CheckpointPages[:0]
	it.Checkpoint, it.Attention, it.AttentionWhole = protocol.NoBlock, 0, 0
	it.AttentionSource = protocol.Source{Block: protocol.NoBlock, Pages: it.AttentionSource.Pages[:0]}
	it.Source = protocol.Source{Block: protocol.NoBlock, Pages: it.Source.Pages[:0]}
	it.Pages = sequence.Reopen(it.Pages[:0], len(b.config.Pools))
	return it, n
}

// cloneRetention copies what a host says of a prompt's retention; nil if it says
// nothing. The sequence refers to the copy until it ends, and the host may use its own record
// for the next request.
func cloneRetention(r *messages.Retention) *messages.Retention {
	if r.IsZero() {
		return nil
	}
	kept := &messages.Retention{Ranges: slices.Clone(r.Ranges)}
	if r.Decode != nil {
		decode := *r.Decode
		kept.Decode = &decode
	}
	return kept
}
