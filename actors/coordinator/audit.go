package coordinator

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// audit serves Check: every actor walks its own structure, then the coordinator
// compares what they say of each other.
//
//	start ─▶ asking ─▶ (compare) ─▶ answer
type audit struct {
	*shared
	request *messages.Check
	own     func() error // what the coordinator alone knows
	asking  bool

	tree, offloader protocol.Audit
	pools           []protocol.Audit
	checkedAt       int64 // the round after which a debug build has checked everything
}

// itself is the sender of the checks of a debug build.
type itself struct{}

// open begins a request.
func (a *audit) open(r *messages.Check) { a.request, a.asking = r, false }

// due tells whether a build with the tag debug checks everything now: when nothing
// waits and a round has passed. With callers that wait for their answers that is
// after each round.
func (a *audit) due() bool {
	if !debug || a.checkedAt == a.stats.Rounds {
		return false
	}
	a.checkedAt = a.stats.Rounds
	return true
}

// start asks every actor.
func (a *audit) start() {
	header := protocol.Header{Epoch: a.kernel.epoch}
	a.tree, a.offloader = protocol.Audit{Header: header}, protocol.Audit{Header: header}
	a.pools = make([]protocol.Audit, 0, len(a.config.Pools))
	for p := range a.config.Pools {
		a.pools = append(a.pools, protocol.Audit{
			Header: header, Pool: messages.PoolID(p), References: a.sequences.References(p, a.counts.device[p].Total), Tenants: a.tenants(p),
		})
	}
	a.asking = true
	a.kernel.toTree(&a.tree)
	a.kernel.toOffloader(&a.offloader)
	for p := range a.pools {
		a.kernel.auditPool(&a.pools[p])
	}
}

// tenants says, by page, whose sequences hold it; nil without quotas. A lost
// sequence has no say: its last step may have been about to take a page that
// now caches what it did before.
func (a *audit) tenants(p int) []protocol.Tenant {
	if a.config.Tenants == nil {
		return nil
	}
	of := slices.Repeat([]protocol.Tenant{protocol.AnyTenant}, a.counts.device[p].Total)
	a.sequences.EachPage(p, func(s *sequence.Sequence, _ sequence.BlockIndex, page messages.PageID) {
		if !s.IsLost() {
			of[page] = s.Tenant
		}
	})
	return of
}

// resume joins every problem.
func (a *audit) resume() {
	a.asking = false
	// Each actor has walked its own structure; what follows is what they say of each other.
	problems := []error{a.tree.Problem, a.offloader.Problem, a.own()}
	for p := range a.pools {
		problems = append(problems, a.pools[p].Problem, a.compareAttached(p))
	}
	a.request.Err = errors.Join(problems...)
	// A build with the tag debug stops at the first round that leaves something wrong.
	if _, own := a.kernel.round.sender.(itself); own && a.request.Err != nil {
		panic(fmt.Sprintf("coordinator: after round %d: %v", a.checkedAt, a.request.Err))
	}
	a.kernel.reply()
}

// compareAttached compares what tree and pool say of the pages that cache blocks.
func (a *audit) compareAttached(p int) error {
	var problems []error
	// The tree says which block is on which page; the pool says what each page caches. Both
	// must say the same, in both directions.
	inTree := map[messages.PageID]protocol.BlockID{}
	if p < len(a.tree.Attached) {
		for _, at := range a.tree.Attached[p] {
			inTree[at.Page] = at.Block
		}
	}
	name := a.config.Pools[p].Name
	if len(a.pools[p].Attached) > 0 {
		for _, at := range a.pools[p].Attached[0] {
			if block, ok := inTree[at.Page]; !ok || block != at.Block {
				problems = append(problems, fmt.Errorf("pool %s: page %d caches block %d, the tree says %d", name, at.Page, at.Block, block))
			}
			delete(inTree, at.Page)
		}
	}
	for page, block := range inTree {
		problems = append(problems, fmt.Errorf("pool %s: the tree has block %d on page %d, the pool has not", name, block, page))
	}
	return errors.Join(problems...)
}

// renew takes new records for a new epoch.
func (a *audit) renew() { a.tree, a.offloader, a.pools = protocol.Audit{}, protocol.Audit{}, nil }

func (a *audit) undo(bool) verdict {
	a.asking = false
	return serveAgain
}

func (a *audit) check() error { return nil }

// String names the stage.
func (a *audit) String() string {
	if a.asking {
		return "check: asking"
	}
	return "check: idle"
}
