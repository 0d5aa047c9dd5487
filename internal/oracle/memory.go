package oracle

import (
	"cmp"
	"slices"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// holder is one reference: a table entry of a sequence.
type holder struct {
	sequence *sequence
	covered  bool
}

// holders finds all table entries that are this page of pool p.
func (o *Oracle) holders(p *pool, pg *page) []holder {
	var all []holder
	for _, s := range o.sequences {
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

// pinned reports whether a pin holds the page: the device page of a pinned block,
// or the host page if it is the block's only one.
func pinned(p *pool, pg *page) bool {
	if pg.block == nil {
		return false
	}
	s := pg.block.at[p.id]
	return s.pins > 0 && (pg.tier == messages.Primary || s.device == nil)
}

// used reports whether a sequence or a pin holds the page.
func (o *Oracle) used(p *pool, pg *page) bool {
	return pinned(p, pg) || len(o.holders(p, pg)) > 0
}

// taken reports whether the page counts as taken where pages are promised: it is
// held, but not by a chunked prefill alone whose reserve stands for it.
func (o *Oracle) taken(p *pool, pg *page) bool {
	for _, h := range o.holders(p, pg) {
		if !h.covered {
			return true
		}
	}
	return pinned(p, pg)
}

// available is total − taken − reserves, where the pages in claimed count as
// taken too. It may be negative.
func (o *Oracle) available(p *pool, claimed map[*page]bool) int {
	n := len(p.device)
	for _, pg := range p.device {
		if claimed[pg] || o.taken(p, pg) {
			n--
		}
	}
	for _, s := range o.sequences {
		if s.chunk > 0 && p.limited() && s.prefilling() {
			n -= o.reserve(p, s.chunk, ceil(s.prompt, o.tpb)-s.reused)
		}
	}
	return n
}

// counts counts the pages of one tier by their state.
func (o *Oracle) counts(p *pool, pages []*page) inspect.PageCounts {
	c := inspect.PageCounts{Total: len(pages)}
	for _, pg := range pages {
		switch {
		case o.used(p, pg):
			c.Used++
		case pg.block != nil:
			c.Cached++
		default:
			c.Free++
		}
	}
	return c
}

// take gives a device page for new contents of a salt: a free one, or else the one that
// the eviction rule names. Whoever takes it puts it into a table before the
// next one is taken.
func (o *Oracle) take(p *pool, salt string) *page {
	p.counters.AllocatedPages++
	for _, pg := range p.device {
		if pg.block == nil && !o.used(p, pg) && !o.guarded[pg] {
			pg.salt = salt
			return pg
		}
	}
	victim := o.deviceVictim(p, salt, anyone)
	if victim == nil {
		panic("pool " + p.Name + ": no page is left of those that were promised")
	}
	o.evict(p, victim)
	victim.salt = salt
	return victim
}

// victim names the cached page of some that goes first: lowest priority, then least
// recently used, then deepest in its prefix, then released first. Clean copies are
// not asked.
func (o *Oracle) victim(p *pool, pages []*page, of func(*page) bool) *page {
	var first *page
	for _, pg := range pages {
		if pg.block == nil || !of(pg) || o.used(p, pg) || o.guarded[pg] {
			continue
		}
		if pg.tier == messages.Secondary && pg.block.at[p.id].device != nil {
			continue
		}
		if first == nil || goesBefore(p, pg.block, first.block) {
			first = pg
		}
	}
	return first
}

func goesBefore(p *pool, a, b *block) bool {
	if a.priority != b.priority {
		return a.priority < b.priority
	}
	if u, v := a.at[p.id].use, b.at[p.id].use; u != v {
		return u.before(v)
	}
	if a.index != b.index {
		return a.index > b.index
	}
	return a.at[p.id].ended < b.at[p.id].ended
}

// evict takes a device page from its contents; they go on in host memory or
// are dropped.
func (o *Oracle) evict(p *pool, victim *page) {
	b := victim.block
	p.counters.Evicted++
	if !o.offload(p, b) {
		p.counters.Dropped++
		o.forget(b, p)
	}
	if victim.block != nil {
		panic("pool " + p.Name + ": an evicted page still caches a block")
	}
}

// offload moves the contents of b's device page to host memory and tells
// whether that was possible.
func (o *Oracle) offload(p *pool, b *block) bool {
	s := b.at[p.id]
	if !o.cfg.OnboardBlocks || int(b.priority) < o.cfg.SecondaryOffloadMinPriority {
		return false
	}
	if s.host == nil {
		s.host = o.takeHost(p, b)
		if s.host == nil {
			return false
		}
		s.host.block = b
		p.counters.BytesOffloaded += p.PageBytes
		p.counters.DirtyTakes++
		p.counters.WaitingTakes++
	} else {
		p.counters.BytesSaved += p.PageBytes
	}
	s.device.block = nil
	s.device = nil
	p.counters.Offloaded++
	o.emitTier(p, b, messages.Secondary)
	return true
}

// takeHost finds a host page for the contents of a block: a free one, else that
// of a clean copy, else one whose contents are dropped for it. nil: none.
func (o *Oracle) takeHost(p *pool, b *block) *page {
	for _, pg := range p.host {
		if pg.block == nil && !o.guarded[pg] {
			return pg
		}
	}
	pg := o.hostVictim(p, b)
	switch {
	case pg == nil:
		return nil
	case pg.block.at[p.id].device != nil: // a clean copy
		pg.block.at[p.id].host = nil
		pg.block = nil
	default:
		p.counters.Dropped++
		o.storeTier.saveDropped(p, pg.block)
		o.forget(pg.block, p)
	}
	return pg
}

// oldestCopy is the clean copy of some that is reclaimed first: the oldest, of those
// that one request made the deepest.
func (o *Oracle) oldestCopy(p *pool, of func(*page) bool) *page {
	copies := slices.DeleteFunc(slices.Clone(p.host), func(pg *page) bool {
		return pg.block == nil || !of(pg) || pg.block.at[p.id].device == nil || o.guarded[pg]
	})
	if len(copies) == 0 {
		return nil
	}
	return slices.MinFunc(copies, func(x, y *page) int {
		a, b := x.block, y.block
		return cmp.Or(
			cmp.Compare(a.at[p.id].age, b.at[p.id].age), b.index-a.index, cmp.Compare(a.at[p.id].born, b.at[p.id].born),
		)
	})
}
