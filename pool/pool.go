package pool

import (
	"fmt"
	"math"
	"slices"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Pool holds the state of the device pages of one pool. Every page is used, cached
// or free: used + cached + free = total, and held ≤ used.
type Pool struct {
	name string
	// A page that is not used is in exactly one list: it is free, or it is cached and in an
	// order of the cache (see Check). The counts are kept and not computed, because every
	// PoolWork returns them.
	pages    []page
	free     freePages
	cache    cache
	held     int // pages for which page.held is true
	scanNext int // where peekHeld goes on
}

// New makes a pool of free pages; page 0 is taken first. Quotas are by tenant;
// without any, all pages belong to OtherTenants.
func New(name string, pages int, quotas ...windows.Quota) *Pool {
	p := &Pool{name: name}
	p.mustCount(pages)
	p.mustBeTenants(len(quotas))
	p.cache.orders = newOrders(quotas)
	// NoBlock is not the zero block number, so a zeroed record would cache block 0.
	p.pages = make([]page, pages)
	for i := range p.pages {
		p.pages[i].clearContents()
	}
	p.relink()
	return p
}

// Forecast configures the policy forecast of a pool.
type Forecast struct {
	Seed uint64        // decides what the policy samples
	Span protocol.Span // of the signatures of requests
	// States: the pages are checkpoints of recurrent states and working pages. Seed, Span and DoublesAt mean nothing then.
	States bool
	// DoublesAt is the depth in blocks at which computing a block takes twice as long as the first one, see
	// windows.Config.PrefillDoublesAt; 0: all blocks take the same work.
	DoublesAt float64
}

// NewForecast makes a pool like New whose eviction policy is forecast: among the cached
// pages of the lowest priority it evicts those that are worth least to keep, by a
// prediction of their next use, instead of those used least recently.
func NewForecast(name string, pages int, f Forecast, quotas ...windows.Quota) *Pool {
	p := New(name, pages, quotas...)
	p.useForecast(f)
	return p
}

// useForecast makes forecast the policy of a pool, whose cached pages become pieces that
// nothing is known about.
//
// The order is linked a second time, since the lists and heaps of levels are empty in a pool
// with pieces.
func (p *Pool) useForecast(f Forecast) {
	p.cache.pieces = newPieces(&p.cache.orders, f)
	p.relink()
	p.mustCheck()
}

// mustCount panics on a number of pages that page numbers cannot express.
func (p *Pool) mustCount(pages int) {
	if pages < 0 || pages > math.MaxInt32 {
		p.fail("%d pages cannot be numbered", pages)
	}
}

// mustBeTenants panics if there are more quotas than tenant numbers.
func (p *Pool) mustBeTenants(quotas int) {
	if quotas > math.MaxUint16+1 {
		p.fail("%d quotas, tenants have 16 bits", quotas)
	}
}

// relink rebuilds all lists from the records of the pages, and the counts.
//
// It goes from the last page to the first, so that the free page with the lowest number is
// taken first. Cached pages arrive by number and not by use, so many of them go to heaps;
// a meld is O(1), and the whole is O(pages).
func (p *Pool) relink() {
	p.cache.reset(p.pages)
	p.free.reset(p.pages)
	p.held = 0
	for i := int32(len(p.pages)) - 1; i >= 0; i-- {
		g := &p.pages[i]
		// The links are stale. A page without holders looks like any used page to linkUnheld.
		if g.state != used {
			g.unlinkAll()
		}
		if g.held() {
			p.held++
		}
		// Every page joins its account here; linkUnheld takes the free ones out again.
		p.cache.joinAccount(i, p.cache.tenant(i))
		// With pieces, cached pages are sorted by piece before they are linked.
		if g.unheld() && (p.cache.pieces == nil || !g.stored()) {
			p.linkUnheld(i)
		}
	}
	p.cache.linkPieces()
}

// Do carries out the operations in order and fills in their results. It panics on an
// operation that cannot be right: the caller is told what the pool holds, so such an
// operation is a bug. Page numbers and shapes of all operations are checked before
// anything changes.
func (p *Pool) Do(w *protocol.PoolWork) {
	// A malformed operation must not be found in the middle of the work: those before it could
	// not be undone.
	for i := range w.Ops {
		p.validate(&w.Ops[i])
	}
	// Time moves before the operations, so that a priority that has ended by now does not
	// protect its page from this work.
	p.cache.advance(w.Now)
	// The victims of all operations are one list in the order of eviction: the offloader
	// decides about them in this order.
	w.Victims = w.Victims[:0]
	s := p.cache.pieces
	if s != nil {
		s.evicted = w.Pieces[:0]
	}
	for i := range w.Ops {
		w.Victims = p.do(&w.Ops[i], w.Victims)
	}
	if s != nil {
		w.Pieces, w.Ranking, s.evicted = s.evicted, evictedRanking{s.policy}, nil
	}
	w.Counts = p.Counts()
	p.mustCheck()
}

// do carries out one operation and appends what it evicts to the victims.
func (p *Pool) do(op *protocol.PoolOp, victims []protocol.Victim) []protocol.Victim {
	switch op.Kind {
	case protocol.Claim:
		p.claim(op)
	case protocol.Unclaim:
		p.unclaim(op)
	case protocol.Take:
		return p.take(op, victims)
	case protocol.TakeForCheckpoint:
		return p.takeForCheckpoint(op, victims)
	case protocol.Drop:
		p.drop(op)
	case protocol.AttachPages:
		p.attach(op)
	case protocol.DetachPages:
		p.detach(op)
	case protocol.SetPriority:
		p.setPriority(op)
	case protocol.FollowCheckpoint:
		if s := p.cache.pieces; s != nil && s.checkpoints != nil {
			s.checkpoints.follow(op.Pages)
		}
	case protocol.AddPins:
		p.addPins(op)
	case protocol.EndPin:
		p.endPin(op)
	case protocol.EndCoverage:
		p.endCoverage(op)
	case protocol.Inspect:
		p.inspect(op)
	case protocol.HeldBlocks:
		p.heldBlocks(op)
	case protocol.PeekVictims:
		return p.peekVictims(op, victims)
	}
	return victims
}

// validate panics on an operation that is wrong whatever the state of the pages.
//
// Wrong states, as a drop of a page without holders, are found when the operation is carried
// out, since an earlier operation of the same work may change them.
func (p *Pool) validate(op *protocol.PoolOp) {
	if op.Kind > protocol.PeekVictims {
		p.fail("operation %d is unknown", op.Kind)
	}
	if i := p.unknownPage(op.Pages); i >= 0 {
		p.fail("%s of page %d, there are %d", opName(op.Kind), op.Pages[i], len(p.pages))
	}
	if op.N < 0 || op.N > math.MaxInt32 {
		p.fail("%s of %d", opName(op.Kind), op.N)
	}
	if !p.cache.accounts.knows(op.Tenant) {
		p.fail("%s for tenant %d of %d", opName(op.Kind), op.Tenant, len(p.cache.accounts.list))
	}
	if op.Until < 0 {
		p.fail("%s until %v", opName(op.Kind), op.Until)
	}
	if op.Priority > messages.MaxPriority {
		p.fail("%s at priority %d", opName(op.Kind), op.Priority)
	}
	switch op.Kind {
	case protocol.AttachPages:
		if len(op.Blocks) != len(op.Pages) {
			p.fail("attachment of %d blocks to %d pages", len(op.Blocks), len(op.Pages))
		}
	case protocol.DetachPages, protocol.SetPriority:
		if n := len(op.Blocks); n != 0 && n != len(op.Pages) {
			p.fail("%s of %d pages with %d blocks", opName(op.Kind), len(op.Pages), n)
		}
	}
}

// unknownPage is the index of the first entry that is neither a page of the pool nor
// NoPage, or −1.
func (p *Pool) unknownPage(pages []messages.PageID) int {
	return slices.IndexFunc(pages, func(id messages.PageID) bool {
		return id != messages.NoPage && uint32(id) >= uint32(len(p.pages))
	})
}

// opName is the name of an operation in a panic.
func opName(k protocol.PoolOpKind) string {
	return [...]string{
		protocol.Claim: "claim", protocol.Unclaim: "unclaim", protocol.Take: "take", protocol.TakeForCheckpoint: "take for a checkpoint", protocol.Drop: "drop",
		protocol.AttachPages: "attachment", protocol.DetachPages: "detachment", protocol.SetPriority: "change of priority",
		protocol.FollowCheckpoint: "order of checkpoints",
		protocol.AddPins:          "pin", protocol.EndPin: "unpin", protocol.EndCoverage: "end of coverage",
		protocol.Inspect: "inspection", protocol.HeldBlocks: "listing", protocol.PeekVictims: "look ahead",
	}[k]
}

// fail panics with a fact about the pool.
func (p *Pool) fail(format string, args ...any) {
	panic("pool " + p.name + ": " + fmt.Sprintf(format, args...))
}

// mustCheck runs Check in builds with the tag invariants.
//
// The drawing of the pool goes with the message, because the pool is rebuilt after the panic
// and its state could not be looked at later.
func (p *Pool) mustCheck() {
	if invariants.Enabled {
		if err := p.Check(); err != nil {
			p.fail("%v\n%s", err, p)
		}
	}
}

// SetBlockTokens says how many tokens a block has. With the policy forecast it decides how many
// pieces are compared for a choice.
func (p *Pool) SetBlockTokens(tokens int) { p.cache.whole.blockTokens = tokens }
