package pool

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Pool is the device pages of one pool. Every page is in one of three states,
// used + cached + free = total, and held ≤ used.
type Pool struct {
	name     string
	pages    []page
	order    order     // the cached pages, unless there are quotas
	accounts *accounts // nil: no quotas
	cached   int
	freeHead int32 // the free pages, linked through next, the last freed first
	freeN    int
	warm     int32 // says that hints were followed, so that nothing optimises that away
	held     int   // pages p with p.held()
	now      time.Duration
	nextEnd  time.Duration // the first moment at which a priority ends
	hand     int           // where foreseeHeld goes on
	ahead    lookAhead     // scratch space of foresee
}

// New makes a pool of free pages; the first to be taken is page 0. Quotas are
// by tenant; without any, all pages are OtherTenants'.
func New(name string, pages int, quotas ...windows.Quota) *Pool {
	p := &Pool{name: name, accounts: newAccounts(quotas), nextEnd: protocol.NoExpiry}
	p.mustCount(pages)
	p.mustDivide(len(quotas))
	p.pages = make([]page, pages)
	for i := range p.pages {
		p.pages[i].forget()
	}
	p.relink()
	return p
}

func (p *Pool) mustCount(pages int) {
	if pages < 0 || pages > math.MaxInt32 {
		p.fail("%d pages cannot be numbered", pages)
	}
}

// relink links all pages anew by what is written on them.
func (p *Pool) relink() {
	p.order.reset(p.pages)
	if p.accounts != nil {
		p.accounts.reset(p.pages)
	}
	p.freeHead, p.freeN, p.held, p.cached = none, 0, 0, 0
	for i := int32(len(p.pages)) - 1; i >= 0; i-- {
		g := &p.pages[i]
		if g.place != used {
			g.let()
		}
		if g.held() {
			p.held++
		}
		if p.accounts != nil {
			p.accounts.add(i, p.accounts.of[i])
		}
		if g.idle() {
			p.settle(i)
		}
	}
}

// Name is the pool's name.
func (p *Pool) Name() string { return p.name }

// Counts counts the pages.
func (p *Pool) Counts() protocol.PoolPages {
	total := len(p.pages)
	return protocol.PoolPages{
		PageCounts: messages.PageCounts{
			Total: total, Used: total - p.cached - p.freeN, Cached: p.cached, Free: p.freeN,
		},
		Held: p.held,
	}
}

// Do does the operations in order and fills in the answers. It panics on an
// operation that cannot be right.
func (p *Pool) Do(w *protocol.PoolWork) {
	for i := range w.Ops {
		p.validate(&w.Ops[i])
	}
	p.advance(w.Now)
	w.Victims = w.Victims[:0]
	for i := range w.Ops {
		w.Victims = p.do(&w.Ops[i], w.Victims)
	}
	w.Counts = p.Counts()
	p.mustHold()
}

// do does one operation and appends what it evicts to the victims.
func (p *Pool) do(op *protocol.PoolOp, victims []protocol.Victim) []protocol.Victim {
	switch op.Kind {
	case protocol.Claim:
		p.claim(op)
	case protocol.Unclaim:
		p.unclaim(op)
	case protocol.Take:
		return p.take(op, victims)
	case protocol.Drop:
		p.drop(op)
	case protocol.AttachPages:
		p.attach(op)
	case protocol.DetachPages:
		p.detach(op)
	case protocol.SetPriority:
		p.setPriority(op)
	case protocol.AddPins:
		p.addPins(op)
	case protocol.EndPin:
		p.endPin(op)
	case protocol.EndCoverage:
		p.unshelter(op)
	case protocol.Inspect:
		p.inspect(op)
	case protocol.HeldBlocks:
		p.heldBlocks(op)
	case protocol.PeekVictims:
		return p.foresee(op, victims)
	}
	return victims
}

// validate panics on what can be seen to be wrong without doing anything.
func (p *Pool) validate(op *protocol.PoolOp) {
	if op.Kind > protocol.PeekVictims {
		p.fail("operation %d is unknown", op.Kind)
	}
	if i := p.stranger(op.Pages); i >= 0 {
		p.fail("%s of page %d, there are %d", verb(op.Kind), op.Pages[i], len(p.pages))
	}
	if op.N < 0 || op.N > math.MaxInt32 {
		p.fail("%s of %d", verb(op.Kind), op.N)
	}
	if p.accounts != nil && int(op.Tenant) >= len(p.accounts.list) {
		p.fail("%s for tenant %d of %d", verb(op.Kind), op.Tenant, len(p.accounts.list))
	}
	if op.Until < 0 {
		p.fail("%s until %v", verb(op.Kind), op.Until)
	}
	if op.Priority > messages.MaxPriority {
		p.fail("%s at priority %d", verb(op.Kind), op.Priority)
	}
	switch op.Kind {
	case protocol.AttachPages:
		if len(op.Blocks) != len(op.Pages) {
			p.fail("attachment of %d blocks to %d pages", len(op.Blocks), len(op.Pages))
		}
	case protocol.DetachPages, protocol.SetPriority:
		if n := len(op.Blocks); n != 0 && n != len(op.Pages) {
			p.fail("%s of %d pages with %d blocks", verb(op.Kind), len(op.Pages), n)
		}
	}
}

// stranger is the index of the first entry that is neither a page of the pool nor
// NoPage, or −1. Nearly always there is none, so all are looked at at once.
func (p *Pool) stranger(pages []messages.PageID) int {
	n, signs := int64(len(p.pages)), int64(0)
	for _, id := range pages {
		signs |= n - int64(uint32(id+1)) // NoPage is −1
	}
	if signs >= 0 {
		return -1
	}
	return slices.IndexFunc(pages, func(id messages.PageID) bool { return int64(uint32(id+1)) > n })
}

// verb names an operation in a panic.
func verb(k protocol.PoolOpKind) string {
	return [...]string{
		protocol.Claim: "claim", protocol.Unclaim: "unclaim", protocol.Take: "take", protocol.Drop: "drop",
		protocol.AttachPages: "attachment", protocol.DetachPages: "detachment", protocol.SetPriority: "change of priority",
		protocol.AddPins: "pin", protocol.EndPin: "unpin", protocol.EndCoverage: "end of shelter",
		protocol.Inspect: "inspection", protocol.HeldBlocks: "listing",
	}[k]
}

// fail panics with a fact.
func (p *Pool) fail(format string, args ...any) {
	panic("pool " + p.name + ": " + fmt.Sprintf(format, args...))
}

// mustHold checks the invariants when the build asks for it.
func (p *Pool) mustHold() {
	if invariants {
		if err := p.Check(); err != nil {
			p.fail("%v\n%s", err, p)
		}
	}
}
