package pool

import (
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Resizing asks for another number of pages; the slices are answered and reused.
type Resizing struct {
	Pages int
	Now   time.Duration // as in protocol.PoolWork

	// Victims are the contents that had to go, in the order of their eviction.
	Victims []protocol.Victim
	// Moves are the pages beyond the new end that survived, held or cached, with
	// their new numbers, in order of the old ones. A new number may be the page
	// of a victim, so victims are read before anything is moved.
	Moves  []messages.PageMove
	Counts protocol.PoolPages
}

// Resize makes the pool larger or smaller. A pool that shrinks gives up free
// pages, then cached ones by the eviction rule, those of tenants over their quotas
// of the new size first; what is left beyond the new end
// moves to free pages, the lowest first, with all that is known of it. It costs
// O(pages) and panics if less remains than sequences and pins hold.
func (p *Pool) Resize(r *Resizing) {
	p.mustCount(r.Pages)
	p.advance(r.Now)
	c := p.Counts()
	if c.Used > r.Pages {
		p.fail("resize to %d pages, %d are used", r.Pages, c.Used)
	}
	r.Victims, r.Moves = r.Victims[:0], r.Moves[:0]
	if p.accounts != nil {
		p.accounts.divide(r.Pages)
	}
	for c.Used+p.cached > r.Pages {
		i := p.surplus()
		r.Victims = append(r.Victims, p.victim(i))
		p.unlink(i)
		p.disown(i)
		p.pages[i].forget()
		p.settle(i)
	}
	to := 0
	for from := r.Pages; from < len(p.pages); from++ {
		if p.pages[from].place == free {
			continue
		}
		for p.pages[to].place != free {
			to++
		}
		p.pages[to] = p.pages[from]
		p.pages[from].place = free
		if p.accounts != nil {
			p.accounts.of[to] = p.accounts.of[from]
		}
		if of := p.order.terms.of; of != nil {
			of[to], of[from] = of[from], 0
		}
		r.Moves = append(r.Moves, messages.PageMove{Old: messages.PageID(from), New: messages.PageID(to)})
	}
	p.truncate(r.Pages)
	r.Counts = p.Counts()
	p.mustHold()
}

// truncate cuts or extends the pages and links them anew.
func (p *Pool) truncate(pages int) {
	old := p.pages
	p.pages = make([]page, pages)
	for i := copy(p.pages, old); i < pages; i++ {
		p.pages[i].forget()
	}
	if of := p.order.terms.of; of != nil {
		p.allot(make([]int32, pages))
		copy(p.order.terms.of, of)
	}
	p.relink()
}

// Kept is what the owners of a page know of it.
type Kept struct {
	Page       messages.PageID
	References int32
	Shelters   int32            // chunked prefills among the references
	Block      protocol.BlockID // NoBlock: the page caches nothing
	Pins       int32
	Depth      int32
	Priority   messages.Priority
	Use        protocol.Use
	Tenant     protocol.Tenant
	Until      time.Duration // when the priority ends; 0: never
}

// Rebuild makes a pool from what sequences, pins and tree know of its pages, in
// any order; pages that nobody names are free. It is how a pool comes back after
// its actor has failed, and panics on what contradicts itself.
func Rebuild(name string, pages int, kept []Kept, quotas ...windows.Quota) *Pool {
	p := New(name, pages, quotas...)
	for _, k := range kept {
		if k.Page < 0 || int(k.Page) >= pages {
			p.fail("rebuild of page %d, there are %d", k.Page, pages)
		}
		g := &p.pages[k.Page]
		if g.stored() || !g.idle() {
			p.fail("rebuild of page %d twice", k.Page)
		}
		if k.Shelters < 0 || k.Shelters > min(k.References, maxShelters) {
			p.fail("rebuild of page %d with %d shelters and %d references", k.Page, k.Shelters, k.References)
		}
		if k.Priority > messages.MaxPriority {
			p.fail("rebuild of page %d at priority %d", k.Page, k.Priority)
		}
		if p.accounts != nil {
			if int(k.Tenant) >= len(quotas) {
				p.fail("rebuild of page %d for tenant %d of %d", k.Page, k.Tenant, len(quotas))
			}
			p.accounts.of[k.Page] = k.Tenant
		}
		*g = page{
			use: k.Use, block: k.Block, depth: k.Depth,
		}
		g.hold(k.References, k.Pins, k.Shelters)
		p.endow(int32(k.Page), k.Priority, k.Until)
	}
	p.relink()
	if err := p.Check(); err != nil {
		p.fail("rebuilt from what contradicts itself: %v", err)
	}
	return p
}
