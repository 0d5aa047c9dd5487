package evict

import (
	"github.com/kvactor/kvactor/internal/forecast"
	"github.com/kvactor/kvactor/messages"
)

// The policy forecast knows of the checkpoints of recurrent states, beside their pieces, which is
// the next shorter one of the same prefix: pieces.links. What a checkpoint saves is the blocks
// behind that one.
//
//	front   ── 40 ──┬── 100      40 saves 40 blocks, 100 saves 60 and 70 saves 30;
//	                └── 70       without 40 they save 100 and 70
//
// The tree says where a new checkpoint belongs. Those that are evicted are taken out here, so
// the others need not be told of again.

// follow notes that the checkpoints behind the first page of a list follow the one in it.
func (s *pieces) follow(list []messages.PageID) {
	front := int32(list[0])
	for _, id := range list[1:] {
		s.links.Cut(int32(id))
		s.links.Put(int32(id), front)
		s.resave(int32(id))
	}
	if front == None || s.of[front] == noPiece {
		return
	}
	s.all[s.of[front]].features.GoesOn = true
}

// takeOut takes the checkpoint of a page out: those behind it follow the one in front.
func (s *pieces) takeOut(p int32) {
	if n := s.of[p]; n != noPiece {
		s.model.Gone(s.all[n].features, s.all[n].last)
	}
	front := s.links[p].Front
	s.links.Cut(p)
	for len(s.links[p].Behind) > 0 {
		k := s.links[p].Behind[0]
		s.links.Cut(k)
		s.links.Put(k, front)
		s.resave(k)
	}
}

// saved is how many blocks the checkpoint of a page saves.
func (s *pieces) saved(p int32) int32 {
	pages := s.core.pages
	if front := s.links[p].Front; front != None {
		return pages[p].Depth - pages[front].Depth
	}
	return pages[p].Depth + 1
}

// resave changes what the model knows of the blocks that a checkpoint saves.
func (s *pieces) resave(p int32) {
	if n := s.of[p]; n != noPiece {
		s.all[n].features.Saved = s.saved(p)
	}
}

// useCheckpoints makes pieces of new checkpoints. Of one that has a piece a use ends: a request has
// copied it to its working page.
func (s *pieces) useCheckpoints(pages []messages.PageID, facts *Request) {
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
			s.open(s.fresh(int32(id)), id)
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
	if c.pieces != nil && c.pieces.links != nil {
		c.pieces.follow(pages)
	}
}

// Front is the page of the checkpoint that the one of a page follows, if forecast knows it; else
// NoPage.
func (c *Core) Front(p int32) messages.PageID {
	if c.pieces != nil && c.pieces.links != nil {
		return messages.PageID(c.pieces.links[p].Front)
	}
	return messages.NoPage
}
