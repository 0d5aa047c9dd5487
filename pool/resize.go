package pool

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
)

// Resize makes the pool larger or smaller. A pool that shrinks gives up free pages,
// then cached pages by the eviction rule, those of tenants over their quotas of the
// new size first. Pages beyond the new end that survive move to the lowest free
// pages, with their records; Moves lists them in the order of their old numbers. It costs
// O(pages) and panics if the new size is less than what sequences and pins hold.
func (p *Pool) Resize(m *protocol.ResizePool) {
	p.mustCount(m.Pages)
	p.order.Advance(m.Now)
	c := p.Counts()
	if c.Used > m.Pages {
		p.fail("resize to %d pages, %d are used", m.Pages, c.Used)
	}
	m.Victims, m.Moves = m.Victims[:0], m.Moves[:0]
	p.order.Divide(m.Pages)
	// Used pages cannot be evicted, so cached ones go until both fit. Free pages beyond the
	// new end need no work: their records are cut off below.
	for c.Used+p.order.Waiting() > m.Pages {
		i := p.order.Surplus()
		m.Victims = append(m.Victims, p.evict(i))
	}
	// The used and cached pages are at most m.Pages, so for each one beyond the end there is
	// a free page before the end, and to never passes the end.
	to := 0
	for from := m.Pages; from < len(p.pages); from++ {
		if p.pages[from].free() {
			continue
		}
		for !p.pages[to].free() {
			to++
		}
		p.pages[to], p.pages[from] = p.pages[from], page{block: protocol.NoBlock}
		p.order.Move(int32(from), int32(to))
		m.Moves = append(m.Moves, protocol.PageMoved{
			PageMove: messages.PageMove{Old: messages.PageID(from), New: messages.PageID(to)},
			Block:    p.pages[to].block, Held: !p.pages[to].unheld(),
		})
	}
	p.truncate(m.Pages)
	p.order.Resize(m.Pages)
	p.listFree()
	m.Counts = p.Counts()
	p.mustCheck()
}

// truncate changes the number of records.
//
// A new slice is made in both directions: a shrunken pool returns the memory, and appending
// would leave a capacity that depends on the history.
func (p *Pool) truncate(pages int) {
	old := p.pages
	p.pages = make([]page, pages)
	for i := copy(p.pages, old); i < pages; i++ {
		p.pages[i].block = protocol.NoBlock
	}
}

// Rebuilt makes a pool with the name, quotas and policy of this one from what sequences, pins and
// the tree know of its pages, in any order; all other pages are free. So a pool comes back after
// its actor has failed. What the policy has learned is lost: the pool may have failed in the
// middle of a change. It panics on facts that contradict each other.
//
// The old pool is asked for what never changes after New, and for the uses of contents, whose
// owners do not keep them. A wrong use changes the order of eviction and nothing else, so this is
// safe in whatever state a panic has left the pool.
func (p *Pool) Rebuilt(m *protocol.RebuildPool) *Pool {
	for i := range m.Kept {
		k := &m.Kept[i]
		k.Use = p.useOf(k.Page, k.Block)
	}
	made := p.rebuilt(m.Pages, m.Kept)
	made.Do(&protocol.PoolWork{Ops: m.Follow})
	m.Counts = made.Counts()
	return made
}

// rebuilt makes a pool from what is known of its pages, their uses included.
func (p *Pool) rebuilt(pages int, kept []protocol.KeptPage) *Pool {
	p = NewWith(p.name, pages, p.options, p.Quotas()...)
	// The records are written first and linked afterwards, so the facts may come in any order.
	for i := range kept {
		p.restore(&kept[i])
	}
	for i := range p.pages {
		if g := &p.pages[i]; g.unheld() && g.stored() {
			p.order.Add(int32(i))
		}
	}
	p.listFree()
	// Check runs in all builds here: facts of several owners may contradict each other, as
	// two pages with one block, and a wrong pool would spread the fault that it recovers from.
	if err := p.Check(); err != nil {
		p.fail("rebuilt from facts that contradict each other: %v", err)
	}
	return p
}

// restore writes the record of one page of a pool that is being rebuilt.
//
// Only what would write outside the records, or would be hidden by the writing, is checked
// here. Check finds the rest.
func (p *Pool) restore(k *protocol.KeptPage) {
	if k.Page < 0 || int(k.Page) >= len(p.pages) {
		p.fail("rebuild of page %d, there are %d", k.Page, len(p.pages))
	}
	g := &p.pages[k.Page]
	if g.stored() || !g.unheld() {
		p.fail("rebuild of page %d twice", k.Page)
	}
	if !p.order.Knows(k.Tenant) {
		p.fail("rebuild of page %d for tenant %d of %d", k.Page, k.Tenant, len(p.order.Quotas()))
	}
	i := int32(k.Page)
	g.block = k.Block
	p.hold(i, k.References, k.CoveredReferences, k.Pins)
	if g.free() {
		return
	}
	p.order.Join(i, k.Tenant)
	if g.stored() {
		p.order.Store(i, evict.Contents{
			Use: k.Use, Depth: k.Depth, Priority: k.Priority, Useless: k.Useless,
		})
	} else {
		p.order.Touch(i, k.Use)
	}
}
