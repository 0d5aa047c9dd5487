package coordinator

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// promptBatch is the prompts of one request on their way through the stages that
// admissions, lookups and prefetches have in common: they are matched on one state
// of the tree, and what they match is claimed before any page is taken, so that no
// prompt can evict what another one has found.
//
//	match ──▶ claim ───────────────────────────▶ ready ──▶ (plan, take: plan.go, take.go)
//	          whole blocks are claimed, the        │ ▲
//	          pools say who holds the sources of   │ │
//	          partial reuse                        ▼ │
//	             │ ▲                             withdraw ──▶ rematch ──▶ reclaim
//	             ▼ │                             one prompt's claims are taken back
//	           the same, for each prompt whose   and it is matched again without
//	           source must not be reused         partial reuse
//
// Partial reuse copies the leading tokens of a stored block, the source, or takes
// the page of the source over.
type promptBatch struct {
	*shared
	stage batchStage
	items []prompt
	// storedOnly: a prefetch, which takes no page but for what is stored.
	storedOnly bool

	match   protocol.Match // one item for each prompt, and one for each input of an encoder
	rematch protocol.Match // one prompt, matched again
	next    int            // the prompt that is looked at
	// rejecting: prompts whose sources no one may reuse are being matched again;
	// next is the one under way.
	rejecting bool

	sources []sourcePages // by pool
	users   sourceUsers
	claims  pageClaims
}

// batchStage is what the batch waits for.
type batchStage uint8

// The stages. After batchReady nothing is under way.
const (
	batchMatching    batchStage = iota // the tree finds the prefixes of all prompts
	batchClaiming                      // pools claim what was found, and say who holds the sources
	batchWithdrawing                   // pools take the claims of one prompt back
	batchRematching                    // the tree matches it again, without partial reuse
	batchReclaiming                    // pools claim what was found then
	batchReady
)

// String names the stage.
func (s batchStage) String() string {
	return [...]string{"matching", "claiming", "withdrawing", "rematching", "reclaiming", "ready"}[s]
}

// prompt is one prompt of the batch. With an encoder–decoder model it has two parts,
// matched apart: the decoder's tokens by the self pools, the encoder's input by the
// cross pools. A prefix that a host names may have one of them only.
type prompt struct {
	sequence *sequence.Sequence
	pools    poolRange          // that it concerns
	self     int                // index of the match of the decoder's tokens, −1: none
	cross    int                // index of the match of the encoder's input, −1: none
	result   *messages.Admitted // nil but for admissions
	beams    int
	refused  *messages.Refusal
	reuse    messages.PartialReuse // how the source is reused
	query    int                   // index of its question in the Move, −1: none
	input    int                   // index of the question about its cross pools, −1: none
	plans    []poolPlan            // by pool
	// inputReady is what must have passed before the pages of the cross pools are read
	// or written to.
	inputReady []messages.Ticket
}

// errTransfer marks a prompt whose transfer failed.
var errTransfer = refusals.New(messages.ErrInternal, "a transfer into the pages of the admission failed")

func newPromptBatch(parts *shared) *promptBatch {
	n := len(parts.config.Pools)
	return &promptBatch{shared: parts, sources: make([]sourcePages, n), claims: newPageClaims(n)}
}

// reset empties the batch. Prompts and match items keep their arrays.
func (b *promptBatch) reset(storedOnly bool) {
	b.items, b.match.Items, b.storedOnly = b.items[:0], b.match.Items[:0], storedOnly
	b.forgetDecisions()
}

// forgetDecisions makes the batch one of which nothing has been decided.
func (b *promptBatch) forgetDecisions() {
	b.next, b.rejecting = 0, false
	b.claims.clear()
	for p := range b.sources {
		b.sources[p].clear()
	}
}

// renew takes new records for a new epoch. Operations of pools point into the plans.
func (b *promptBatch) renew() {
	b.items, b.match, b.rematch = nil, protocol.Match{}, protocol.Match{}
}

// promptSpec is what a request says of a prompt.
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
	if n := len(b.items); n < cap(b.items) {
		b.items = b.items[:n+1]
	} else {
		b.items = append(b.items, prompt{})
	}
	it := &b.items[len(b.items)-1]
	plans := it.plans[:0]
	for range b.config.Pools {
		plans = append(plans, noPlan)
	}
	*it = prompt{sequence: s, pools: b.all, self: -1, cross: -1, beams: 1, reuse: messages.PartialNone, query: -1, input: -1, plans: plans}
	if len(spec.tokens) > 0 {
		var m *protocol.MatchItem
		m, it.self = b.addMatch()
		m.Cross, m.Namespace, m.Tokens, m.Multimodal, m.Limit = false, s.Namespace, s.Tokens(0), spec.multimodal, spec.limit
		m.KeepSymbols, m.Partial = spec.keepSymbols, b.config.Partial && !b.storedOnly
	}
	if len(spec.encoder) > 0 {
		s.Input.Begin(spec.encoder, sequence.TokenCount(spec.length))
		var m *protocol.MatchItem
		m, it.cross = b.addMatch()
		m.Cross, m.Namespace, m.Tokens, m.Multimodal, m.Limit = true, s.Namespace, s.Input.Tokens(), nil, len(spec.encoder)
		m.KeepSymbols, m.Partial = false, false
	}
	return it
}

// enter adds requests for admission to the batch. Those that are wrong in
// themselves are refused in their results, which are used again.
func (b *promptBatch) enter(requests []messages.AdmitRequest, results []messages.Admitted) []messages.Admitted {
	for len(results) < len(requests) {
		results = append(results, messages.Admitted{})
	}
	results = results[:len(requests)]
	for i := range requests {
		r, result := &requests[i], &results[i]
		*result = messages.Admitted{Reuse: result.Reuse[:0], Tables: result.Tables, Ready: result.Ready[:0]}
		err := b.config.Validate(r)
		if err == nil {
			err = b.config.validateEncoderLength(len(r.Encoder))
		}
		if err != nil {
			result.Err = err
			continue
		}
		// Values come before lengths, so that what is wrong in itself is said first.
		if n := len(r.Tokens); n > b.config.MaxSeqLen {
			result.Err = refusals.New(messages.ErrTooLong, "a prompt of %d tokens is over max_seq_len %d", n, b.config.MaxSeqLen)
			continue
		}
		it := b.add(&promptSpec{
			origin: sequence.Origin{
				Namespace: b.config.keyed(r.Namespace, r.Encoder, r.EncoderItems), Session: r.Session,
				Retention: cloneRetention(r.Retention), InputRetention: cloneRetention(r.EncoderRetention),
			},
			encoder: b.config.padded(r.Encoder), length: len(r.Encoder),
			tokens: r.Tokens, multimodal: r.Multimodal, limit: b.config.reusable(len(r.Tokens)),
			chunk: r.ChunkTokens, keepSymbols: len(r.Multimodal) > 0,
		})
		it.result, it.beams = result, max(1, r.BeamWidth)
	}
	return results
}

// addPrefix enters a prefix that a host names; it returns nil if its values are
// refused. A prefix of an encoder–decoder model without tokens names what cross pools
// hold of the input, one with tokens what self pools hold behind it.
func (b *promptBatch) addPrefix(p *messages.Prefix, limit int) (*prompt, error) {
	if err := b.config.ValidatePrefix(p); err != nil {
		return nil, err
	}
	spec := promptSpec{
		origin: sequence.Origin{Namespace: b.config.keyed(p.Namespace, p.Encoder, p.EncoderItems)},
		tokens: p.Tokens, multimodal: p.Multimodal, limit: limit,
	}
	pools := b.self
	if len(p.Tokens) == 0 {
		spec.encoder, spec.length, pools = b.config.padded(p.Encoder), len(p.Encoder), b.cross
	}
	it := b.add(&spec)
	it.pools = pools
	return it, nil
}

// addMatch adds a question to the Match record, to be filled in, and returns its index.
// The arrays of an earlier answer there are used again.
func (b *promptBatch) addMatch() (*protocol.MatchItem, int) {
	m := &b.match
	n := len(m.Items)
	if n < cap(m.Items) {
		m.Items = m.Items[:n+1]
	} else {
		m.Items = append(m.Items, protocol.MatchItem{})
	}
	it := &m.Items[n]
	it.Matched, it.Blocks, it.Reach, it.Lacking = 0, 0, 0, false
	it.IDs, it.CheckpointPages = it.IDs[:0], it.CheckpointPages[:0]
	it.Source = protocol.Source{Block: protocol.NoBlock, Pages: it.Source.Pages[:0]}
	for p := range it.Pages {
		it.Pages[p] = it.Pages[p][:0]
	}
	return it, n
}

// keep drops all prompts from the n-th on, and makes the others questions again: whole
// blocks only, and with the symbols that their tokens have already.
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

// matchFor is what the tree has found for a prompt in a pool.
func (b *promptBatch) matchFor(i, p int) *protocol.MatchItem {
	if p >= b.cross.first {
		return &b.match.Items[b.items[i].cross]
	}
	return &b.match.Items[b.items[i].self]
}

// matchOf is what the tree has found for the only part of a prefix.
func (b *promptBatch) matchOf(i int) *protocol.MatchItem {
	return b.matchFor(i, b.items[i].pools.first)
}

// source is the block that a prompt reuses in part; nil if there is none.
func (b *promptBatch) source(i int) *protocol.Source {
	if b.items[i].self < 0 {
		return nil
	}
	if m := &b.match.Items[b.items[i].self]; m.Source.Block != protocol.NoBlock {
		return &m.Source
	}
	return nil
}

// hasSource tells whether a prompt matches part of a block behind its whole blocks.
func (b *promptBatch) hasSource(i int) bool { return b.source(i) != nil }

// send asks the tree for the prefixes of all prompts. Without block reuse there is
// nothing to ask: the batch is ready.
func (b *promptBatch) send() {
	if !b.config.Reuse {
		b.stage = batchReady
		return
	}
	b.stage = batchMatching
	b.match.Epoch = b.kernel.epoch
	b.kernel.toTree(&b.match)
}

// resume goes on when an answer has come. It returns true when the batch is ready.
func (b *promptBatch) resume() bool {
	switch b.stage {
	case batchMatching:
		b.claimAll()
	case batchClaiming:
		b.claimed()
	case batchWithdrawing:
		b.matchAgain()
	case batchRematching:
		b.claimAgain()
	case batchReclaiming:
		b.out.pools.received()
		b.recountSources()
		b.stage = batchReady
		if b.rejecting {
			b.rejectSources()
		}
	case batchReady:
	}
	return b.stage == batchReady
}

// claimAll claims what was found. It asks who holds the sources once everything is
// claimed: one that another prompt claims whole is no page that could be had.
func (b *promptBatch) claimAll() {
	b.out.pools.reset()
	for i := range b.items {
		if it := &b.items[i]; it.refused == nil {
			b.claim(i, it.pools)
		}
	}
	// A second walk: the inspections come behind all claims of all prompts.
	for i := range b.items {
		if b.items[i].refused == nil {
			b.inspectSource(i)
		}
	}
	b.stage = batchClaiming
	b.out.pools.send()
}

// claim writes the matched pages of some pools into the tables of the sequence and
// claims those on the device. Blocks in host memory get their page when it is taken.
func (b *promptBatch) claim(i int, pools poolRange) {
	it := &b.items[i]
	for p := pools.first; p < pools.end; p++ {
		m, pl := b.matchFor(i, p), &it.plans[p]
		*pl = noPlan
		table, onDevice, onHost := tableOf(it.sequence.Table(p)[:0], m.Pages[p][:m.Blocks])
		it.sequence.SetTable(p, table)
		pl.claimed, pl.onboarded, pl.whole = onDevice, onHost, onDevice+onHost
		if onDevice > 0 {
			b.out.pools.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: table})
		}
	}
}

// tableOf adds the device pages of blocks to a table, NoPage for what is not on
// the device, and counts the blocks on the device and those in host memory.
func tableOf(table []messages.PageID, locations []protocol.Location) (_ []messages.PageID, device, host int) {
	table = slices.Grow(table, len(locations))[:len(locations)]
	for b, at := range locations {
		table[b] = messages.PageID(at)
		device += int(^uint32(at) >> 31) // mostly all are: no branch
	}
	// The usual case: everything is on the device, and the table is a copy of the locations.
	if device == len(locations) {
		return table, device, 0
	}
	for b, at := range locations {
		if at < protocol.Nowhere {
			table[b] = messages.NoPage
			host++
		}
	}
	return table, device, host
}

// claimed decides how each source is reused; all sources are looked at before any
// prompt is decided about.
func (b *promptBatch) claimed() {
	b.out.pools.received()
	b.countUsers()
	for i := range b.items {
		b.decideReuse(i)
	}
	// Takeovers that are not allowed are found here, before any prompt is decided about: the
	// claims of a prompt that goes without its source may take pages that others count on.
	b.next, b.rejecting = 0, true
	b.rejectSources()
}

// rejectSources matches every prompt again whose source no one may reuse, so that
// its claims, too, are made before any prompt is decided about.
func (b *promptBatch) rejectSources() {
	for ; b.next < len(b.items); b.next++ {
		it := &b.items[b.next]
		if it.refused == nil && it.reuse == messages.PartialNone && b.hasSource(b.next) {
			b.withdrawSource(b.next)
			return
		}
	}
	b.next, b.rejecting = 0, false
	b.stage = batchReady
}

// withdrawSource takes the claims of a prompt back, to match it again without
// partial reuse: the prefix may be shorter then, because a window that ends at a
// block boundary reaches further back.
func (b *promptBatch) withdrawSource(i int) {
	b.next = i
	b.out.pools.reset()
	b.withdraw(&b.items[i], b.self)
	b.stage = batchWithdrawing
	b.out.pools.send()
}

// withdraw takes the claims of a prompt in some pools back and asks again who holds
// the sources among its whole blocks.
func (b *promptBatch) withdraw(it *prompt, pools poolRange) {
	b.releaseSource(it)
	b.unclaim(it, pools)
	b.inspectClaims(it)
}

// unclaim takes the claims of a prompt in some pools back as if they had never been.
func (b *promptBatch) unclaim(it *prompt, pools poolRange) {
	for p := pools.first; p < pools.end; p++ {
		if it.plans[p].claimed > 0 {
			b.out.pools.add(p, protocol.PoolOp{Kind: protocol.Unclaim, Pages: it.sequence.Table(p)})
		}
	}
}

// matchAgain matches one prompt. The record is lent to it alone; the others keep
// their answers in the record of the batch.
func (b *promptBatch) matchAgain() {
	b.out.pools.received()
	b.recountSources()
	m := &b.match.Items[b.items[b.next].self]
	m.Partial = false
	m.Multimodal = nil // the tokens hold their symbols already
	b.rematch.Epoch = b.kernel.epoch
	b.rematch.Items = append(b.rematch.Items[:0], *m)
	b.stage = batchRematching
	b.kernel.toTree(&b.rematch)
}

// claimAgain claims what the prompt matches without partial reuse. Why it matches
// no more is a matter of the prompt as it asked first.
func (b *promptBatch) claimAgain() {
	it := &b.items[b.next]
	m := &b.match.Items[it.self]
	reach, lacking := m.Reach, m.Lacking
	*m = b.rematch.Items[0]
	m.Reach, m.Lacking = reach, lacking
	it.reuse = messages.PartialNone
	b.out.pools.reset()
	b.claim(b.next, b.self)
	b.inspectClaims(it)
	b.stage = batchReclaiming
	b.out.pools.send()
}

// end ends the sequence of a batch of one prompt.
func (b *promptBatch) end() { b.sequences.End(b.items[0].sequence) }

// check verifies that there is a match for every part of every prompt, and that the
// sequences of the prompts have not ended.
func (b *promptBatch) check() error {
	for i := range b.items {
		if it := &b.items[i]; max(it.self, it.cross) >= len(b.match.Items) || max(it.self, it.cross) < 0 {
			return fmt.Errorf("batch: prompt %d has matches %d and %d of %d", i, it.self, it.cross, len(b.match.Items))
		}
		if it := &b.items[i]; it.sequence != nil && !it.sequence.Running() {
			return fmt.Errorf("batch: prompt %d is of sequence %v, which has ended", i, it.sequence.ID())
		}
	}
	return nil
}

// cloneRetention copies what a host says of a prompt's retention; nil if it says
// nothing.
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
