package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// enterPrefix makes a batch of one prefix; nil if its values are refused.
func (c *Coordinator) enterPrefix(p *messages.Prefix, limit int) (*admission, error) {
	if err := c.validateStored(p); err != nil {
		return nil, err
	}
	s := c.openSequence()
	s.namespace, s.prompt = p.Namespace, len(p.Tokens)
	s.tenant = c.Tenants[s.namespace.Salt]
	s.tokens[0] = append(s.tokens[0], p.Tokens...)
	it := c.item(s, 1)
	c.addMatch(s, p.Multimodal, limit)
	return it, nil
}

// lookup goes the way of an admission up to the judgement and back.
func (c *Coordinator) lookup(r *messages.Lookup) {
	r.Err, r.Found = nil, messages.Found{}
	c.startBatch(toLookup)
	if _, err := c.enterPrefix(&r.Prefix, c.reusable(len(r.Prefix.Tokens))); err != nil {
		r.Err = err
		c.reply()
		return
	}
	c.matchBatch()
}

// foundAtOnce answers a lookup without asking the pools, if they could not
// change the answer: there is no source of a partial reuse, or a free page
// everywhere that its copy could be written to.
func (c *Coordinator) foundAtOnce() bool {
	m := &c.match.Items[0]
	if m.Source.Block != protocol.NoBlock {
		if !c.CopyOnPartial {
			return false
		}
		for p := range c.Pools {
			if c.pages[p].Free == 0 {
				return false
			}
		}
	}
	c.countFound(&c.round.request.(*messages.Lookup).Found, m)
	c.endItem()
	c.reply()
	return true
}

// judgeLookup counts what an admission would reuse and gives the claims back.
// An admission that would be refused anyhow would reuse what is stored.
func (c *Coordinator) judgeLookup() {
	r := c.round.request.(*messages.Lookup)
	it := &c.admitting.items[0]
	if c.Reuse {
		again := it.how == messages.PartialNone && r.Found.MatchedTokens > 0
		if !again {
			c.countFound(&r.Found, &c.match.Items[0])
			if c.sourceFails(0) {
				c.rematch((*Coordinator).judge)
				return
			}
		} else if c.planItem(0); c.fits(it) == nil {
			r.Found = messages.Found{}
			c.countFound(&r.Found, &c.match.Items[0])
		}
	}
	c.resetWork()
	c.unclaim(it)
	c.sendPools((*Coordinator).lookedUp)
}

// countFound counts tokens by tier: secondary if any pool that would claim the
// block has it in host memory only.
func (c *Coordinator) countFound(f *messages.Found, m *protocol.MatchItem) {
	f.MatchedTokens = m.Matched
	if c.anyHosted() {
		for b := range m.Blocks {
			if hostedAt(m.Pages, b) {
				f.SecondaryTokens += c.TokensPerBlock
			}
		}
	}
	if rest := m.Matched - m.Blocks*c.TokensPerBlock; rest > 0 {
		for _, at := range m.Source.Pages {
			if _, tier, _ := at.Page(); tier == messages.Secondary {
				f.SecondaryTokens += rest
				break
			}
		}
	}
	f.PrimaryTokens = f.MatchedTokens - f.SecondaryTokens
}

// anyHosted tells whether host memory holds anything at all.
func (c *Coordinator) anyHosted() bool {
	for p := range c.host {
		if c.host[p].Free < c.host[p].Total {
			return true
		}
	}
	return false
}

// hostedAt tells whether any pool keeps block b in host memory only.
func hostedAt(pages [][]messages.Location, b int) bool {
	for p := range pages {
		if _, tier, _ := pages[p][b].Page(); tier == messages.Secondary {
			return true
		}
	}
	return false
}

// lookedUp answers a lookup.
func (c *Coordinator) lookedUp() {
	c.pooled()
	c.endItem()
	c.reply()
}

// endItem ends the sequence of a batch of one.
func (c *Coordinator) endItem() {
	c.sequences.end(c.admitting.items[0].sequence)
}

// pin holds the stored blocks of a prefix.
func (c *Coordinator) pin(r *messages.PinPrefix) {
	r.Err, r.Pinned = nil, messages.Pinned{}
	c.startBatch(toPrefetch)
	if _, err := c.enterPrefix(&r.Prefix, len(r.Prefix.Tokens)); err != nil {
		r.Err = err
		c.reply()
		return
	}
	if !c.Reuse {
		c.pinMatched()
		return
	}
	c.match.Epoch = c.epoch
	c.pending++
	c.next = (*Coordinator).pinMatched
	c.port.Tree(&c.match)
}

// pinMatched adds a pin to each page that a match of the prefix would claim.
// Only the reserve of a chunked prefill can stand against it: then the pages
// are claimed first, to see how many of them nobody held.
func (c *Coordinator) pinMatched() {
	c.resetWork()
	reserved := false
	for p := range c.Pools {
		if pages := c.matchedOnDevice(p); len(pages) > 0 && c.reserved[p] > 0 {
			c.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: pages})
			reserved = true
		}
	}
	if reserved {
		c.sendPools((*Coordinator).pinClaimed)
		return
	}
	c.pinPages()
}

// matchedOnDevice lists the device pages that a match of the prefix would claim.
func (c *Coordinator) matchedOnDevice(p int) []messages.PageID {
	m := &c.match.Items[0]
	if m.Blocks == 0 {
		return nil
	}
	var pages []messages.PageID
	for _, at := range m.Pages[p][:m.Blocks] {
		if page, tier, ok := at.Page(); ok && tier == messages.Primary {
			pages = append(pages, page)
		}
	}
	return pages
}

// pinClaimed judges a pin, and takes the claims back.
func (c *Coordinator) pinClaimed() {
	c.pooled()
	var refusal *messages.Refusal
	claims := make([][]messages.PageID, len(c.Pools))
	for p := range c.Pools {
		if len(c.work[p].Ops) == 0 {
			continue
		}
		op := &c.work[p].Ops[0]
		claims[p] = op.Pages
		if available := max(0, c.available(p)+op.Count); op.Count > available && refusal == nil {
			refusal = messages.RefusePages(c.Pools[p].Name, op.Count, available)
		}
	}
	c.resetWork()
	for p, pages := range claims {
		if len(pages) > 0 {
			c.add(p, protocol.PoolOp{Kind: protocol.Unclaim, Pages: pages})
		}
	}
	if refusal == nil {
		c.pinPages()
		return
	}
	c.round.request.(*messages.PinPrefix).Err = refusal
	c.sendPools((*Coordinator).lookedUp)
}

// pinPages adds the pins.
func (c *Coordinator) pinPages() {
	r := c.round.request.(*messages.PinPrefix)
	m := &c.match.Items[0]
	c.resetMove()
	blocks := make([][]protocol.BlockID, len(c.Pools))
	for p := range c.Pools {
		if pages := c.matchedOnDevice(p); len(pages) > 0 {
			c.add(p, protocol.PoolOp{Kind: protocol.AddPins, Pages: pages, N: 1})
		}
		if m.Blocks == 0 {
			continue
		}
		for b, at := range m.Pages[p][:m.Blocks] {
			if _, tier, ok := at.Page(); ok {
				blocks[p] = append(blocks[p], m.IDs[b])
				if tier == messages.Secondary {
					c.move.Pools[p].Pins = append(c.move.Pools[p].Pins, m.IDs[b])
				}
			}
		}
	}
	r.Pinned = messages.Pinned{Pin: c.pins.open(blocks), Tokens: m.Blocks * c.TokensPerBlock}
	c.endItem() // a recovery answers what is settled and looks no further
	c.settled = true
	c.after = (*Coordinator).reply
	c.sendEffects()
}

// pinned ends the sequence of a prefetch and answers.
func (c *Coordinator) pinned() {
	c.endItem()
	c.reply()
}

// unpin ends a pin: where its blocks are now is the tree's to say.
func (c *Coordinator) unpin(r *messages.UnpinPrefix) {
	r.Err = nil
	blocks, ok := c.pins.blocks[r.Pin]
	if !ok {
		r.Err = messages.Refuse(messages.UnknownPin, "pin %d does not exist", r.Pin)
		c.reply()
		return
	}
	c.locate.Blocks = c.locate.Blocks[:0]
	for _, list := range blocks {
		c.locate.Blocks = append(c.locate.Blocks, list...)
	}
	c.locate.Epoch = c.epoch
	c.pending++
	c.next = (*Coordinator).located
	c.port.Tree(&c.locate)
}

// located takes one pin from each page of the pin.
func (c *Coordinator) located() {
	r := c.round.request.(*messages.UnpinPrefix)
	use := c.nextUse()
	c.resetWork()
	c.resetMove()
	i := 0
	for p, list := range c.pins.blocks[r.Pin] {
		var pages []messages.PageID
		for _, block := range list {
			page, tier, ok := c.locate.Pages[p][i].Page()
			i++
			switch {
			case !ok:
			case tier == messages.Primary:
				pages = append(pages, page)
			default:
				c.move.Pools[p].Unpins = append(c.move.Pools[p].Unpins, protocol.Touch{Block: block, Use: use})
			}
		}
		if len(pages) > 0 {
			c.add(p, protocol.PoolOp{Kind: protocol.EndPin, Pages: pages, Use: use})
		}
	}
	c.pins.end(r.Pin)
	c.settled = true
	c.after = (*Coordinator).reply
	c.sendEffects()
}

// prefetch brings what host memory holds of a prefix to the device, by the way
// of an admission that takes no further page.
func (c *Coordinator) prefetch(r *messages.Prefetch) {
	r.Err, r.OnboardedPages = nil, 0
	c.startBatch(toPrefetch)
	if _, err := c.enterPrefix(&r.Prefix, len(r.Prefix.Tokens)); err != nil {
		r.Err = err
		c.reply()
		return
	}
	c.matchBatch()
}

// prefetched lets all pages go again: they are cached now, and used last.
func (c *Coordinator) prefetched() {
	r := c.round.request.(*messages.Prefetch)
	it := &c.admitting.items[0]
	if it.refused != nil {
		r.Err = it.refused
	}
	c.resetWork()
	c.resetMove()
	if it.refused == nil || it.refused == errTransfer {
		for p := range c.Pools {
			c.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: it.sequence.pools[p].tables[0], Use: it.sequence.use})
			if it.refused == nil {
				r.OnboardedPages += it.plans[p].hosted
			}
		}
	}
	c.move.Effects = append(c.move.Effects, c.lostHost...)
	c.lostHost = c.lostHost[:0]
	c.after = (*Coordinator).pinned
	c.sendEffects()
}
