package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// pin serves PinPrefix: the stored blocks of a prefix are protected from eviction.
//
//	start ─▶ matching ─▶ inspecting ─ enough pages ─▶ pinning ─▶ answer
//	                        └─ too few ─▶ answer
//
// Only the reserve of a prompt in chunks can stand against a pin: pools with one are asked first
// how many of the pages are held. The pin is opened with the answer, so a failure that rebuilds
// the pools ends it.
type pin struct {
	*shared
	stages[pin]
	batch   *promptBatch // for its sequence and its match
	request *messages.PinPrefix
	blocks  [][]protocol.BlockID // by pool, what is pinned
}

// start matches the prefix.
func (n *pin) start(request any) {
	n.request = request.(*messages.PinPrefix)
	r := n.request
	r.Err, r.Pinned = nil, messages.Pinned{}
	// A pin holds what an admission of exactly this prefix would claim whole, to its last
	// token: nothing is computed behind it.
	// storedOnly: a pin holds whole blocks, so no partial source is looked for.
	n.batch.reset(true)
	if _, err := n.batch.addPrefix(&r.Prefix, len(r.Prefix.Tokens)); err != nil {
		r.Err = err
		n.kernel.reply()
		return
	}
	n.wait(n, "pin: matching", (*pin).matched)
	n.batch.ask()
}

// matched asks about the pages where prompts in chunks have reserved some.
func (n *pin) matched() {
	dropPartialInputs(&n.batch.match)
	n.out.pools.reset()
	for p := n.pools().first; p < n.pools().end; p++ {
		// A page that only a prompt in chunks holds is covered by its reserve and counts once.
		// When a pin holds it, too, it counts beside the reserve, and a later chunk could find
		// no page.
		if pages := n.onDevice(p); len(pages) > 0 && n.counts.reserved(p) > 0 {
			n.out.pools.add(p, protocol.PoolOp{Kind: protocol.Inspect, Pages: pages})
		}
	}
	n.wait(n, "pin: inspecting", (*pin).inspected)
	n.out.pools.send()
}

// found is the number of whole blocks of the prefix that are stored.
func (n *pin) found() int { return n.batch.matchOf(0).Blocks }

// pools are those that the prefix is about.
func (n *pin) pools() poolRange { return n.batch.items[0].pools }

// onDevice lists the device pages that an admission of the prefix would claim. In a state pool
// that is the page of the checkpoint at the end of the prefix.
func (n *pin) onDevice(p int) []messages.PageID {
	if n.found() == 0 {
		return nil
	}
	var pages []messages.PageID
	_, locations := n.batch.found(0, p)
	for _, at := range locations {
		if page, tier, ok := at.Page(); ok && tier == messages.Primary {
			pages = append(pages, page)
		}
	}
	return pages
}

// inspected decides whether the pages may be pinned. A refusal names the first pool, by id, that
// has too few pages.
func (n *pin) inspected() {
	n.out.pools.received()
	for p := range n.config.Pools {
		need := 0
		for i := range n.out.pools.ops(p) {
			for _, share := range n.out.pools.op(p, i).Shares {
				if !share.Held {
					need++
				}
			}
		}
		if refusal := n.pressure.lack(p, need, n.counts.available(p), need); refusal != nil {
			n.request.Err = refusal
			// The sequence has only carried the tokens.
			n.batch.end()
			n.kernel.reply()
			return
		}
	}
	n.out.pools.reset()
	n.addPins()
}

// addPins adds a pin to each page, and to what is in host memory. Blocks that are in neither
// tier of a pool, because they have left its window, have no pin there.
func (n *pin) addPins() {
	n.out.move.reset()
	n.blocks = make([][]protocol.BlockID, len(n.config.Pools))
	for p := n.pools().first; p < n.pools().end; p++ {
		if pages := n.onDevice(p); len(pages) > 0 {
			n.out.pools.add(p, protocol.PoolOp{Kind: protocol.AddPins, Pages: pages, N: 1})
		}
		if n.found() == 0 {
			continue
		}
		// Of a state pool that is the checkpoint where the prefix ends.
		found, locations := n.batch.found(0, p)
		for b, at := range locations {
			// A pin is of blocks: it holds what is in host memory there, and follows the block when
			// it comes to the device.
			_, tier, ok := at.Page()
			if !ok {
				continue
			}
			n.blocks[p] = append(n.blocks[p], found[b])
			if tier == messages.Secondary {
				q := n.out.move.pool(p)
				q.Pins = append(q.Pins, found[b])
			}
		}
	}
	n.wait(n, "pin: pinning", (*pin).openPin)
	n.out.followUp()
}

// openPin opens the pin and answers.
func (n *pin) openPin() {
	n.out.followed()
	tokens := n.found() * n.config.TokensPerBlock
	// The last block of an encoder's input may end with padding, which is no token of the host.
	if s := n.batch.items[0].sequence; s.Input.Given() {
		tokens = min(tokens, int(s.Input.Length()))
	}
	n.request.Pinned = messages.Pinned{Pin: n.pins.open(n.blocks), Tokens: tokens}
	n.batch.end()
	n.kernel.reply()
}

// unpin serves UnpinPrefix: a pin ends. Where its blocks are now the tree says.
//
//	start ─▶ locating ─▶ unpinning ─▶ answer
//
// The pin is in force until the answer: a failure before that rebuilds the pools with it.
type unpin struct {
	*shared
	stages[unpin]
	request *messages.UnpinPrefix
	locate  protocol.Locate
}

// start asks where the blocks of the pin are.
func (n *unpin) start(request any) {
	n.request = request.(*messages.UnpinPrefix)
	r := n.request
	r.Err = nil
	// Pins know blocks, not pages: blocks have moved since.
	blocks, ok := n.pins.blocks[r.Pin]
	if !ok {
		r.Err = refusals.New(messages.ErrUnknownPin, "pin %d does not exist", r.Pin)
		n.kernel.reply()
		return
	}
	n.locate = protocol.Locate{Blocks: n.locate.Blocks[:0], Pages: n.locate.Pages}
	// One list for all pools: the tree answers for every pool and block, and endPins reads the
	// answers in the same order.
	for _, list := range blocks {
		n.locate.Blocks = append(n.locate.Blocks, list...)
	}
	n.locate.Epoch = n.kernel.epoch
	n.wait(n, "unpin: locating", (*unpin).endPins)
	n.kernel.toTree(&n.locate)
}

// endPins takes one pin from each page.
func (n *unpin) endPins() {
	// The end of a pin is a use: what was worth holding counts as used until now.
	use := n.uses.next()
	n.out.reset()
	i := 0
	for p, list := range n.pins.blocks[n.request.Pin] {
		var pages []messages.PageID
		for _, block := range list {
			// A block that was forgotten has no place, and no pin is left on it.
			page, tier, ok := n.locate.Pages[p][i].Page()
			i++
			switch {
			case !ok:
			case tier == messages.Primary:
				pages = append(pages, page)
			default:
				q := n.out.move.pool(p)
				q.Unpins = append(q.Unpins, protocol.Touch{Block: block, Use: use})
			}
		}
		// All pages of a pool in one operation: they get one use, and are evicted from the last.
		if len(pages) > 0 {
			n.out.pools.add(p, protocol.PoolOp{Kind: protocol.EndPin, Pages: pages, Use: use})
		}
	}
	n.wait(n, "unpin: unpinning", (*unpin).end)
	n.out.followUp()
}

// end ends the pin and answers.
func (n *unpin) end() {
	n.out.followed()
	n.pins.end(n.request.Pin)
	n.kernel.reply()
}
