package tree

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// load attaches host pages whose contents have come from a store. A block that no
// pool held gets the default priority; one that another pool holds keeps what it has.
// Either counts as stored now, as a block does that a sequence gives a page. A fetch is
// no sequence, so no session and no retention changes.
func (t *storer) load(o *offer) {
	for _, g := range t.path.segments {
		depth := t.base.arena.nodes[g.node].depth
		for i := g.lo; i < g.hi; i++ {
			if b := t.base.arena.ids(g.node)[i]; o.offers(depth+i) && !t.base.arena.held(g.node, i) {
				t.base.blocks.priority[b] = messages.DefaultPriority
				t.base.blocksHeld++
			}
		}
	}
	for p := o.first; p < o.end; p++ {
		t.loadPool(o, p)
	}
}

// loadPool attaches the host pages of one pool. A location that is taken already is a
// fault of the caller: it asked the tree what is missing in the same round.
func (t *storer) loadPool(o *offer, p int) {
	for _, g := range t.path.segments {
		depth := t.base.arena.nodes[g.node].depth
		for k, page := range o.pages(p, depth+g.lo, depth+g.hi) {
			i := g.lo + int32(k)
			if page == messages.NoPage {
				continue
			}
			b := t.base.arena.ids(g.node)[i]
			if l := t.base.arena.locations(g.node, p)[i]; l != protocol.Nowhere {
				panic(fmt.Sprintf("tree: block %d is loaded in pool %d, which keeps it at %d", b, p, l))
			}
			t.base.arena.setLocation(g.node, i, p, protocol.OnHost(page))
			t.base.blocks.stamp[b] = o.stamp
			t.base.effect(protocol.HostAttach, p, b, page)
			t.base.recordStored(segment{g.node, i, i + 1}, p)
			// As after an offload: the offloader has no clock, so the tree ends the priority.
			t.base.timers.watch(b)
		}
	}
}

// blocksInTree answers what is in the tree of the blocks of a prompt, whatever could be
// matched of it.
func (t *matcher) blocksInTree(s *protocol.BlocksInTree, q *prompt) {
	s.Blocks = resize(s.Blocks, int(q.whole))
	s.Pages = resize(s.Pages, len(t.arena.pools))
	for _, g := range t.path.segments {
		copy(s.Blocks[t.arena.nodes[g.node].depth:], t.arena.ids(g.node)[:g.hi])
	}
	for p := range t.arena.pools {
		s.Pages[p] = resize(s.Pages[p], int(q.whole))
		t.path.copyLocations(s.Pages[p], p, 0, q.whole)
	}
}

// describe answers how many tokens blocks have, and their priorities; 0 for those that
// have left the tree.
func (t *Tree) describe(l *protocol.Locate) {
	l.Tokens, l.Priorities = resize(l.Tokens, len(l.Blocks)), resize(l.Priorities, len(l.Blocks))
	for k, b := range l.Blocks {
		l.Tokens[k], l.Priorities[k] = 0, 0
		if t.base.arena.alive(b) {
			x, i := t.base.arena.at(b)
			t.base.expireNow(b)
			l.Tokens[k], l.Priorities[k] = len(t.base.arena.tokensAt(x, i))-int(t.base.padding(x, i)), t.base.blocks.priority[b]
		}
	}
}
