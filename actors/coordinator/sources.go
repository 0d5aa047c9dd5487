package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// sourcePages are the device pages of one pool that prompts of a batch reuse in
// part. A page counts once, however many prompts reuse it. Partial copies may be written to
// every page that a take can get, but for the sources that no one holds: those are counted
// here. A source that is held is no page that a take could get.
type sourcePages struct {
	pages  map[messages.PageID]sourcePage
	cached int // of them, those that no one holds
}

// sourcePage is one of them. cached is false until the pools have answered who holds the page.
type sourcePage struct {
	prompts int32 // that reuse a part of it, at least 1
	cached  bool  // no sequence and no pin holds it
}

// clear forgets all pages and keeps the map for the next batch that has sources.
func (s *sourcePages) clear() {
	if len(s.pages) > 0 {
		clear(s.pages)
	}
	s.cached = 0
}

// add counts a prompt that reuses a page. Who holds the page is not known before
// setCached.
func (s *sourcePages) add(page messages.PageID) {
	if s.pages == nil {
		s.pages = map[messages.PageID]sourcePage{}
	}
	// A page that two prompts copy from is one page that no copy may be written to.
	at := s.pages[page]
	at.prompts++
	s.pages[page] = at
}

// remove takes a prompt away.
func (s *sourcePages) remove(page messages.PageID) {
	at := s.pages[page]
	if at.prompts--; at.prompts > 0 {
		s.pages[page] = at
		return
	}
	// Out of the count before it is out of the map.
	s.setCached(page, false)
	delete(s.pages, page)
}

// setCached notes whether no one holds a source. Other pages are passed over.
func (s *sourcePages) setCached(page messages.PageID, cached bool) {
	at, ok := s.pages[page]
	if !ok || at.cached == cached {
		return
	}
	if at.cached = cached; cached {
		s.cached++
	} else {
		s.cached--
	}
	s.pages[page] = at
}

func (s *sourcePages) empty() bool                   { return len(s.pages) == 0 }
func (s *sourcePages) has(page messages.PageID) bool { _, ok := s.pages[page]; return ok }

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
	unheld := b.sourceUnheld(i)
	// A block with something stored behind it must stay where it is, or what follows could
	// not be found any more.
	free := unheld && !source.HasChildren
	part, before, whole := b.othersOf(i)
	switch {
	// A block that ends in a checkpoint is a place where prompts branch: it is copied, so
	// that the next one finds it, too.
	case b.config.CopyOnPartial && b.states.empty() && free && source.Stored < b.config.TokensPerBlock && source.Tokens == source.Stored && !part:
		it.reuse = messages.PartialTakeover
	// The usual case: the source stays where it is, for the next prompt that matches it.
	case b.config.CopyOnPartial:
		it.reuse = messages.PartialCopy
	case free && !before && !whole:
		it.reuse = messages.PartialTakeover
	}
	b.noteSource(i, unheld)
}

// sourceUnheld tells whether no sequence and no pin holds the source in any pool. A page that
// is taken over is written to, so no one else may read it.
func (b *promptBatch) sourceUnheld(i int) bool {
	it, source := &b.items[i], b.source(i)
	for p := range b.self.end {
		// The pools have answered after all claims of the batch, so a source that another prompt has
		// claimed whole is held here.
		if op := it.plans[p].inspect; op >= 0 {
			if share := b.out.pools.op(p, op).Shares[0]; share.References > 0 || share.Pins > 0 {
				return false
			}
		} else if b.pins.count(p, source.Block) > 0 {
			return false
		}
	}
	return true
}

// noteSource counts the device pages of a source that are cached now: those that a
// takeover takes, and those that no partial copy may be written to.
func (b *promptBatch) noteSource(i int, unheld bool) {
	it, source := &b.items[i], b.source(i)
	for p := range b.self.end {
		op := it.plans[p].inspect
		if op < 0 {
			continue
		}
		page, _, _ := source.Pages[p].Page()
		share := b.out.pools.op(p, op).Shares[0]
		// A page that is taken over is no longer there for others, though no one holds it yet.
		if it.reuse == messages.PartialTakeover && unheld {
			b.claims.takeovers[p]++
		}
		if it.reuse != messages.PartialNone {
			b.sources[p].add(page)
			b.sources[p].setCached(page, share.References == 0 && share.Pins == 0)
		}
	}
}

// releaseSource takes a prompt from those that reuse a part of their source. A source in host
// memory was not inspected, and no page of it was counted.
func (b *promptBatch) releaseSource(it *prompt) {
	for p := range b.self.end {
		if it.reuse != messages.PartialNone && it.plans[p].inspect >= 0 {
			b.sources[p].remove(it.plans[p].source[0])
		}
	}
}

// inspectClaims asks again who holds the sources among the whole blocks of a
// prompt: those that it has claimed or given back just now. What is a whole block for this
// prompt may be the source of another one, which is cached or not by whether this one claims
// it.
func (b *promptBatch) inspectClaims(it *prompt) {
	for p := range b.self.end {
		sources := &b.sources[p]
		if it.plans[p].claimed == 0 || sources.empty() {
			continue
		}
		table := it.sequence.Table(p)
		for k, page := range table {
			// The claim, or its end, may have changed whether the source has a holder.
			if sources.has(page) {
				b.out.pools.add(p, protocol.PoolOp{Kind: protocol.Inspect, Pages: table[k : k+1]})
			}
		}
	}
}

// recountSources takes over what the pools said of the sources.
func (b *promptBatch) recountSources() { b.recount(b.decoder) }

// recount is recountSources for some pools. Questions about other pages, such as those of
// attentionProbe, change nothing.
func (b *promptBatch) recount(pools poolRange) {
	for p := pools.first; p < pools.end; p++ {
		for k := range b.out.pools.ops(p) {
			op := b.out.pools.op(p, k)
			if op.Kind == protocol.Inspect {
				share := op.Shares[0]
				b.sources[p].setCached(op.Pages[0], share.References == 0 && share.Pins == 0)
			}
		}
	}
}
