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
	for i, b := range t.path {
		if o.offers(o.first+int32(i)) && !t.arena.held(b) {
			t.arena.blocks[b].priority = messages.DefaultPriority
			t.arena.blocksHeld++
		}
	}
	for p := o.from; p < o.to; p++ {
		for i, page := range o.pages(p, t.path) {
			if page != messages.NoPage {
				t.loadBlock(o, p, t.path[i], page)
			}
		}
	}
}

// loadBlock attaches the host page of a block in one pool. A location that is taken already
// is a fault of the caller: it asked the tree what is missing in the same round.
func (t *storer) loadBlock(o *offer, p int, b protocol.BlockID, page messages.PageID) {
	if l := t.arena.locations[p][b]; l != protocol.Nowhere {
		panic(fmt.Sprintf("tree: block %d is loaded in pool %d, which keeps it at %d", b, p, l))
	}
	t.arena.locations[p][b] = protocol.OnHost(page)
	t.appraiser.relocated(b, p)
	t.arena.blocks[b].stamp, o.changed = o.stamp, true
	t.effect(protocol.HostAttach, p, b, page)
	t.recordStored(b, p)
}

// blocksInTree answers what is in the tree of the blocks of a prompt, whatever could be
// matched of it.
func (t *matcher) blocksInTree(s *protocol.BlocksInTree) {
	s.Blocks = append(s.Blocks[:0], t.path...)
	s.Pages = resize(s.Pages, len(t.arena.pools))
	for p := range t.arena.pools {
		s.Pages[p] = resize(s.Pages[p], len(t.path))
		t.copyLocations(s.Pages[p], p, 0, int32(len(t.path)))
	}
}

// describe answers how many tokens blocks have, and their priorities; 0 for those that
// have left the tree.
func (t *Tree) describe(l *protocol.Locate) {
	l.Tokens, l.Priorities = resize(l.Tokens, len(l.Blocks)), resize(l.Priorities, len(l.Blocks))
	for k, b := range l.Blocks {
		l.Tokens[k], l.Priorities[k] = 0, 0
		if t.arena.alive(b) {
			l.Tokens[k], l.Priorities[k] = len(t.arena.hostTokens(b)), t.arena.blocks[b].priority
		}
	}
}
