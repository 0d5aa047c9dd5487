package evict

import (
	"github.com/kvactor/kvactor/internal/forecast"
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
	links  Links
}

// follow notes that the checkpoints behind the first page of a list follow the one in it.
func (c *checkpoints) follow(list []messages.PageID) {
	s, front := c.pieces, int32(list[0])
	for _, id := range list[1:] {
		c.links.Cut(int32(id))
		c.links.Put(int32(id), front)
		c.resave(int32(id))
	}
	if front == None || s.of[front] == noPiece {
		return
	}
	s.all[s.of[front]].features.GoesOn = true
}

// forget takes the checkpoint of a page out: those behind it follow the one in front.
func (c *checkpoints) forget(p int32) {
	if n := c.pieces.of[p]; n != noPiece {
		c.pieces.model.Gone(c.pieces.all[n].features, c.pieces.all[n].last)
	}
	front := c.links[p].Front
	c.links.Cut(p)
	for len(c.links[p].Behind) > 0 {
		k := c.links[p].Behind[0]
		c.links.Cut(k)
		c.links.Put(k, front)
		c.resave(k)
	}
}

// saved is how many blocks the checkpoint of a page saves.
func (c *checkpoints) saved(p int32) int32 {
	pages := c.pieces.core.pages
	if front := c.links[p].Front; front != None {
		return pages[p].Depth - pages[front].Depth
	}
	return pages[p].Depth + 1
}

// resave changes what the model knows of the blocks that a checkpoint saves.
func (c *checkpoints) resave(p int32) {
	if n := c.pieces.of[p]; n != noPiece {
		c.pieces.all[n].features.Saved = c.saved(p)
	}
}

// fresh is the features of a checkpoint of which nothing is known but its place.
func (c *checkpoints) fresh(p int32) forecast.Features {
	return forecast.Features{Saved: c.saved(p), GoesOn: len(c.links[p].Behind) > 0}
}

// release makes pieces of new checkpoints. Of one that has a piece a use ends: a request has
// copied it to its working page.
func (c *checkpoints) release(pages []messages.PageID, facts *Request) {
	s := c.pieces
	if facts != nil {
		s.model.EndRequest(&forecast.Request{RequestFacts: *facts, Released: s.core.now})
		s.now = s.model.Now()
	}
	for _, id := range pages {
		if !s.core.Holds(id) {
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
	}
}

// Follow tells forecast that the checkpoints in pages[1:] are the next longer ones behind that
// of pages[0].
func (c *Core) Follow(pages []messages.PageID) {
	if c.pieces != nil && c.pieces.checkpoints != nil {
		c.pieces.checkpoints.follow(pages)
	}
}

// Front is the page of the checkpoint that the one of a page follows, if forecast knows it; else
// NoPage.
func (c *Core) Front(p int32) messages.PageID {
	if c.pieces != nil && c.pieces.checkpoints != nil {
		return messages.PageID(c.pieces.checkpoints.links[p].Front)
	}
	return messages.NoPage
}
