package coordinator

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
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

	match   protocol.Match // one item for each prompt
	rematch protocol.Match // one prompt, matched again
	next    int            // the prompt that is looked at
	// rejecting: prompts whose sources nobody may reuse are being matched again;
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

// prompt is one prompt of the batch; its index is also that of its match.
type prompt struct {
	sequence *sequence.Sequence
	result   *messages.Admitted // nil but for admissions
	beams    int
	refused  *messages.Refusal
	reuse    messages.PartialReuse // how the source is reused
	query    int                   // index of its question in the Move, −1: none
	plans    []poolPlan            // by pool
}

// errTransfer marks a prompt whose transfer failed.
var errTransfer = messages.Refuse(messages.Internal, "a transfer into the pages of the admission failed")

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
	limit      int // tokens that may be matched
	chunk      int // tokens of a chunk, 0: not in chunks
	// keepSymbols: the tree keeps the symbols of covered tokens as long as the
	// sequence runs, because it will store them.
	keepSymbols bool
}

// add makes a sequence of a prompt and enters it into the batch.
func (b *promptBatch) add(spec promptSpec) *prompt {
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
	*it = prompt{sequence: s, beams: 1, reuse: messages.PartialNone, query: -1, plans: plans}
	b.addMatch(s, &spec)
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
		if err := b.config.Validate(r); err != nil {
			result.Err = err
			continue
		}
		if n := len(r.Tokens); n > b.config.MaxSeqLen {
			result.Err = messages.Refuse(messages.TooLong, "a prompt of %d tokens is over max_seq_len %d", n, b.config.MaxSeqLen)
			continue
		}
		it := b.add(promptSpec{
			origin: sequence.Origin{Namespace: r.Namespace, Session: r.Session, Retention: cloneRetention(r.Retention)},
			tokens: r.Tokens, multimodal: r.Multimodal, limit: b.config.reusable(len(r.Tokens)),
			chunk: r.ChunkTokens, keepSymbols: len(r.Multimodal) > 0,
		})
		it.result, it.beams = result, max(1, r.BeamWidth)
	}
	return results
}

// addPrefix enters a prefix that a host names; it returns nil if its values are
// refused.
func (b *promptBatch) addPrefix(p *messages.Prefix, limit int) (*prompt, error) {
	if err := b.config.validateStored(p); err != nil {
		return nil, err
	}
	return b.add(promptSpec{
		origin: sequence.Origin{Namespace: p.Namespace}, tokens: p.Tokens, multimodal: p.Multimodal, limit: limit,
	}), nil
}

// addMatch adds the question for a prompt to the Match record.
func (b *promptBatch) addMatch(s *sequence.Sequence, spec *promptSpec) {
	m := &b.match
	if n := len(m.Items); n < cap(m.Items) {
		m.Items = m.Items[:n+1]
	} else {
		m.Items = append(m.Items, protocol.MatchItem{})
	}
	it := &m.Items[len(m.Items)-1]
	it.Namespace, it.Tokens, it.Multimodal, it.Limit = s.Namespace, s.Tokens(0), spec.multimodal, spec.limit
	it.KeepSymbols, it.Partial = spec.keepSymbols, b.config.Partial && !b.storedOnly
	it.Matched, it.Blocks, it.Reach, it.Lacking = 0, 0, 0, false
	it.IDs = it.IDs[:0]
	it.Source = protocol.Source{Block: protocol.NoBlock, Pages: it.Source.Pages[:0]}
	for p := range it.Pages {
		it.Pages[p] = it.Pages[p][:0]
	}
}

// matchFor is what the tree has found for a prompt in a pool.
func (b *promptBatch) matchFor(i, _ int) *protocol.MatchItem { return &b.match.Items[i] }

// hasSource tells whether a prompt matches part of a block behind its whole blocks.
func (b *promptBatch) hasSource(i int) bool { return b.match.Items[i].Source.Block != protocol.NoBlock }

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
		if b.items[i].refused == nil {
			b.claim(i)
		}
	}
	for i := range b.items {
		if b.items[i].refused == nil {
			b.inspectSource(i)
		}
	}
	b.stage = batchClaiming
	b.out.pools.send()
}

// claim writes the matched pages into the tables of the sequence and claims those
// on the device. Blocks in host memory get their page when it is taken.
func (b *promptBatch) claim(i int) {
	it := &b.items[i]
	for p := range b.config.Pools {
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
func tableOf(table []messages.PageID, locations []messages.Location) (_ []messages.PageID, device, host int) {
	table = slices.Grow(table, len(locations))[:len(locations)]
	for b, at := range locations {
		table[b] = messages.PageID(at)
		device += int(^uint32(at) >> 31) // mostly all are: no branch
	}
	if device == len(locations) {
		return table, device, 0
	}
	for b, at := range locations {
		if at < messages.Nowhere {
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
	b.users.count(b.items, b.match.Items, !b.config.CopyOnPartial)
	for i := range b.items {
		b.decideReuse(i)
	}
	b.next, b.rejecting = 0, true
	b.rejectSources()
}

// rejectSources matches every prompt again whose source nobody may reuse, so that
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
	b.withdraw(&b.items[i])
	b.stage = batchWithdrawing
	b.out.pools.send()
}

// withdraw takes the claims of a prompt back and asks again who holds the sources
// among its whole blocks.
func (b *promptBatch) withdraw(it *prompt) {
	b.releaseSource(it)
	b.unclaim(it)
	b.inspectClaims(it)
}

// unclaim takes the claims of a prompt back as if they had never been.
func (b *promptBatch) unclaim(it *prompt) {
	for p := range b.config.Pools {
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
	m := &b.match.Items[b.next]
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
	m := &b.match.Items[b.next]
	reach, lacking := m.Reach, m.Lacking
	*m = b.rematch.Items[0]
	m.Reach, m.Lacking = reach, lacking
	it := &b.items[b.next]
	it.reuse = messages.PartialNone
	b.out.pools.reset()
	b.claim(b.next)
	b.inspectClaims(it)
	b.stage = batchReclaiming
	b.out.pools.send()
}

// end ends the sequence of a batch of one prompt.
func (b *promptBatch) end() { b.sequences.End(b.items[0].sequence) }

// check verifies that there is a match for every prompt and that all claims of
// pages come from prompts.
func (b *promptBatch) check() error {
	if len(b.match.Items) < len(b.items) {
		return fmt.Errorf("batch: %d matches for %d prompts", len(b.match.Items), len(b.items))
	}
	for i := range b.items {
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
