package pool

import (
	"fmt"
	"math"
	"slices"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
	"github.com/kvactor/kvactor/windows"
)

// Pool holds the state of the device pages of one pool. Every page is used, cached
// or free: used + cached + free = total, and held ≤ used.
type Pool struct {
	name     string
	pages    []page
	free     []int32     // free pages; the last one is taken first
	order    *evict.Core // of the contents of all pages: which cached page is evicted next
	options  evict.Options
	held     int                     // pages for which page.held is true
	scanNext int                     // where peekHeld goes on
	peeked   []int32                 // scratch space of peekVictims
	victims  []protocol.Victim       // of the current work, in the order of eviction
	evicted  []protocol.EvictedPiece // of the victims: PoolWork.Pieces
}

// New makes a pool of free pages with the policy priority_lru; page 0 is taken first. Quotas
// are by tenant; without any, all pages belong to OtherTenants.
func New(name string, pages int, quotas ...windows.Quota) *Pool {
	return NewWith(name, pages, evict.Options{}, quotas...)
}

// NewWith makes a pool with a policy. It costs O(pages), and panics if the policy has no such name,
// or if pages or tenants are more than their numbers can express.
func NewWith(name string, pages int, options evict.Options, quotas ...windows.Quota) *Pool {
	p := &Pool{name: name, options: options}
	p.mustCount(pages)
	p.mustBeTenants(len(quotas))
	p.truncate(pages)
	p.order = evict.New(evict.Config{Pages: pages, Quotas: quotas, Total: pages, Policy: options})
	p.listFree()
	return p
}

// listFree makes the list of free pages anew, in O(pages): after New, Resize and a rebuild. The one
// with the lowest number is taken first.
func (p *Pool) listFree() {
	p.free = p.free[:0]
	for i := int32(len(p.pages)) - 1; i >= 0; i-- {
		if p.pages[i].free() {
			p.free = append(p.free, i)
		}
	}
}

// mustCount panics on a number of pages that page numbers cannot express.
func (p *Pool) mustCount(pages int) {
	if pages < 0 || pages > math.MaxInt32 {
		p.fail("%d pages cannot be numbered", pages)
	}
}

// mustBeTenants panics if there are more quotas than tenant numbers.
func (p *Pool) mustBeTenants(quotas int) {
	if quotas > int(protocol.AnyTenant) {
		p.fail("%d quotas, tenants have 16 bits", quotas)
	}
}

// Do carries out the operations in order and fills in their results. It panics on an
// operation that cannot be right: the caller is told what the pool holds, so such an
// operation is a bug. Page numbers and shapes of all operations are checked before
// anything changes.
//
// Victims and Pieces are written to the arrays that the record has. Ranking is the pool's own and
// valid until its next work. With lru and without quotas, the work costs O(1) for nearly all pages
// that it names, see package evict.
func (p *Pool) Do(w *protocol.PoolWork) {
	// A malformed operation must not be found in the middle of the work: those before it could
	// not be undone.
	for i := range w.Ops {
		p.validate(&w.Ops[i])
	}
	p.order.Advance(w.Now)
	// The victims of all operations are one list in the order of eviction: the offloader
	// decides about them in this order.
	p.victims, p.evicted = w.Victims[:0], w.Pieces[:0]
	for i := range w.Ops {
		p.do(&w.Ops[i])
	}
	w.Victims, w.Pieces, w.Ranking = p.victims, p.evicted, p.order.Ranking()
	p.victims, p.evicted = nil, nil
	w.Counts = p.Counts()
	p.mustCheck()
}

// do carries out one operation and appends what it evicts to the victims.
func (p *Pool) do(op *protocol.PoolOp) {
	switch op.Kind {
	case protocol.Claim:
		p.claim(op)
	case protocol.Unclaim:
		p.unclaim(op)
	case protocol.Take:
		p.take(op)
	case protocol.TakeForCheckpoint:
		p.takeForCheckpoint(op)
	case protocol.Drop:
		p.drop(op)
	case protocol.AttachPages:
		p.attach(op)
	case protocol.DetachPages:
		p.detach(op)
	case protocol.SetPriority:
		p.setPriority(op)
	case protocol.SetUseless:
		p.setUseless(op)
	case protocol.FollowCheckpoint:
		p.order.Follow(op.Pages)
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
		p.peekVictims(op)
	}
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
	if !p.order.Knows(op.Tenant) {
		p.fail("%s for tenant %d of %d", opName(op.Kind), op.Tenant, len(p.order.Quotas()))
	}
	if op.Priority > messages.MaxPriority {
		p.fail("%s at priority %d", opName(op.Kind), op.Priority)
	}
	switch op.Kind {
	case protocol.AttachPages:
		if len(op.Blocks) != len(op.Pages) {
			p.fail("attachment of %d blocks to %d pages", len(op.Blocks), len(op.Pages))
		}
	case protocol.DetachPages, protocol.SetPriority, protocol.SetUseless:
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
		protocol.Claim: "claim", protocol.Unclaim: "unclaim", protocol.Take: "take",
		protocol.TakeForCheckpoint: "take for a checkpoint", protocol.Drop: "drop",
		protocol.AttachPages: "attachment", protocol.DetachPages: "detachment",
		protocol.SetPriority: "change of priority",
		protocol.SetUseless:  "appraisal", protocol.FollowCheckpoint: "order of checkpoints",
		protocol.AddPins: "pin", protocol.EndPin: "unpin", protocol.EndCoverage: "end of coverage",
		protocol.Inspect: "inspection", protocol.HeldBlocks: "listing",
		protocol.PeekVictims: "look ahead",
	}[k]
}

// fail panics with a fact about the pool. In an engine the panic ends the round: the coordinator
// asks for a pool that is rebuilt from the owners of its pages, see Rebuilt.
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
