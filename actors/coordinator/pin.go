package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// A PinPrefix protects the stored blocks of a prefix from eviction. It is matched and claimed like
// a prompt of an admission, and pins replace the claims:
//
//	start ─▶ (see batch.go) ─▶ decide ─▶ pinning ─▶ answer
//
// Only the reserve of a prompt in chunks can stand against a pin. A page that only such a prompt
// holds is covered by its reserve and counts once. When a pin holds it, too, it counts beside the
// reserve, and a later chunk could find no page. The pin is opened with the answer, so a failure
// that rebuilds the pools ends it.

// startPin enters the prefix. A pin holds what an admission of exactly this prefix would claim
// whole, to its last token: nothing is computed behind it.
func (a *admission) startPin(r *messages.PinPrefix) {
	a.pin = r
	r.Pinned = messages.Pinned{}
	a.held = a.held[:0]
	for _, n := range a.counts.device {
		a.held = append(a.held, n.Held)
	}
	a.batch.storedOnly = true
	r.Err = a.batch.addPrefix(&r.Prefix, len(r.Prefix.Tokens))
}

// decidePin pins what was claimed, unless a pool has too few pages: the first such pool, by id,
// is named. The claims end behind the pins, and leave no use.
func (a *admission) decidePin() {
	it := &a.batch.items[0]
	a.pinned = nil
	for p := it.pools.first; p < it.pools.end && a.pin.Err == nil; p++ {
		need := a.counts.device[p].Held - a.held[p]
		if refusal := a.pressure.lack(p, need, a.counts.available(p)+need, need); refusal != nil {
			a.pin.Err = refusal
		}
	}
	a.out.reset()
	if a.pin.Err == nil {
		a.addPins(it)
	}
	a.batch.unclaim(it, it.pools)
	a.wait(a, "pinning", (*admission).openPin)
	a.out.followUp()
}

// addPins adds a pin to each page, and to what is in host memory. Of a state pool that is the
// checkpoint where the prefix ends. Blocks that are in neither tier of a pool, because they have
// left its window, have no pin there.
func (a *admission) addPins(it *prompt) {
	a.pinned = make([][]protocol.BlockID, len(a.config.Pools))
	for p := it.pools.first; p < it.pools.end; p++ {
		if it.plans[p].claimed > 0 {
			a.out.pools.add(p, protocol.PoolOp{Kind: protocol.AddPins, Pages: it.sequence.Table(p), N: 1})
		}
		found, locations := a.batch.found(0, p)
		for b, at := range locations {
			// A pin is of blocks: it holds what is in host memory there, and follows the block when
			// it comes to the device.
			_, tier, ok := at.Page()
			if !ok {
				continue
			}
			a.pinned[p] = append(a.pinned[p], found[b])
			if tier == messages.Secondary {
				q := a.out.move.pool(p)
				q.Pins = append(q.Pins, found[b])
			}
		}
	}
}

// openPin opens the pin and answers.
func (a *admission) openPin() {
	a.out.followed()
	if a.pin.Err == nil {
		tokens := a.batch.matchOf(0).Blocks * a.config.TokensPerBlock
		// The last block of an encoder's input may end with padding, which is no token of the host.
		if s := a.batch.items[0].sequence; s.Input.Given() {
			tokens = min(tokens, int(s.Input.Length))
		}
		a.pin.Pinned = messages.Pinned{Pin: a.pins.open(a.pinned), Tokens: tokens}
	}
	a.batch.end()
	a.kernel.reply()
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
