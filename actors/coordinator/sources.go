package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// sourcePages are the device pages of one pool that items of a batch reuse in
// part. A page counts once, however many items want it; only those that nobody
// holds count against the pages that copies may be written to.
type sourcePages struct {
	pages map[messages.PageID]sourcePage
	n     int // of them, cached
}

type sourcePage struct {
	items  int32 // that reuse a part of it, at least 1
	cached bool  // no sequence and no pin holds it
}

func (s *sourcePages) clear() {
	if len(s.pages) > 0 {
		clear(s.pages)
	}
	s.n = 0
}

// add counts an item. Who holds the page is not known before saw.
func (s *sourcePages) add(page messages.PageID) {
	if s.pages == nil {
		s.pages = map[messages.PageID]sourcePage{}
	}
	at := s.pages[page]
	at.items++
	s.pages[page] = at
}

// drop takes an item away.
func (s *sourcePages) drop(page messages.PageID) {
	at := s.pages[page]
	if at.items--; at.items > 0 {
		s.pages[page] = at
		return
	}
	s.saw(page, false)
	delete(s.pages, page)
}

// saw notes whether a source is cached.
func (s *sourcePages) saw(page messages.PageID, cached bool) {
	at, ok := s.pages[page]
	if !ok || at.cached == cached {
		return
	}
	if at.cached = cached; cached {
		s.n++
	} else {
		s.n--
	}
	s.pages[page] = at
}

func (s *sourcePages) none() bool                    { return len(s.pages) == 0 }
func (s *sourcePages) has(page messages.PageID) bool { _, ok := s.pages[page]; return ok }

// cached is the number of sources that nobody holds.
func (s *sourcePages) cached() int { return s.n }

// wishes are, by block, the items of a batch that want it in part, and whether
// another wants it whole.
type wishes struct {
	blocks map[protocol.BlockID]wish
	depths []int // of the blocks, each once
}

type wish struct {
	n     int // items that want it in part
	first int // of them
	whole bool
}

// onlyFor tells whether item i comes before all others that want the block in
// part, and none wants it whole.
func (w wish) onlyFor(i int) bool { return w.first >= i && !w.whole }

func (w *wishes) of(block protocol.BlockID) wish { return w.blocks[block] }

// count looks through a batch; of a batch of one there is nothing to know.
func (w *wishes) count(items []admission, matches []protocol.MatchItem, wholeToo bool) {
	if len(w.blocks) > 0 {
		clear(w.blocks)
	}
	w.depths = w.depths[:0]
	if len(items) < 2 {
		return
	}
	for i := range items {
		if block := matches[i].Source.Block; items[i].refused == nil && block != protocol.NoBlock {
			w.add(block, i, matches[i].Blocks)
		}
	}
	if !wholeToo || len(w.depths) == 0 {
		return
	}
	slices.Sort(w.depths)
	w.depths = slices.Compact(w.depths)
	for i := range items {
		if items[i].refused == nil {
			w.countWhole(&matches[i])
		}
	}
}

func (w *wishes) add(block protocol.BlockID, i, depth int) {
	if w.blocks == nil {
		w.blocks = map[protocol.BlockID]wish{}
	}
	at, ok := w.blocks[block]
	if !ok {
		at.first = i
		w.depths = append(w.depths, depth)
	}
	at.n++
	w.blocks[block] = at
}

// countWhole marks the blocks that an item wants whole.
func (w *wishes) countWhole(m *protocol.MatchItem) {
	for _, depth := range w.depths {
		if depth >= m.Blocks {
			return
		}
		if at, ok := w.blocks[m.IDs[depth]]; ok && !at.whole {
			at.whole = true
			w.blocks[m.IDs[depth]] = at
		}
	}
}
