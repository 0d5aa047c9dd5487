package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// What a page is worth depends on what the other pools hold. A match can end at a block, which
// is an end then, if every pool of tokens and every pool of states has the block, and every
// full-attention pool all blocks before it, in some tier. A window may need more; an end is
// what a match cannot do without.
//
//	full attention  b0 ── b1 ── b2 ── b3 ── ·       b1 is an end. b0 and b1 can be reused,
//	checkpoints            ●           ·     ●      b2, b3 and the checkpoint of b4 are
//	                                                useless
//
// A page of tokens is useless if neither its block nor one behind it is an end, a checkpoint if
// its block is none. Pools and offloader are told, and evict what is useless before other
// contents of the same priority. In a tree with one self pool nothing is useless, since there
// is no other pool to agree with, and nothing is useless in cross pools.

// worth is what is known of the value of a block's pages.
type worth struct {
	ends   int32 // blocks behind it with ends > 0, and 1 if it is an end itself
	rooted bool  // every full-attention pool has it and all blocks before it
	end    bool  // a match can end there
	// What was told: of the pages of tokens, and of the checkpoint, that they are useless. A
	// block with states begins as useless, since its checkpoint comes later.
	useless, endless bool
}

// appraiser follows what blocks are worth.
type appraiser struct {
	*reporter
	// Of the message under way: blocks whose worth may have changed, some of them twice, and those
	// of them whose pages of tokens or checkpoints are to be told of.
	changed, tokens, states []protocol.BlockID
	stack                   []protocol.BlockID // scratch space of root
}

// joint tells whether the pools of a block must agree for a match to end there.
func (t *arena) joint(b protocol.BlockID) bool { return t.selfPools > 1 && !t.cross(b) }

// toldUseless is what pool p, or host memory, was told of the page of a block.
func (t *arena) toldUseless(p int, b protocol.BlockID) bool {
	w := &t.blocks[b].worth
	if t.pools[p].State {
		return w.endless
	}
	return w.useless && t.joint(b)
}

// follow tells whether block b may join an effect that ends with block last. The order of those
// that are appraised does not matter.
func (t *arena) follow(kind protocol.EffectKind, last, b protocol.BlockID) bool {
	return t.blocks[b].parent == last || kind == protocol.Appraise || kind == protocol.HostAppraise
}

// relocated follows that a pool has got a block, or has lost it.
func (t *appraiser) relocated(b protocol.BlockID) {
	if t.arena.joint(b) {
		t.changed = append(t.changed, b) // nothing is told of a checkpoint that is gone
		t.root(b)
	}
}

// newBlock makes a block, which is no end yet.
func (t *appraiser) newBlock(at spot, tokens []messages.Token) protocol.BlockID {
	b := t.arena.newBlock(at, tokens)
	t.arena.blocks[b].worth.useless = t.arena.joint(b) && t.arena.recurrent()
	t.relocated(b)
	return b
}

// rootedNow tells whether every full-attention pool has a block, and all blocks before it.
func (t *arena) rootedNow(b protocol.BlockID) bool {
	if up := t.blocks[b].parent; up != protocol.NoBlock && !t.blocks[up].worth.rooted {
		return false
	}
	return !t.lackedInFull(b, 0, t.tokenPools)
}

// root follows a change of what full-attention pools hold, down to where it changes nothing.
func (t *appraiser) root(b protocol.BlockID) {
	t.stack = append(t.stack[:0], b)
	for n := len(t.stack); n > 0; n = len(t.stack) {
		b := t.stack[n-1]
		t.stack = t.stack[:n-1]
		now := t.arena.rootedNow(b)
		if w := &t.arena.blocks[b].worth; w.rooted != now {
			w.rooted = now
			t.stack = t.arena.appendChildren(t.stack, t.arena.behind(b))
		}
		t.settle(b)
	}
}

// settle notes whether a match can end at a block.
func (t *appraiser) settle(b protocol.BlockID) {
	w := &t.arena.blocks[b].worth
	end := w.rooted && t.arena.heldByAll(b) && t.arena.checkpointed(b)
	if w.end == end {
		return
	}
	w.end = end
	t.changed = append(t.changed, b)
	change := int32(1)
	if !end {
		change = -1
	}
	for b != protocol.NoBlock {
		w := &t.arena.blocks[b].worth
		before := w.ends
		if w.ends += change; before > 0 && w.ends > 0 {
			return
		}
		t.changed = append(t.changed, b)
		b = t.arena.blocks[b].parent
	}
}

// appraise tells pools and offloader which pages have become useless, or useful again. It comes
// behind all other changes of a message, so what was useless in between is not told.
func (t *appraiser) appraise() {
	tokens, states := t.tokens[:0], t.states[:0]
	for _, b := range t.changed {
		w := &t.arena.blocks[b].worth
		if !t.arena.alive(b) || !t.arena.joint(b) {
			continue
		}
		if useless := w.ends == 0; w.useless != useless {
			w.useless = useless
			tokens = append(tokens, b)
		}
		// A checkpoint that is made comes as one that can be used.
		if endless := !w.end && t.arena.anyCheckpoint(b); w.endless != endless {
			w.endless = endless
			states = append(states, b)
		}
	}
	t.changed, t.tokens, t.states = t.changed[:0], tokens, states
	for p := range t.arena.tokenPools {
		t.tell(p, tokens)
	}
	for p := t.arena.tokenPools; p < t.arena.selfPools; p++ {
		t.tell(p, states)
	}
}

// tell tells a pool what blocks are worth, whether it has them on the device or in host memory:
// first what has become useless, then what can be used again, each in one effect.
func (t *appraiser) tell(p int, blocks []protocol.BlockID) {
	for _, useless := range [2]bool{true, false} {
		for _, tier := range [2]messages.Tier{messages.Primary, messages.Secondary} {
			for _, b := range blocks {
				page, at, ok := t.arena.locations[p][b].Page()
				switch {
				case !ok || at != tier || t.arena.toldUseless(p, b) != useless:
				case tier == messages.Primary:
					t.effect(protocol.Appraise, p, b, page)
				default:
					t.effect(protocol.HostAppraise, p, b, messages.NoPage)
				}
			}
		}
	}
}

// anyCheckpoint tells whether some state pool has the checkpoint of a block.
func (t *arena) anyCheckpoint(b protocol.BlockID) bool {
	return t.lacking(b, t.tokenPools, t.selfPools) < t.selfPools-t.tokenPools
}

// worth checks what is known of the value of a block's pages.
func (c *checker) worth(b protocol.BlockID) {
	w := &c.arena.blocks[b].worth
	if !c.arena.joint(b) {
		c.expect(*w == worth{}, "block %d is worth %v beside no other pool", b, *w)
		return
	}
	end := w.rooted && c.arena.heldByAll(b) && c.arena.checkpointed(b)
	c.expect(w.rooted == c.arena.rootedNow(b) && w.end == end,
		"block %d is rooted: %v, an end: %v", b, w.rooted, w.end)
	ends := int32(0)
	if end {
		ends++
	}
	for _, next := range c.arena.appendChildren(nil, c.arena.behind(b)) {
		if c.arena.blocks[next].worth.ends > 0 {
			ends++
		}
	}
	c.expect(w.ends == ends, "block %d counts %d ends, has %d", b, w.ends, ends)
	c.expect(w.useless == (ends == 0), "block %d was told to be useless: %v", b,
		w.useless)
	c.expect(w.endless == (!end && c.arena.anyCheckpoint(b)),
		"the checkpoint of block %d was told to be useless: %v", b, w.endless)
}
