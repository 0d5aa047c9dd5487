package coordinator

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// auditing is the state of a Check: every actor walks its own structure, then
// the coordinator compares what they say of each other.
type auditing struct {
	tree, offloader protocol.Audit
	pools           []protocol.Audit
}

// check serves a Check.
func (c *Coordinator) check(*messages.Check) {
	a := &c.audit
	a.tree, a.offloader = protocol.Audit{Header: protocol.Header{Epoch: c.epoch}}, protocol.Audit{Header: protocol.Header{Epoch: c.epoch}}
	a.pools = a.pools[:0]
	for p := range c.Pools {
		a.pools = append(a.pools, protocol.Audit{
			Header: protocol.Header{Epoch: c.epoch}, Pool: messages.PoolID(p), References: c.references(p), Tenants: c.tenants(p),
		})
	}
	c.pending += 2 + len(a.pools)
	c.next = (*Coordinator).checked
	c.port.Tree(&a.tree)
	c.port.Offloader(&a.offloader)
	for p := range a.pools {
		c.port.PoolAudit(&a.pools[p])
	}
}

// itself is the sender of the checks of a debug build.
type itself struct{}

// checkRound starts a Check when nothing waits and a round has passed, in a build
// with the tag debug: with callers that wait for their answers, after each.
func (c *Coordinator) checkRound() bool {
	if !debug || c.checkedAt == c.stats.Rounds {
		return false
	}
	c.checkedAt = c.stats.Rounds
	c.open(queued{request: &messages.Check{}, sender: itself{}})
	c.check(nil)
	return true
}

// references counts, by page, the references that sequences hold in a pool.
func (c *Coordinator) references(p int) []int32 {
	n := make([]int32, c.pages[p].Total)
	c.sequences.each(func(s *sequence) {
		for _, table := range s.pools[p].tables {
			for _, page := range table {
				if page != messages.NoPage {
					n[page]++
				}
			}
		}
	})
	return n
}

// tenants says, by page, whose sequences hold it; nil without quotas. A lost
// sequence has no say: its last step may have been about to take a page that
// now caches what it did before.
func (c *Coordinator) tenants(p int) []protocol.Tenant {
	if c.Tenants == nil {
		return nil
	}
	of := slices.Repeat([]protocol.Tenant{protocol.AnyTenant}, c.pages[p].Total)
	c.sequences.each(func(s *sequence) {
		if s.lost {
			return
		}
		for _, table := range s.pools[p].tables {
			for _, page := range table {
				if page != messages.NoPage {
					of[page] = s.tenant
				}
			}
		}
	})
	return of
}

// checked joins every problem.
func (c *Coordinator) checked() {
	r := c.round.request.(*messages.Check)
	a := &c.audit
	problems := []error{a.tree.Problem, a.offloader.Problem, c.Check()}
	for p := range a.pools {
		problems = append(problems, a.pools[p].Problem, c.compareAttached(p))
	}
	r.Err = errors.Join(problems...)
	if _, own := c.round.sender.(itself); own && r.Err != nil {
		panic(fmt.Sprintf("coordinator: after round %d: %v", c.checkedAt, r.Err))
	}
	c.reply()
}

// compareAttached holds tree and pool against each other.
func (c *Coordinator) compareAttached(p int) error {
	var problems []error
	inTree := map[messages.PageID]protocol.BlockID{}
	if p < len(c.audit.tree.Attached) {
		for _, at := range c.audit.tree.Attached[p] {
			inTree[at.Page] = at.Block
		}
	}
	name := c.Pools[p].Name
	if len(c.audit.pools[p].Attached) > 0 {
		for _, at := range c.audit.pools[p].Attached[0] {
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

// Check verifies what the coordinator alone knows.
func (c *Coordinator) Check() error {
	var problems []error
	for p := range c.Pools {
		reserved := 0
		c.sequences.each(func(s *sequence) { reserved += s.pools[p].reserve })
		if reserved != c.reserved[p] {
			problems = append(problems, fmt.Errorf("pool %s: reserves add up to %d, counted %d", c.Pools[p].Name, reserved, c.reserved[p]))
		}
		n := c.pages[p]
		if n.Used+n.Cached+n.Free != n.Total {
			problems = append(problems, fmt.Errorf("pool %s: %d used + %d cached + %d free of %d pages", c.Pools[p].Name, n.Used, n.Cached, n.Free, n.Total))
		}
	}
	live := 0
	c.sequences.each(func(s *sequence) {
		live++
		problems = append(problems, c.checkSequence(s))
	})
	if live != c.sequences.live {
		problems = append(problems, fmt.Errorf("coordinator: %d sequences run, counted %d", live, c.sequences.live))
	}
	if w := &c.waiting; w.len() > w.limit || w.due && w.len() > 0 {
		problems = append(problems, fmt.Errorf("coordinator: %d batches wait in a room for %d, the first to be tried: %v", w.len(), w.limit, w.due))
	}
	return errors.Join(problems...)
}

// checkSequence verifies lengths and tables of one sequence.
func (c *Coordinator) checkSequence(s *sequence) error {
	if s.computed > s.length() {
		return fmt.Errorf("sequence %v: %d of %d tokens are computed", s.id, s.computed, s.length())
	}
	blocks := ceilDiv(s.length(), c.TokensPerBlock)
	if s.lost {
		return nil // it holds what it held
	}
	for p := range s.pools {
		for b, table := range s.pools[p].tables {
			if len(table) > blocks || len(table) < blocks && s.chunk == 0 {
				return fmt.Errorf("sequence %v: table of beam %d in pool %s has %d entries for %d blocks", s.id, b, c.Pools[p].Name, len(table), blocks)
			}
		}
	}
	return nil
}
