package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// sourcePages are the device pages of one pool that prompts of a batch reuse in part, or did
// before they were matched again. Partial copies may be written to every page that a take can
// get, but for the sources that no one holds. A source that is held is no page that a take could
// get.
type sourcePages struct {
	pages  map[messages.PageID]bool // whether no one holds the page, as the pool has said last
	cached int                      // of them, those that prompts reuse and no one holds
}

// unheld tells whether no one holds a page.
func unheld(s protocol.Share) bool { return s.References == 0 && s.Pins == 0 }

// recountSources takes over what the pools said of the sources, and counts them. A page counts
// once, however many prompts reuse it. Questions about other pages, such as those of
// attentionProbe, change nothing.
func (b *promptBatch) recountSources() {
	for p := range b.decoder.end {
		s := &b.sources[p]
		s.cached = 0
		for k := range b.out.pools.ops(p) {
			op := b.out.pools.op(p, k)
			if op.Kind != protocol.Inspect {
				continue
			}
			if _, source := s.pages[op.Pages[0]]; source {
				s.pages[op.Pages[0]] = unheld(op.Shares[0])
			}
		}
		clear(b.counted)
		for i := range b.items {
			it := &b.items[i]
			reuses := it.refused == nil && it.plans[p].inspect >= 0 &&
				(it.reuse != messages.PartialNone || b.states.has(p))
			if page := it.plans[p].source[0]; reuses && s.pages[page] && !b.counted[page] {
				b.counted[page] = true
				s.cached++
			}
		}
	}
}

// takeovers is the number of pages of a pool that prompts take over and that count for no one
// yet. The reserve of a prompt in chunks stands for such a page once the prompt is planned.
func (b *promptBatch) takeovers(p int) (n int) {
	if len(b.sources[p].pages) == 0 {
		return 0
	}
	for i := range b.items {
		it := &b.items[i]
		if it.refused == nil && it.reuse == messages.PartialTakeover && it.plans[p].inspect >= 0 &&
			it.plans[p].reserve == 0 {
			n++
		}
	}
	return n
}

// othersOf says how other prompts of the batch reuse the source of prompt i: in part, in part and
// before it, and whole. A block is known here by its id and not by a page, because the pools may
// keep it in different tiers.
func (b *promptBatch) othersOf(i int) (part, before, whole bool) {
	// A source lies directly behind the whole blocks of its prompt, so their number is its depth.
	own := &b.match.Items[b.items[i].self]
	block, depth := own.Source.Block, own.Blocks
	for j := range b.items {
		if j == i || b.items[j].refused != nil {
			continue
		}
		m := &b.match.Items[b.items[j].self]
		part = part || m.Source.Block == block
		before = before || m.Source.Block == block && j < i
		whole = whole || depth < m.Blocks && m.IDs[depth] == block
	}
	return part, before, whole
}

// inspectSource asks the pools who holds the source of a prompt. The question goes behind the
// claims of all prompts in the message to the pool, so the answer has them. It lends the pool
// an array of the plan; no prompt is moved in the batch before the answer is there.
func (b *promptBatch) inspectSource(i int) {
	it, source := &b.items[i], b.source(i)
	if source == nil {
		return
	}
	for p := range b.self.end {
		// In host memory only pins can hold it, and those the coordinator knows itself.
		if page, tier, _ := source.Pages[p].Page(); tier == messages.Primary {
			pl := &it.plans[p]
			pl.source[0] = page
			pl.inspect = b.out.pools.add(p, protocol.PoolOp{Kind: protocol.Inspect, Pages: pl.source[:]})
		}
	}
}

// decideReuse chooses takeover, copy or nothing for the source of prompt i.
//
// A takeover loses nothing if the block is stored in part only and all its stored
// tokens are reused. Without copy_on_partial_reuse it is the only way, and then the
// first of the batch gets it. No one may hold the page, and nothing may be stored
// behind the block.
//
// With copies a takeover is chosen only where no other prompt of the batch reuses the block in
// part: a copy serves both of them, a takeover one.
func (b *promptBatch) decideReuse(i int) {
	it, source := &b.items[i], b.source(i)
	it.reuse = messages.PartialNone
	if it.refused != nil || source == nil {
		return
	}
	// A block with something stored behind it must stay where it is, or what follows could
	// not be found any more.
	free := b.sourceUnheld(i) && !source.HasChildren
	part, before, whole := b.othersOf(i)
	switch {
	// A block that ends in a checkpoint is a place where prompts branch: it is copied, so
	// that the next one finds it, too.
	case b.config.CopyOnPartial && b.states.empty() && free &&
		source.Stored < b.config.TokensPerBlock && source.Tokens == source.Stored && !part:
		it.reuse = messages.PartialTakeover
	// The usual case: the source stays where it is, for the next prompt that matches it.
	case b.config.CopyOnPartial:
		it.reuse = messages.PartialCopy
	case free && !before && !whole:
		it.reuse = messages.PartialTakeover
	}
	for p := range b.self.end {
		if it.plans[p].inspect >= 0 && it.reuse != messages.PartialNone {
			b.sources[p].pages[it.plans[p].source[0]] = false // see recountSources
		}
	}
}

// sourceUnheld tells whether no sequence and no pin holds the source in any pool. A page that
// is taken over is written to, so no one else may read it.
func (b *promptBatch) sourceUnheld(i int) bool {
	it, source := &b.items[i], b.source(i)
	for p := range b.self.end {
		// The pools have answered after all claims of the batch, so a source that another prompt has
		// claimed whole is held here.
		if !b.unheldIn(p, it.plans[p].inspect, source.Block) {
			return false
		}
	}
	return true
}

// unheldIn tells whether no one holds a block in a pool, of whose page an operation has asked; −1:
// it is in host memory, where only pins can hold it.
func (b *promptBatch) unheldIn(p, op int, block protocol.BlockID) bool {
	if op >= 0 {
		return unheld(b.out.pools.op(p, op).Shares[0])
	}
	return b.pins.count(p, block) == 0
}

// inspectClaims asks again who holds the sources among the whole blocks of a
// prompt: those that it has claimed or given back just now. What is a whole block for this
// prompt may be the source of another one, which is cached or not by whether this one claims
// it.
func (b *promptBatch) inspectClaims(it *prompt) {
	for p := range b.self.end {
		sources := b.sources[p]
		if it.plans[p].claimed == 0 || len(sources.pages) == 0 {
			continue
		}
		table := it.sequence.Table(p)
		for k, page := range table {
			// The claim, or its end, may have changed whether the source has a holder.
			if _, source := sources.pages[page]; source {
				b.out.pools.add(p, protocol.PoolOp{Kind: protocol.Inspect, Pages: table[k : k+1]})
			}
		}
	}
}
