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

// errNothing marks a prompt of which only what is stored is to be admitted, and nothing is. It
// is answered as served.
var errNothing = refusals.New(messages.ErrInternal, "nothing of the prompt is stored")

// errState refuses a prompt whose working page could not be filled with zeros. It is not
// tried again: that would be the same work once more.
var errState = refusals.New(messages.ErrInternal,
	"filling a working page of the admission with zeros failed")

// promptSpec is what a request says of a prompt. encoder is longer than length by less than a
// block: blocks are matched and stored whole, and what a host is told is counted without the
// padding.
type promptSpec struct {
	origin     sequence.Origin
	tokens     []messages.Token
	multimodal []messages.MultimodalItem
	encoder    []messages.Token // the encoder's input, padded to whole blocks
	length     int              // of the input, without the padding
	limit      int              // tokens that may be matched
	chunk      int              // tokens of a chunk, 0: not in chunks
	// keepSymbols: the tree keeps the symbols of covered tokens as long as the
	// sequence runs, because it will store them.
	keepSymbols bool
	stored      bool // only what is stored is admitted, whole blocks
}

// add makes a sequence of a prompt and enters it into the batch.
func (b *promptBatch) add(spec *promptSpec) *prompt {
	// The sequence exists from the first stage on: the tree writes symbols into its tokens,
	// and the tables grow where they will stay. Until it is admitted no one can name it.
	s := b.sequences.Open(b.kernel.stamp)
	o := spec.origin
	o.Arrived = b.kernel.now
	o.Tenant, o.Prompt = b.config.Tenants[o.Namespace.Salt], sequence.TokenCount(len(spec.tokens))
	s.Begin(o, spec.tokens, sequence.TokenCount(spec.chunk))
	if spec.keepSymbols {
		s.HoldSymbols()
	}
	// The item is used again with its plans, which have one entry for each pool.
	it := lengthen(&b.items)
	plans := it.plans[:0]
	for range b.config.Pools {
		plans = append(plans, noPlan)
	}
	*it = prompt{sequence: s, pools: b.all, self: -1, cross: -1, beams: 1, reuse: messages.PartialNone,
		query: -1, input: -1, plans: plans, stored: spec.stored}
	if len(spec.tokens) > 0 {
		// A prefetch does not end inside a block, nor does what is only stored: they take no page
		// that a partial copy could be written to.
		var m *protocol.MatchItem
		m, it.self = b.addMatch()
		m.Cross, m.Namespace, m.Tokens, m.Multimodal, m.Limit = false, s.Namespace, s.Tokens(0),
			spec.multimodal, spec.limit
		m.KeepSymbols, m.Partial = spec.keepSymbols, b.config.Partial && !b.storedOnly && !spec.stored
	}
	if len(spec.encoder) > 0 {
		s.Input.Begin(spec.encoder, sequence.TokenCount(spec.length))
		// The limit is the whole input, since no logits are computed from its last token.
		// Partial reuse has nothing to find: the namespace has the key of the input, so no
		// other input shares a part of a block with it.
		var m *protocol.MatchItem
		m, it.cross = b.addMatch()
		m.Cross, m.Namespace, m.Tokens, m.Multimodal, m.Limit = true, s.Namespace, s.Input.Tokens(), nil,
			len(spec.encoder)
		m.KeepSymbols, m.Partial = false, false
	}
	return it
}

// addPrompts adds requests for admission to the batch. Those that are wrong in
// themselves are refused in their results, which are used again. The results are in the order
// of the requests; a refused request has a result and no item.
func (b *promptBatch) addPrompts(
	requests []messages.AdmitRequest, results []messages.Admitted,
) []messages.Admitted {
	for len(results) < len(requests) {
		results = append(results, messages.Admitted{})
	}
	results = results[:len(requests)]
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
		it := b.add(&promptSpec{
			origin: sequence.Origin{
				Namespace: b.config.keyed(r.Namespace, r.Encoder, r.EncoderItems), Session: r.Session,
				Retention: cloneRetention(r.Retention), InputRetention: cloneRetention(r.EncoderRetention),
			},
			encoder: b.config.padded(r.Encoder), length: len(r.Encoder),
			tokens: r.Tokens, multimodal: r.Multimodal, limit: b.config.reusable(len(r.Tokens)),
			chunk: r.ChunkTokens, keepSymbols: len(r.Multimodal) > 0, stored: r.StoredOnly,
		})
		it.result, it.beams, it.again = result, max(1, r.BeamWidth), r.Readmitted
	}
	return results
}

// addPrefix enters a prefix that a host names; it returns nil if its values are
// refused. A prefix of an encoder–decoder model without tokens names what cross pools
// hold of the input, one with tokens what self pools hold behind it. The answer of the tree is
// then found by matchOf, for the one part that the prefix has.
func (b *promptBatch) addPrefix(p *messages.Prefix, limit int) (*prompt, error) {
	if err := b.config.ValidatePrefix(p); err != nil {
		return nil, err
	}
	// No session and no retention: lookups, pins and prefetches change neither of a block.
	spec := promptSpec{
		origin: sequence.Origin{Namespace: b.config.keyed(p.Namespace, p.Encoder, p.EncoderItems)},
		tokens: p.Tokens, multimodal: p.Multimodal, limit: limit,
	}
	pools := b.decoder
	if len(p.Tokens) == 0 {
		spec.encoder, spec.length, pools = b.config.padded(p.Encoder), len(p.Encoder), b.cross
	}
	it := b.add(&spec)
	it.pools = pools
	return it, nil
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

// keep drops all prompts from the n-th on, and makes the others questions again: whole
// blocks only, and with the symbols that their tokens have already. The questions go to a new
// array, because retry has exchanged the items: in the old one a question could be overwritten
// before it is moved.
func (b *promptBatch) keep(n int) {
	b.items = b.items[:n]
	var kept []protocol.MatchItem
	for i := range b.items {
		for _, at := range []*int{&b.items[i].self, &b.items[i].cross} {
			if *at < 0 {
				continue
			}
			m := b.match.Items[*at]
			m.Multimodal, m.Partial = nil, false
			*at = len(kept)
			kept = append(kept, m)
		}
	}
	b.match.Items = kept
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
