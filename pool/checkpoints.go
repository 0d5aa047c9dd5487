package pool

import (
	"time"

	"github.com/kvactor/kvactor/internal/forecast"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// checkpoints is what a pool of states with the policy forecast knows of its checkpoints beside their pieces: which is the next
// shorter one of the same prefix. What a checkpoint saves is the blocks behind that one.
//
//	front   ── 40 ──┬── 100      40 saves 40 blocks, 100 saves 60 and 70 saves 30;
//	                └── 70       without 40 they save 100 and 70
//
// The tree says where a new checkpoint belongs (FollowCheckpoint). Those that are evicted are taken out here, so
// that the others need not be told of again.
type checkpoints struct {
	of     []checkpointLinks
	pieces *pieces
}

// checkpointLinks are the places of a page's checkpoint among the others, by page; none: there is no such.
type checkpointLinks struct {
	front      int32 // the next shorter one
	behind     int32 // one of the next longer ones
	prev, next int32 // others with the same front
}

func newCheckpoints(s *pieces, pages int) *checkpoints {
	c := &checkpoints{pieces: s}
	c.resize(pages)
	return c
}

// resize changes the number of pages. Those that go have no checkpoint any more.
func (c *checkpoints) resize(pages int) {
	if c == nil || pages == len(c.of) {
		return
	}
	old := c.of
	c.of = make([]checkpointLinks, pages)
	for i := copy(c.of, old); i < pages; i++ {
		c.of[i] = checkpointLinks{none, none, none, none}
	}
}

// put makes a checkpoint, which has no front, the next longer one behind front.
func (c *checkpoints) put(i, front int32) {
	if front == none {
		return
	}
	l, f := &c.of[i], &c.of[front]
	l.front, l.prev, l.next = front, none, f.behind
	if f.behind != none {
		c.of[f.behind].prev = i
	}
	f.behind = i
}

// cut undoes put.
func (c *checkpoints) cut(i int32) {
	l := &c.of[i]
	if l.front == none {
		return
	}
	if l.prev == none {
		c.of[l.front].behind = l.next
	} else {
		c.of[l.prev].next = l.next
	}
	if l.next != none {
		c.of[l.next].prev = l.prev
	}
	l.front, l.prev, l.next = none, none, none
}

// move gives the checkpoint of a page another page, which has none.
func (c *checkpoints) move(from, to int32) {
	if c == nil {
		return
	}
	front := c.of[from].front
	c.cut(from)
	c.put(to, front)
	for i := c.of[from].behind; i != none; i = c.of[from].behind {
		c.cut(i)
		c.put(i, to)
	}
}

// follow notes that the checkpoints behind the first page of a list follow the one in it.
func (c *checkpoints) follow(list []messages.PageID) {
	s := c.pieces
	front := int32(list[0])
	for _, id := range list[1:] {
		i := int32(id)
		c.cut(i)
		c.put(i, front)
		c.resave(i)
	}
	if front == none {
		return
	}
	if n := s.of(front); n != noPiece {
		s.uses[n].setFeatures(s.policy.GoesOn(s.uses[n].features()))
		s.changed(n)
	}
}

// forget takes the checkpoint of a page, which is in no list, out of the others: those behind it follow the one in front.
func (c *checkpoints) forget(i int32) {
	s := c.pieces
	if n := s.of(i); n != noPiece {
		u := &s.uses[n]
		s.policy.Gone(u.features(), s.lastOf(u.time))
	}
	front := c.of[i].front
	c.cut(i)
	for k := c.of[i].behind; k != none; k = c.of[i].behind {
		c.cut(k)
		c.put(k, front)
		c.resave(k)
	}
}

// saved is how many blocks the checkpoint of a page saves.
func (c *checkpoints) saved(i int32) int {
	pages := c.pieces.pages
	depth := int(pages[i].depth)
	if front := c.of[i].front; front != none {
		return depth - int(pages[front].depth)
	}
	return depth + 1
}

// resave changes what the policy knows of the blocks that a checkpoint saves.
func (c *checkpoints) resave(i int32) {
	s := c.pieces
	n := s.of(i)
	if n == noPiece {
		return
	}
	s.uses[n].setFeatures(s.policy.Saves(s.uses[n].features(), c.saved(i)))
	s.changed(n)
}

// fresh is the features of the piece of a checkpoint of which nothing is known but its place.
func (c *checkpoints) fresh(i int32) forecast.Features {
	return c.pieces.policy.Checkpoint(c.saved(i), c.of[i].behind != none)
}

// form makes pieces of new checkpoints that a Drop releases. Of one that has a piece the Drop ends a use: a
// request has copied it to its working page.
func (c *checkpoints) form(op *protocol.PoolOp, now time.Duration) {
	s := c.pieces
	if op.Request != nil {
		s.policy.EndRequest(&forecast.Request{Arrived: op.Request.Arrived, Released: now})
	}
	for _, id := range op.Pages {
		if id == messages.NoPage || !s.pages[id].stored() {
			continue
		}
		if n := s.of(int32(id)); n != noPiece {
			q, u := &s.all[n], &s.uses[n]
			u.setFeatures(s.policy.Used(u.features(), s.lastOf(u.time)))
			u.time = s.now()
			q.marks = q.marks.withUses(q.marks.uses() + 1)
			continue
		}
		s.assign(int32(id), s.open(c.fresh(int32(id)), 1))
	}
	if op.Awaited {
		s.await(op.Pages)
	}
}

// victimFor is the page that a checkpoint of a tenant replaces, see cache.forCheckpoint.
func (c *checkpoints) victimFor(t protocol.Tenant, floor messages.Priority) int32 {
	s := c.pieces
	a := s.orders.accounts
	if a == nil {
		if s.orders.whole.n == 0 || s.orders.whole.lowest() > floor {
			return none
		}
		return s.all[s.first(s.duePage())].head
	}
	own := &a.list[t]
	groups := [...]func(*account) bool{
		func(a *account) bool { return a == own && own.full() },
		func(a *account) bool { return a.pages > a.quota },
		func(a *account) bool { return a.pages <= a.quota },
	}
	for _, group := range groups {
		if i := s.firstOfTenants(group); i != none && s.orders.priority(i) <= floor {
			return i
		}
	}
	return none
}
