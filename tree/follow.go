package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// followLimit is how many runs of blocks below a new checkpoint are searched for longer ones.
// Most new checkpoints have none behind them, or those of the one prompt that has parted
// here; the limit is for prefixes of many prompts. A checkpoint that is not found follows
// the new one's front until it is made again.
const followLimit = 64

// follow tells pool p between which checkpoints on the device the one of block b lies, which
// has just come there: the next shorter one of its prefix, and the next longer ones of all
// prefixes that go on from it.
//
// A policy can then say how many blocks each of them saves. Host memory does not count:
// what is there is not the pool's.
func (t *holdings) follow(p int, b protocol.BlockID, page messages.PageID) {
	if !t.following || !t.arena.pools[p].State {
		return
	}
	j := &t.log
	tell := func(n int) {
		j.effects = append(j.effects, protocol.Effect{
			Kind: protocol.Follow, Pool: messages.PoolID(p), Pages: j.pages[len(j.pages)-n:],
		})
	}
	j.pages = append(j.pages, t.shorter(p, b), page)
	tell(2)
	j.pages = append(j.pages, page)
	before, left := len(j.pages), followLimit
	t.appendLonger(p, t.arena.blocks[b].children, &left)
	if n := len(j.pages) - before; n > 0 {
		tell(n + 1)
	}
}

// frontOf is the page of the checkpoint that the one of block b follows on the device;
// NoPage: it follows none, or is not there, or pools are not told.
func (t *holdings) frontOf(p int, b protocol.BlockID) messages.PageID {
	if !t.following || !t.arena.pools[p].State || t.arena.devicePage(p, b) == messages.NoPage {
		return messages.NoPage
	}
	return t.shorter(p, b)
}

// shorter is the page of the longest checkpoint on the device in front of block b.
func (t *holdings) shorter(p int, b protocol.BlockID) messages.PageID {
	for b = t.arena.blocks[b].parent; b != protocol.NoBlock; b = t.arena.blocks[b].parent {
		if page := t.arena.devicePage(p, b); page != messages.NoPage {
			return page
		}
	}
	return messages.NoPage
}

// appendLonger appends the pages of the first checkpoints on the device from block b and its
// siblings below on, in every branch, in token order.
func (t *holdings) appendLonger(p int, b protocol.BlockID, left *int) {
	if b == protocol.NoBlock {
		return
	}
	if *left--; *left < 0 {
		t.untold = true
		return
	}
	side := t.arena.blocks[b].side
	t.appendLonger(p, side[0], left)
	// The run of b, up to where it branches.
	page, next := t.arena.devicePage(p, b), t.arena.onlyWholeChild(b)
	for page == messages.NoPage && next != protocol.NoBlock {
		b = next
		page, next = t.arena.devicePage(p, b), t.arena.onlyWholeChild(b)
	}
	if page != messages.NoPage {
		t.log.pages = append(t.log.pages, page)
	} else {
		t.appendLonger(p, t.arena.blocks[b].children, left)
	}
	t.appendLonger(p, side[1], left)
}
