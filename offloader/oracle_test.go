package offloader

import (
	"cmp"
	"fmt"
	"sort"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// held is one block in the oracle's host memory.
type held struct {
	block     protocol.BlockID
	clean     bool
	priority  messages.Priority
	use       protocol.Use
	stamp     uint64
	depth     int32
	pins      int
	protected bool
	tenant    protocol.Tenant
	features  protocol.Features // with forecast, as last
	last      int64
}

// oracle is the host memory of one pool as a list that is searched in full. It
// has no page numbers and knows nothing of copies ahead of demand.
type oracle struct {
	total  int
	floor  messages.Priority
	quotas []windows.Quota // by tenant; none: nil
	list   []*held
	// With forecast the values of contents decide, as of the last Move that had a ranking.
	forecast bool
	ranking  *ranking
	now      int64
}

// ranking is a policy of which nothing matters but that values change with time. nil: all are worth
// the same.
type ranking struct{ now int64 }

func (r *ranking) Now() int64 { return r.now }

func (r *ranking) Rank(features protocol.Features, last int64, _ int32) int32 {
	if r == nil {
		return 0
	}
	if features.Wait >= awaited {
		return int32(features.Wait)
	}
	return int32((features.Wait + r.now - last) % 7)
}

// awaited is the least features of contents that a request waits for. Those of a later wait are
// greater.
const awaited = 100

func (r *ranking) Await(protocol.Features) protocol.Features {
	return protocol.Features{Wait: awaited + r.now}
}

// tenant is the tenant of a block on a page of the device. Any fixed choice will do in which a
// block that is onboarded to another page may get another tenant.
func (r *oracle) tenant(b protocol.BlockID, page messages.PageID) protocol.Tenant {
	if len(r.quotas) == 0 {
		return protocol.OtherTenants
	}
	return protocol.Tenant((int(b) + int(page)) % len(r.quotas))
}

// pages counts what a tenant has.
func (r *oracle) pages(t protocol.Tenant) int {
	n := 0
	for _, e := range r.list {
		if e.tenant == t {
			n++
		}
	}
	return n
}

func (r *oracle) find(b protocol.BlockID) *held {
	for _, e := range r.list {
		if e.block == b {
			return e
		}
	}
	return nil
}

func (r *oracle) remove(b protocol.BlockID) {
	for i, e := range r.list {
		if e.block == b {
			r.list = append(r.list[:i], r.list[i+1:]...)
			return
		}
	}
}

func (r *oracle) soles() []protocol.BlockID {
	var out []protocol.BlockID
	for _, e := range r.list {
		if !e.clean {
			out = append(out, e.block)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i] < out[j] })
	return out
}

// evict decides about one victim by the text of the rule.
func (r *oracle) evict(
	v protocol.Victim, e *protocol.EvictedPiece,
) (kept, copied bool, displaced protocol.BlockID) {
	displaced = protocol.NoBlock
	own := r.find(v.Block)
	features, last := protocol.Features{}, int64(v.Use.Moment())
	if e != nil {
		features, last = e.Features, e.Last
	}
	if v.Priority < r.floor || r.total == 0 {
		r.remove(v.Block)
		return false, false, displaced
	}
	if own != nil {
		own.clean, own.priority, own.use, own.depth, own.tenant = false, v.Priority, v.Use, v.Depth,
			v.Tenant
		own.features, own.last = features, last
		return true, false, displaced
	}
	if len(r.list) == r.total {
		worst := r.room(v)
		if worst == nil {
			return false, false, displaced
		}
		if !worst.clean {
			displaced = worst.block
		}
		r.remove(worst.block)
	}
	r.list = append(r.list, &held{block: v.Block, priority: v.Priority, use: v.Use, depth: v.Depth,
		tenant: v.Tenant, features: features, last: last})
	return true, true, displaced
}

// room finds what goes for a victim: of its tenant's own, if that has reached its
// quota. Else copies go before contents, and of each kind first those of tenants
// over their quotas, contents beyond a quota whatever they are worth.
func (r *oracle) room(v protocol.Victim) *held {
	all := func(*held) bool { return true }
	if len(r.quotas) == 0 {
		return cmp.Or(r.copy(all), r.sole(all, v.Priority))
	}
	own := v.Tenant
	if r.pages(own) >= r.quotas[own].Pages(r.total) {
		mine := func(e *held) bool { return e.tenant == own }
		return cmp.Or(r.copy(mine), r.sole(mine, v.Priority))
	}
	over := func(e *held) bool { return r.pages(e.tenant) > r.quotas[e.tenant].Pages(r.total) }
	return cmp.Or(r.copy(over), r.copy(all), r.sole(over, messages.MaxPriority),
		r.sole(all, v.Priority))
}

// copy finds the oldest clean copy of some.
func (r *oracle) copy(of func(*held) bool) *held {
	var worst *held
	for _, e := range r.list {
		if e.clean && of(e) && (worst == nil || e.stamp < worst.stamp ||
			e.stamp == worst.stamp && e.depth > worst.depth) {
			worst = e
		}
	}
	return worst
}

// sole finds the contents, of some, that the rule names, not above a priority.
func (r *oracle) sole(of func(*held) bool, most messages.Priority) *held {
	var worst *held
	for _, e := range r.list {
		if e.clean || e.pins > 0 || e.protected || e.priority > most || !of(e) {
			continue
		}
		if worst == nil || r.before(e, worst) {
			worst = e
		}
	}
	return worst
}

func (r *oracle) before(e, o *held) bool {
	if e.priority != o.priority {
		return e.priority < o.priority
	}
	if r.forecast {
		return cmp.Or(
			cmp.Compare(r.ranking.Rank(e.features, e.last, 0), r.ranking.Rank(o.features, o.last, 0)),
			cmp.Compare(e.last, o.last),
			cmp.Compare(o.depth, e.depth), cmp.Compare(e.block, o.block),
		) < 0
	}
	if e.use/2 != o.use/2 {
		return e.use < o.use
	}
	if e.depth != o.depth {
		return e.depth > o.depth
	}
	return e.use < o.use
}

func (r *oracle) counts() inspect.TierPages {
	c := inspect.TierPages{Total: r.total, Free: r.total - len(r.list)}
	for _, e := range r.list {
		if e.pins > 0 {
			c.Used++
		} else {
			c.Cached++
		}
	}
	return c
}

// compareOutcomes compares the outcomes of a Move with the oracle's own, decided
// victim by victim, and then follows the failures.
func (r *oracle) compareOutcomes(pm *protocol.PoolMove, aheadOf map[protocol.BlockID]bool) error {
	failed := map[protocol.BlockID]bool{}
	for i, v := range pm.Victims {
		failed[v.Block] = pm.Outcomes[i].Failed
	}
	if r.ranking, _ = pm.Ranking.(*ranking); r.ranking != nil {
		r.now = r.ranking.now
	}
	for i, v := range pm.Victims {
		out := pm.Outcomes[i]
		kept, copied, displaced := r.evict(v, pieceOf(pm, i))
		if displaced != protocol.NoBlock && failed[displaced] && precedes(pm.Victims[:i], displaced) {
			displaced = protocol.NoBlock
		}
		switch {
		case out.Failed && !(kept && copied):
			return fmt.Errorf("block %d failed a copy that was not wanted", v.Block)
		case !out.Failed && kept != (out.Host != messages.NoPage):
			return fmt.Errorf("block %d: kept %t, outcome %+v", v.Block, kept, out)
		case out.Failed && (out.Host != messages.NoPage || out.Copied):
			return fmt.Errorf("block %d: failed, but outcome %+v", v.Block, out)
		case out.Copied && !copied, copied && !out.Copied && !out.Failed && !aheadOf[v.Block]:
			return fmt.Errorf("block %d: to be copied %t, outcome %+v", v.Block, copied, out)
		case out.Dirty != (copied && !out.Failed):
			return fmt.Errorf("block %d: to be copied now or ahead %t, outcome %+v", v.Block, copied, out)
		case displaced != out.Displaced:
			return fmt.Errorf("block %d: displaced %d, outcome %+v", v.Block, displaced, out)
		}
		delete(aheadOf, v.Block)
	}
	for b, f := range failed {
		if f {
			r.remove(b)
		}
	}
	return nil
}

func precedes(victims []protocol.Victim, b protocol.BlockID) bool {
	for _, v := range victims {
		if v.Block == b {
			return true
		}
	}
	return false
}

// pieceOf is the piece of a victim, nil if there is none.
func pieceOf(pm *protocol.PoolMove, i int) *protocol.EvictedPiece {
	for k := range pm.Pieces {
		if i < pm.Pieces[k].End {
			return &pm.Pieces[k]
		}
	}
	return nil
}
