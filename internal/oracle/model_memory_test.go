package oracle

import "github.com/kvactor/kvactor/messages"

// memory takes pages for new contents and moves contents between the tiers: evict,
// offload and onboard.
type memory struct {
	*layout
	clock      *clock
	log        *eventLog
	tree       *tree
	references *references
	eviction   *eviction
	saver      *saver
}

// onboard makes pg the device page of b; the host page stays as a clean copy.
func (m *memory) onboard(p *pool, b *block, pg *page) {
	s := b.at[p.id]
	s.device = pg
	m.keepCopy(s)
	pg.block = b
	m.countOnboard(p)
	m.log.tierChanged(p, b, messages.Primary)
}

func (m *memory) countOnboard(p *pool) {
	p.counters.Onboarded++
	p.counters.BytesOnboarded += p.PageBytes
}

// spend notes that a reference to the spot has ended. A commit that continues an
// old request may leave a use earlier than the last: it changes nothing.
func (m *memory) spend(s *spot, u use) {
	m.clock.ends++
	if !u.before(s.use) {
		s.use, s.ended = u, m.clock.ends
	}
}

// keepCopy notes that the host page is a clean copy from now on.
func (m *memory) keepCopy(s *spot) {
	m.clock.copies++
	s.age, s.born = m.clock.request, m.clock.copies
}

// take gives a device page for new contents of a salt: a free one, or else the one that
// the eviction rule names. Whoever takes it puts it into a table before the
// next one is taken.
func (m *memory) take(p *pool, salt string) *page {
	p.counters.AllocatedPages++
	for _, pg := range p.device {
		if pg.block == nil && !m.references.used(p, pg) && !m.references.guarded[pg] {
			pg.salt = salt
			return pg
		}
	}
	victim := m.eviction.deviceVictim(p, salt, anyone)
	if victim == nil {
		panic("pool " + p.Name + ": no page is left of those that were promised")
	}
	m.evict(p, victim)
	victim.salt = salt
	return victim
}

// evict takes a device page from its contents; they go on in host memory or
// are dropped.
func (m *memory) evict(p *pool, victim *page) {
	b := victim.block
	p.counters.Evicted++
	if !m.offload(p, b) {
		p.counters.Dropped++
		m.tree.forget(b, p)
	}
	if victim.block != nil {
		panic("pool " + p.Name + ": an evicted page still caches a block")
	}
}

// offload moves the contents of b's device page to host memory and tells
// whether that was possible.
func (m *memory) offload(p *pool, b *block) bool {
	s := b.at[p.id]
	if !m.cfg.OnboardBlocks || int(b.priority) < m.cfg.SecondaryOffloadMinPriority {
		return false
	}
	if s.host == nil {
		s.host = m.takeHost(p, b)
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
	m.log.tierChanged(p, b, messages.Secondary)
	return true
}

// takeHost finds a host page for the contents of a block: a free one, else that
// of a clean copy, else one whose contents are dropped for it. nil: none.
func (m *memory) takeHost(p *pool, b *block) *page {
	for _, pg := range p.host {
		if pg.block == nil && !m.references.guarded[pg] {
			return pg
		}
	}
	pg := m.eviction.hostVictim(p, b)
	switch {
	case pg == nil:
		return nil
	case pg.block.at[p.id].device != nil: // a clean copy
		pg.block.at[p.id].host = nil
		pg.block = nil
	default:
		p.counters.Dropped++
		m.saver.saveDropped(p, pg.block)
		m.tree.forget(pg.block, p)
	}
	return pg
}

// drop ends the reference that a table entry is, leaving a use.
func (m *memory) drop(p *pool, table []*page, index int, u use) {
	m.noteUse(p, table[index], u)
	table[index] = nil
}

// noteUse notes a use of what the page caches.
func (m *memory) noteUse(p *pool, pg *page, u use) {
	if pg != nil && pg.block != nil {
		m.spend(pg.block.at[p.id], u)
	}
}
