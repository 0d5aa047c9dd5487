package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// transfer serves TransferPages: pages of a sequence are copied to staging memory or from
// it. The answer comes when the copies are ordered on the device, and no request waits
// until they are over.
//
//	start ─▶ copying ─▶ answer: the ticket of the copies
//
// Requests name blocks, and the page is looked up here: between two requests of a
// hand-over a rebalance may give the pages other numbers.
type transfer struct {
	*shared
	stages[transfer]
	request *protocol.TransferPages
	copies  *protocol.CopyPages
}

// start looks the pages up and asks for their copies.
func (t *transfer) start(request any) {
	t.request = request.(*protocol.TransferPages)
	r := t.request
	r.Ticket, r.Err = messages.Ticket{}, nil
	s, refusal := t.sequences.Find(r.Sequence)
	if refusal != nil {
		r.Err = refusal
		t.kernel.reply()
		return
	}
	// A new record each time: the offloader keeps one that it fails over.
	t.copies = &protocol.CopyPages{Header: protocol.Header{Epoch: t.kernel.epoch}, In: r.In,
		Staging: r.Staging}
	for _, it := range r.Items {
		table := s.Table(int(it.Pool))
		if it.Block >= len(table) || table[it.Block] == messages.NoPage {
			r.Err = refusals.New(messages.ErrInternal, "sequence %v holds no page of block %d in pool %s",
				r.Sequence, it.Block, t.config.Pools[it.Pool].Name)
			t.kernel.reply()
			return
		}
		t.copies.Copies = append(t.copies.Copies, protocol.StagedCopy{Pool: it.Pool,
			Page: table[it.Block], Slot: it.Slot})
	}
	t.wait(t, "transfer: copying", (*transfer).end)
	t.kernel.toOffloader(t.copies)
}

// end answers with the ticket.
func (t *transfer) end() {
	t.request.Ticket = t.copies.Ticket
	if t.copies.Failed {
		t.request.Err = refusals.New(messages.ErrInternal,
			"a copy of the hand-over of sequence %v failed", t.request.Sequence)
	}
	t.kernel.reply()
}

// CarriedPages lists the pages that a hand-over of a sequence with so many computed tokens
// carries: those that the sequence holds and that have computed tokens, block by block,
// then the working pages. With a window these are the pages from which the next token
// reads; what the window has passed is carried by no hand-over. Both sides compute the
// list, so the stream need not have it. The pages of an encoder's input of so many tokens come
// last, all of them.
func (c *Config) CarriedPages(computed, input int) []protocol.PagePlace {
	var list []protocol.PagePlace
	tokens := c.tokenPools()
	for b := range c.blocks(computed) {
		for p := range tokens {
			if carries(&c.Pools[p], b, computed) {
				list = append(list, protocol.PagePlace{Pool: messages.PoolID(p), Block: b})
			}
		}
	}
	for p := tokens; p < c.selfPools(); p++ {
		list = append(list, protocol.PagePlace{Pool: messages.PoolID(p)})
	}
	for p := c.selfPools(); p < len(c.Pools); p++ {
		for b := range c.blocks(input) {
			list = append(list, protocol.PagePlace{Pool: messages.PoolID(p), Block: b})
		}
	}
	return list
}

// carries tells whether a sequence with so many computed tokens holds a block in a pool of
// blocks.
func carries(p *windows.Pool, block, computed int) bool {
	return p.Full() || block < p.SinkBlocks() || block >= p.FirstKept(computed)
}
