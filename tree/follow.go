package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// followLimit is how many nodes below a new checkpoint are searched for longer ones. Most new checkpoints have none behind
// them, or those of the one prompt that has parted here; the limit is for prefixes of many prompts. A checkpoint that is
// not found follows the new one's front until it is made again.
const followLimit = 64

// follow tells pool p between which checkpoints on the device the one of block i of node x lies, which has just come
// there: the next shorter one of its prefix, and the next longer ones of all prefixes that go on from it.
//
// A policy can then say how many blocks each of them saves. Host memory does not count: what is there is not the pool's.
func (t *holdings) follow(p int, x, i int32, page messages.PageID) {
	if !t.following || !t.base.arena.pools[p].State {
		return
	}
	j := &t.base.log
	tell := func(n int) {
		j.effects = append(j.effects, protocol.Effect{Kind: protocol.Follow, Pool: messages.PoolID(p), Pages: j.pages[len(j.pages)-n:]})
	}
	j.pages = append(j.pages, t.shorter(p, x, i), page)
	tell(2)
	j.pages = append(j.pages, page)
	before, left := len(j.pages), followLimit
	t.appendLonger(p, x, i+1, &left)
	if n := len(j.pages) - before; n > 0 {
		tell(n + 1)
	}
}

// frontOf is the page of the checkpoint that the one of block i of node x follows on the device; NoPage: it follows none, or is
// not there, or pools are not told.
func (t *holdings) frontOf(p int, x, i int32) messages.PageID {
	if _, tier, _ := t.base.arena.locations(x, p)[i].Page(); !t.following || !t.base.arena.pools[p].State || tier != messages.Primary {
		return messages.NoPage
	}
	return t.shorter(p, x, i)
}

// shorter is the page of the longest checkpoint on the device in front of block i of node x.
func (t *holdings) shorter(p int, x, i int32) messages.PageID {
	for {
		if *t.base.arena.count(x, p, messages.Primary) > 0 {
			for i--; i >= 0; i-- {
				if page, tier, ok := t.base.arena.locations(x, p)[i].Page(); ok && tier == messages.Primary {
					return page
				}
			}
		}
		if t.base.arena.nodes[x].root != none {
			return messages.NoPage
		}
		x = t.base.parentOf(x)
		i = t.base.arena.nodes[x].n
	}
}

// appendLonger appends the pages of the first checkpoints on the device from block i of node x on, in every branch.
func (t *holdings) appendLonger(p int, x, i int32, left *int) {
	if *left--; *left < 0 {
		t.untold = true
		return
	}
	if *t.base.arena.count(x, p, messages.Primary) > 0 {
		for _, l := range t.base.arena.locations(x, p)[i:] {
			if page, tier, ok := l.Page(); ok && tier == messages.Primary {
				t.base.log.pages = append(t.base.log.pages, page)
				return
			}
		}
	}
	t.appendLongerOf(p, t.base.elements[x].children, left)
}

// appendLongerOf is appendLonger for the siblings from x down.
func (t *holdings) appendLongerOf(p int, x int32, left *int) {
	if x == none {
		return
	}
	if *left <= 0 {
		t.untold = true
		return
	}
	e := t.base.elements[x]
	t.appendLongerOf(p, e.side[0], left)
	t.appendLonger(p, x, 0, left)
	t.appendLongerOf(p, e.side[1], left)
}
