package oracle

import (
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// references is who holds which pages: the running sequences by their tables, pins by
// the spots that they count on, and the request under way by what it reads from.
type references struct {
	*layout
	sequences []*sequence // that run
	last      messages.SequenceID

	// guarded is only set while a request is under way: device and host pages
	// that it reads from, so no one may evict them.
	guarded map[*page]bool
}

// holder is one reference: a table entry of a sequence.
type holder struct {
	sequence *sequence
	covered  bool
}

// holders finds all table entries that are this page of pool p.
func (r *references) holders(p *pool, pg *page) []holder {
	var all []holder
	for _, s := range r.sequences {
		for _, table := range s.tables[p.id] {
			for index, entry := range table {
				if entry == pg && pg != nil {
					all = append(all, holder{s, s.coveredByReserve(p, index)})
				}
			}
		}
	}
	return all
}

// used reports whether a sequence or a pin holds the page.
func (r *references) used(p *pool, pg *page) bool {
	return pinned(p, pg) || len(r.holders(p, pg)) > 0
}

// taken reports whether the page counts as taken where pages are promised: it is
// held, but not by a chunked prefill alone whose reserve stands for it.
func (r *references) taken(p *pool, pg *page) bool {
	for _, h := range r.holders(p, pg) {
		if !h.covered {
			return true
		}
	}
	return pinned(p, pg)
}

// available is total − taken − reserves, where the pages in claimed count as
// taken too. It may be negative.
func (r *references) available(p *pool, claimed map[*page]bool) int {
	n := len(p.device)
	for _, pg := range p.device {
		if claimed[pg] || r.taken(p, pg) {
			n--
		}
	}
	for _, s := range r.sequences {
		if s.chunk > 0 && p.limited() && s.prefilling() {
			n -= r.reserve(p, s.chunk, ceil(s.prompt, r.tpb)-s.reused)
		}
	}
	return n
}

// counts counts the pages of one tier by their state.
func (r *references) counts(p *pool, pages []*page) inspect.TierPages {
	c := inspect.TierPages{Total: len(pages)}
	for _, pg := range pages {
		switch {
		case r.used(p, pg):
			c.Used++
		case pg.block != nil:
			c.Cached++
		default:
			c.Free++
		}
	}
	return c
}

// busy reports whether a sequence or a pin holds a page of the block.
func (r *references) busy(b *block) bool {
	for _, p := range r.pools {
		if s := b.at[p.id]; s != nil && (s.pins > 0 || len(r.holders(p, s.device)) > 0) {
			return true
		}
	}
	return false
}

// running looks a sequence up.
func (r *references) running(id messages.SequenceID) (*sequence, error) {
	for _, s := range r.sequences {
		if s.id == id {
			return s, nil
		}
	}
	return nil, refusals.New(messages.ErrUnknownSequence, "sequence %v is not running", id)
}

// pinned reports whether a pin holds the page: the device page of a pinned block,
// or the host page if it is the block's only one.
func pinned(p *pool, pg *page) bool {
	if pg.block == nil {
		return false
	}
	s := pg.block.at[p.id]
	return s.pins > 0 && (pg.tier == messages.Primary || s.device == nil)
}
