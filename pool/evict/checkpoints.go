package evict

import (
	"github.com/kvactor/kvactor/internal/forecast"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// checkpoints is what the policy forecast knows of the checkpoints of recurrent states beside
// their pieces: which is the next shorter one of the same prefix. What a checkpoint saves is the
// blocks behind that one.
//
//	front   ── 40 ──┬── 100      40 saves 40 blocks, 100 saves 60 and 70 saves 30;
//	                └── 70       without 40 they save 100 and 70
//
// The tree says where a new checkpoint belongs. Those that are evicted are taken out here, so
// the others need not be told of again.
type checkpoints struct {
	pieces *pieces
	of     []neighbours // by page
}

// neighbours are the places of a page's checkpoint among the others, by page; None: no such.
type neighbours struct {
	front      int32 // the next shorter one
	behind     int32 // one of the next longer ones
	prev, next int32 // others with the same front
}

// resize changes the number of pages. Those that go have no checkpoint any more.
func (c *checkpoints) resize(pages int) {
	old := c.of
	c.of = make([]neighbours, pages)
	for i := copy(c.of, old); i < pages; i++ {
		c.of[i] = neighbours{None, None, None, None}
	}
}

// put makes a checkpoint, which has no front, the next longer one behind front.
func (c *checkpoints) put(p, front int32) {
	if front == None {
		return
	}
	l, f := &c.of[p], &c.of[front]
	l.front, l.prev, l.next = front, None, f.behind
	if f.behind != None {
		c.of[f.behind].prev = p
	}
	f.behind = p
}

// cut undoes put.
func (c *checkpoints) cut(p int32) {
	l := &c.of[p]
	if l.front == None {
		return
	}
	if l.prev == None {
		c.of[l.front].behind = l.next
	} else {
		c.of[l.prev].next = l.next
	}
	if l.next != None {
		c.of[l.next].prev = l.prev
	}
	l.front, l.prev, l.next = None, None, None
}

// move gives the checkpoint of a page another page, which has none.
func (c *checkpoints) move(from, to int32) {
	front := c.of[from].front
	c.cut(from)
	c.put(to, front)
	for p := c.of[from].behind; p != None; p = c.of[from].behind {
		c.cut(p)
		c.put(p, to)
	}
}

// follow notes that the checkpoints behind the first page of a list follow the one in it.
func (c *checkpoints) follow(list []messages.PageID) {
	s, front := c.pieces, int32(list[0])
	for _, id := range list[1:] {
		c.cut(int32(id))
		c.put(int32(id), front)
		c.resave(int32(id))
	}
	if front == None || s.of[front] == noPiece {
		return
	}
	q := &s.all[s.of[front]]
	q.features = s.model.GoesOn(q.features)
	s.changed(s.of[front])
}

// forget takes the checkpoint of a page out: those behind it follow the one in front.
func (c *checkpoints) forget(p int32) {
	if n := c.pieces.of[p]; n != noPiece {
		c.pieces.model.Gone(c.pieces.all[n].features, c.pieces.all[n].last)
	}
	front := c.of[p].front
	c.cut(p)
	for k := c.of[p].behind; k != None; k = c.of[p].behind {
		c.cut(k)
		c.put(k, front)
		c.resave(k)
	}
}

// saved is how many blocks the checkpoint of a page saves.
func (c *checkpoints) saved(p int32) int {
	pages := c.pieces.core.pages
	if front := c.of[p].front; front != None {
		return int(pages[p].Depth - pages[front].Depth)
	}
	return int(pages[p].Depth) + 1
}

// resave changes what the model knows of the blocks that a checkpoint saves.
func (c *checkpoints) resave(p int32) {
	s, n := c.pieces, c.pieces.of[p]
	if n == noPiece {
		return
	}
	s.all[n].features = s.model.Saves(s.all[n].features, c.saved(p))
	s.changed(n)
}

// fresh is the features of a checkpoint of which nothing is known but its place.
func (c *checkpoints) fresh(p int32) forecast.Features {
	return c.pieces.model.Checkpoint(c.saved(p), c.of[p].behind != None)
}

// release makes pieces of new checkpoints. Of one that has a piece a use ends: a request has
// copied it to its working page.
func (c *checkpoints) release(pages []messages.PageID, facts *protocol.RequestFacts) {
	s := c.pieces
	if facts != nil {
		s.endRequest(facts.Arrived)
	}
	for _, id := range pages {
		if !s.core.holds(id) {
			continue
		}
		n := s.of[id]
		if n == noPiece {
			s.assign(int32(id), s.open(c.fresh(int32(id)), 1))
			continue
		}
		q := &s.all[n]
		q.features = s.model.Used(q.features, q.last)
		q.last = s.now
		q.uses++
		s.changed(n)
	}
}

// Front is the page of the checkpoint that the one of a page follows, for policies that ask for
// it; else NoPage.
func (c *Core) Front(p int32) messages.PageID {
	if s, ok := c.policy.(*pieces); ok && s.checkpoints != nil {
		return messages.PageID(s.checkpoints.of[p].front)
	}
	return messages.NoPage
}
