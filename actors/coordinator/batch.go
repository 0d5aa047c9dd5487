package coordinator

import (
	"iter"
	"slices"

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
//	             │ ▲                             rematch ──▶ reclaim
//	             ▼ │                             one prompt's claims are taken back,
//	           the same, for each prompt whose   and it is matched again without
//	           source must not be reused         partial reuse
//
// Partial reuse copies the leading tokens of a stored block, the source, or takes
// the page of the source over.
//
// Prompts refer to their matches by index, since both arrays grow while prompts are entered.
// at and rematch belong to one prompt at a time: the batch matches prompts again one
// after the other.
type promptBatch struct {
	*shared
	stages[promptBatch]
	items []prompt
	// storedOnly: a prefetch, which takes no page but for what is stored.
	storedOnly bool
	// imported is the request if the prompt comes from another engine; nil: none.
	imported *protocol.BeginImport

	match   protocol.Match // one item for each prompt, and one for each input of an encoder
	rematch protocol.Match // one prompt, matched again
	at      int            // the prompt that is looked at
	// rejecting: prompts whose sources no one may reuse are being matched again;
	// at is the one under way.
	rejecting bool

	sources []sourcePages            // by pool
	counted map[messages.PageID]bool // of recountSources
	claims  pageClaims
	ready   func() // goes on with the request when the stages are done
}

func newPromptBatch(parts *shared) *promptBatch {
	n := len(parts.config.Pools)
	b := &promptBatch{shared: parts, sources: make([]sourcePages, n), claims: newPageClaims(n),
		counted: map[messages.PageID]bool{}}
	for p := range b.sources {
		b.sources[p].pages = map[messages.PageID]bool{}
	}
	return b
}

// reset empties the batch. Prompts and match items keep their arrays.
func (b *promptBatch) reset() {
	b.items, b.match.Items, b.storedOnly, b.imported = b.items[:0], b.match.Items[:0], false, nil
	b.forgetDecisions()
}

// forgetDecisions makes the batch one of which nothing has been decided. The caller has seen to
// it that no prompt of the batch has pages or claims.
func (b *promptBatch) forgetDecisions() {
	b.at, b.rejecting = 0, false
	b.claims.clear()
	for p := range b.sources {
		clear(b.sources[p].pages)
		b.sources[p].cached = 0
	}
}

// open gives the prompts that have not been refused, each with its index.
func (b *promptBatch) open() iter.Seq2[int, *prompt] {
	return func(yield func(int, *prompt) bool) {
		for i := range b.items {
			if it := &b.items[i]; it.refused == nil && !yield(i, it) {
				return
			}
		}
	}
}

// matchFor is what the tree has found for a prompt in a pool. The caller asks for pools of the
// prompt's range only, because a part that the prompt does not have has no match.
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

// begin begins the stages: it asks the tree for the prefixes of all prompts. Without block reuse
// nothing is stored: the match items are empty answers, as addMatch leaves them.
func (b *promptBatch) begin() {
	b.kernel.active = b
	b.wait(b, "prompts: matching", (*promptBatch).claimAll)
	if b.config.Reuse || b.imported != nil {
		b.match.Epoch = b.kernel.epoch
		b.kernel.toTree(&b.match)
	}
}

// claimAll claims what was found. It asks who holds the sources once everything is
// claimed: one that another prompt claims whole is no page that could be had. The order in the
// message is that of the answers: first what was there without the batch, then the claims, then
// the holders with the claims.
func (b *promptBatch) claimAll() {
	dropPartialInputs(&b.match)
	if b.imported != nil {
		b.locateImport()
	}
	b.out.pools.reset()
	for i := range b.open() {
		attentionProbe{b}.ask(i)
	}
	for i, it := range b.open() {
		b.claim(i, it.pools)
	}
	// A second walk: the inspections come behind all claims of all prompts.
	for i := range b.open() {
		b.inspectSource(i)
		b.inspectCheckpoint(i)
	}
	b.wait(b, "prompts: claiming", (*promptBatch).claimed)
	b.out.pools.send()
}

// claim writes the matched pages of some pools into the tables of the sequence and
// claims those on the device. Blocks in host memory get their page when it is taken.
func (b *promptBatch) claim(i int, pools poolRange) {
	it := &b.items[i]
	for p := pools.first; p < pools.end; p++ {
		pl := &it.plans[p]
		// A prompt that is matched again has another plan: indexes of its operations and counts
		// of its first match are not valid any more.
		*pl = noPlan
		_, locations := b.found(i, p)
		table, onDevice, onHost := tableOf(it.sequence.Table(p)[:0], locations)
		it.sequence.SetTable(p, table)
		pl.claimed, pl.onboarded, pl.whole = onDevice, onHost, onDevice+onHost
		if onDevice > 0 {
			b.out.pools.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: table})
		}
	}
}

// tableOf adds the device pages of blocks to a table, NoPage for what is not on
// the device, and counts the blocks on the device and those in host memory.
func tableOf(
	table []messages.PageID, locations []protocol.Location,
) (_ []messages.PageID, device, host int) {
	table = slices.Grow(table, len(locations))[:len(locations)]
	for b, at := range locations {
		page, tier, ok := at.Page()
		switch {
		case ok && tier == messages.Primary:
			device++
		case ok:
			page = messages.NoPage
			host++
		}
		table[b] = page
	}
	return table, device, host
}

// claimed decides how each source is reused; all sources are looked at before any
// prompt is decided about.
func (b *promptBatch) claimed() {
	b.out.pools.received()
	for i := range b.items {
		attentionProbe{b}.note(i)
		b.decideReuse(i)
	}
	b.recountSources()
	// Takeovers that are not allowed are found here, before any prompt is decided about: the
	// claims of a prompt that goes without its source may take pages that others count on.
	b.at, b.rejecting = 0, true
	b.rejectSources()
}

// rejectSources matches every prompt again whose source no one may reuse, so that
// its claims, too, are made before any prompt is decided about. It returns as soon as one of
// them is on its way, and goes on behind it when that has claimed what it matches.
func (b *promptBatch) rejectSources() {
	for ; b.at < len(b.items); b.at++ {
		it := &b.items[b.at]
		if it.refused == nil && it.reuse == messages.PartialNone && b.source(b.at) != nil {
			b.withdrawSource(b.at, b.match.Items[it.self].Limit)
			return
		}
	}
	b.at, b.rejecting = 0, false
	b.ready()
}

// withdrawSource takes the claims of a prompt back and matches it again, without
// partial reuse and with at most so many tokens. The prefix may be shorter then even
// with the limit that it had, because a window that ends at a block boundary reaches
// further back. The record of the match is lent to this prompt alone; the others keep their
// answers in that of the batch.
func (b *promptBatch) withdrawSource(i, limit int) {
	b.kernel.active = b
	b.at = i
	b.out.pools.reset()
	b.withdraw(&b.items[i], b.self)
	m := &b.match.Items[b.items[i].self]
	m.Partial = false
	m.Multimodal = nil // the tokens hold their symbols already
	b.rematch.Epoch = b.kernel.epoch
	b.rematch.Items = append(b.rematch.Items[:0], *m)
	b.rematch.Items[0].Limit = limit
	b.wait(b, "prompts: rematching", (*promptBatch).claimAgain)
	b.out.pools.send()
	b.kernel.toTree(&b.rematch)
}

// withdraw takes the claims of a prompt in some pools back and asks again who holds
// the sources among its whole blocks. The inspections are added behind the ends of the claims,
// so that they answer for the state without them.
func (b *promptBatch) withdraw(it *prompt, pools poolRange) {
	b.unclaim(it, pools)
	b.inspectClaims(it)
}

// unclaim takes the claims of a prompt in some pools back as if they had never been.
//
// An admission that lacks pages will be tried again, so the pools are told that its pages are
// awaited: it waits here, or the host sends it again. A prefetch need not be.
func (b *promptBatch) unclaim(it *prompt, pools poolRange) {
	awaited := it.refused != nil && !it.refused.Never && !b.storedOnly
	for p := pools.first; p < pools.end; p++ {
		if it.plans[p].claimed > 0 {
			b.out.pools.add(p, protocol.PoolOp{Kind: protocol.Unclaim, Pages: it.sequence.Table(p),
				Awaited: awaited})
		}
	}
}

// claimAgain claims what the prompt matches without partial reuse. Why it matches
// no more is a matter of the prompt as it asked first.
func (b *promptBatch) claimAgain() {
	b.out.pools.received()
	b.recountSources()
	it := &b.items[b.at]
	m := &b.match.Items[it.self]
	reach, lacking, limit := m.Reach, m.Lacking, m.Limit
	*m = b.rematch.Items[0]
	m.Reach, m.Lacking, m.Limit = reach, lacking, limit
	it.reuse = messages.PartialNone
	b.out.pools.reset()
	b.claim(b.at, b.self)
	b.inspectClaims(it)
	b.inspectCheckpoint(b.at)
	b.wait(b, "prompts: reclaiming", (*promptBatch).reclaimed)
	b.out.pools.send()
}

// reclaimed goes on to the next prompt whose source no one may reuse.
func (b *promptBatch) reclaimed() {
	b.out.pools.received()
	b.recountSources()
	if b.rejecting {
		b.rejectSources()
	} else {
		b.ready()
	}
}

// end ends the sequence of a batch of one prompt. Lookups and prefetches open the sequence for
// its tokens and tables; no host has its id.
func (b *promptBatch) end() { b.sequences.End(b.items[0].sequence) }
