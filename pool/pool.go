package pool

import (
	"fmt"
	"math"
	"slices"
	"time"

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
	p := &Pool{name: name, accounts: newAccounts(quotas), nextEnd: messages.NoExpiry}
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
func (p *Pool) Counts() messages.PoolPages {
	total := len(p.pages)
	return messages.PoolPages{
		PageCounts: messages.PageCounts{
			Total: total, Used: total - p.cached - p.freeN, Cached: p.cached, Free: p.freeN,
		},
		Held: p.held,
	}
}

// Do does the operations in order and fills in the answers. It panics on an
// operation that cannot be right.
func (p *Pool) Do(w *messages.PoolWork) {
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
func (p *Pool) do(op *messages.PoolOp, victims []messages.Victim) []messages.Victim {
	switch op.Kind {
	case messages.Claim:
		p.claim(op)
	case messages.Unclaim:
		p.unclaim(op)
	case messages.Take:
		return p.take(op, victims)
	case messages.Drop:
		p.drop(op)
	case messages.AttachPages:
		p.attach(op)
	case messages.DetachPages:
		p.detach(op)
	case messages.SetPriority:
		p.setPriority(op)
	case messages.AddPins:
		p.addPins(op)
	case messages.EndPin:
		p.endPin(op)
	case messages.Unshelter:
		p.unshelter(op)
	case messages.Inspect:
		p.inspect(op)
	case messages.HeldBlocks:
		p.heldBlocks(op)
	case messages.Foresee:
		return p.foresee(op, victims)
	}
	return victims
}

// validate panics on what can be seen to be wrong without doing anything.
func (p *Pool) validate(op *messages.PoolOp) {
	if op.Kind > messages.Foresee {
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
	case messages.AttachPages:
		if len(op.Blocks) != len(op.Pages) {
			p.fail("attachment of %d blocks to %d pages", len(op.Blocks), len(op.Pages))
		}
	case messages.DetachPages, messages.SetPriority:
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
func verb(k messages.PoolOpKind) string {
	return [...]string{
		messages.Claim: "claim", messages.Unclaim: "unclaim", messages.Take: "take", messages.Drop: "drop",
		messages.AttachPages: "attachment", messages.DetachPages: "detachment", messages.SetPriority: "change of priority",
		messages.AddPins: "pin", messages.EndPin: "unpin", messages.Unshelter: "end of shelter",
		messages.Inspect: "inspection", messages.HeldBlocks: "listing",
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
