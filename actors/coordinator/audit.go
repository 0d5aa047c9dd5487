package coordinator

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// audit serves Check: every actor walks its own structure, then the coordinator
// compares what they say of each other.
//
//	start ─▶ asking ─▶ (compare) ─▶ answer
//
// Messages are answered in the order in which they were sent, and an audit is sent
// between rounds. So all actors describe the same moment.
type audit struct {
	*shared
	stages[audit]
	request *inspect.Check
	own     func() error // what the coordinator alone knows

	tree, offloader protocol.Audit
	pools           []protocol.Audit
	checkedAt       int64 // the round after which a build with invariants has checked everything
}

// itself is the sender of the checks that a build with invariants makes.
type itself struct{}

// An audit walks all pages and all blocks. A test of a few hundred rounds can have one
// after each of them; a long run under the race detector would take hours.
const (
	denseAudits = 32 // rounds that are each followed by an audit
	auditEvery  = 32 // of later rounds
)

// due tells whether a build with the tag invariants checks everything now: when nothing
// waits and enough rounds have passed. With callers that wait for their answers that
// is after each of the first rounds.
func (a *audit) due() bool {
	rounds := a.stats.Rounds
	if !invariants.Enabled || a.checkedAt == rounds || rounds > denseAudits &&
		rounds < a.checkedAt+auditEvery {
		return false
	}
	a.checkedAt = rounds
	return true
}

// start asks every actor.
func (a *audit) start(request any) {
	a.request = request.(*inspect.Check)
	// New records each time: an audit is rare, and a failure may leave the last ones with their
	// actors.
	header := protocol.Header{Epoch: a.kernel.epoch}
	a.tree, a.offloader = protocol.Audit{Header: header}, protocol.Audit{Header: header}
	a.pools = make([]protocol.Audit, 0, len(a.config.Pools))
	for p := range a.config.Pools {
		// The references are counted in the tables of the sequences, by page; the pool compares
		// them with those that it has counted itself.
		a.pools = append(a.pools, protocol.Audit{
			Header: header, References: a.sequences.References(p, a.counts.device[p].Total),
			Tenants: a.tenants(p),
		})
	}
	a.wait(a, "check: asking", (*audit).end)
	a.kernel.toTree(&a.tree)
	a.kernel.toOffloader(&a.offloader)
	for p := range a.pools {
		a.kernel.toPool(messages.PoolID(p), &a.pools[p])
	}
}

// tenants says, by page, whose sequences hold it; nil without quotas. A lost
// sequence has no say: its last step may have been about to take a page that
// now caches what it did before.
func (a *audit) tenants(p int) []protocol.Tenant {
	if a.config.Tenants == nil {
		return nil
	}
	// AnyTenant for a page that no sequence holds: the pool alone says whose it is.
	of := slices.Repeat([]protocol.Tenant{protocol.AnyTenant}, a.counts.device[p].Total)
	a.sequences.EachPage(p, func(s *sequence.Sequence, _ sequence.BlockIndex, page messages.PageID) {
		if !s.IsLost() {
			of[page] = s.Tenant
		}
	})
	return of
}

// end joins every problem.
func (a *audit) end() {
	// Each actor has walked its own structure; what follows is what they say of each other.
	problems := []error{a.tree.Problem, a.offloader.Problem, a.own()}
	for p := range a.pools {
		problems = append(problems, a.pools[p].Problem, a.compareAttached(p))
	}
	a.request.Err = errors.Join(problems...)
	// A build with invariants stops at the first round that leaves something wrong.
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
	inTree := map[messages.PageID]protocol.PageBlock{}
	for _, at := range a.tree.Attached[p] {
		inTree[at.Page] = at
	}
	// What the pool has and the tree has not is found in this loop; what is left in inTree
	// afterwards is the opposite.
	name := a.config.Pools[p].Name
	for _, at := range a.pools[p].Attached[0] {
		known, ok := inTree[at.Page]
		if known.Front == protocol.AnyPage {
			known.Front = at.Front
		}
		if !ok || known != at {
			problems = append(problems, fmt.Errorf("pool %s: page %d has %+v, the tree says %+v", name,
				at.Page, at, known))
		}
		delete(inTree, at.Page)
	}
	for page, at := range inTree {
		problems = append(problems,
			fmt.Errorf("pool %s: the tree has block %d on page %d, the pool has not", name, at.Block, page))
	}
	return errors.Join(problems...)
}
