package coordinator

import "github.com/kvactor/kvactor/internal/protocol"

// rehearse goes the way of a batch of admissions up to the judgement and back:
// its answer is what the batch would be refused for.
func (c *Coordinator) rehearse(r *protocol.DryRunAdmit) {
	r.Err = nil
	c.startBatch(toRehearse)
	r.Results = c.enterAll(r.Requests, r.Results)
	if len(c.admitting.items) == 0 {
		c.reply()
		return
	}
	c.matchBatch()
}

// rehearsed gives all claims back.
func (c *Coordinator) rehearsed() {
	c.resetWork()
	for i := range c.admitting.items {
		if it := &c.admitting.items[i]; it.refused == nil {
			c.unclaim(it)
		}
	}
	c.sendPools((*Coordinator).rehearseEnd)
}

// rehearseEnd ends the sequences, refused or not.
func (c *Coordinator) rehearseEnd() {
	c.pooled()
	for i := range c.admitting.items {
		it := &c.admitting.items[i]
		if it.refused != nil {
			c.endRefused(it)
			continue
		}
		c.letSymbols(it.sequence)
		c.sequences.end(it.sequence)
		it.sequence = nil
	}
	c.admitLet()
}
