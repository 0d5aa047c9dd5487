package pool

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// tenants drives a divided pool whose tenants come and go: each takes pages,
// leaves contents there, and uses contents again.
type tenants struct {
	pool  *Pool
	use   protocol.Use // even, so that none is an early or late one of another
	block protocol.BlockID
}

func (y *tenants) do(ops ...protocol.PoolOp) []protocol.Victim {
	w := protocol.PoolWork{Ops: ops}
	y.pool.Do(&w)
	return w.Victims
}

// visit takes n pages for a tenant, stores them and drops them.
func (y *tenants) visit(t protocol.Tenant, n int, priority messages.Priority) []protocol.Victim {
	take := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: n, Tenant: t}}}
	y.pool.Do(&take)
	pages := take.Ops[0].Pages
	blocks := make([]protocol.BlockID, n)
	for i := range blocks {
		blocks[i] = y.block
		y.block++
	}
	y.use += 2
	y.do(protocol.PoolOp{Kind: protocol.AttachPages, Pages: pages, Blocks: blocks, Priority: priority},
		protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Use: y.use})
	return take.Victims
}

// TestQuotasProtect: where the quotas add up to no more than the pool and no tenant
// holds more than his, whoever loses a page has more than his quota, or has
// reached it and takes the page himself.
func TestQuotasProtect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quotas := []windows.Quota{windows.NoQuota / 5, windows.NoQuota / 2, windows.NoQuota / 10,
			windows.NoQuota / 5}
		pages := rapid.IntRange(10, 60).Draw(t, "pages")
		y := &tenants{pool: New("divided", pages, quotas...)}
		for range rapid.IntRange(1, 80).Draw(t, "visits") {
			tenant := protocol.Tenant(rapid.IntRange(0, len(quotas)-1).Draw(t, "tenant"))
			before := y.pool.Account(tenant)
			had := make([]protocol.Account, len(quotas))
			for other := range had {
				had[other] = y.pool.Account(protocol.Tenant(other))
			}
			n := rapid.IntRange(0, before.Quota).Draw(t, "n")
			for _, v := range y.visit(tenant, n,
				messages.Priority(rapid.IntRange(0, 100).Draw(t, "priority"))) {
				had[v.Tenant].Cached--
				if v.Tenant != tenant {
					assert.GreaterOrEqual(t, had[v.Tenant].Cached, had[v.Tenant].Quota, "tenant %d loses to %d",
						v.Tenant, tenant)
				}
			}
			require.NoError(t, y.pool.Check())
		}
	})
}

// TestQuotaIsWorthAPool: what is still there in a pool of his quota alone is
// there in the divided pool, whatever others do, if all contents are worth the same.
func TestQuotaIsWorthAPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shared := &tenants{pool: New("divided", 40, windows.NoQuota/2, windows.NoQuota/2)}
		alone := &tenants{pool: New("alone", 20), block: 1 << 20}
		twin := map[protocol.BlockID]protocol.BlockID{} // of a block alone, the same in the divided pool
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := rapid.IntRange(1, 20).Draw(t, "n")
			switch rapid.IntRange(0, 3).Draw(t, "who") {
			case 0:
				shared.visit(0, n, messages.DefaultPriority)
			case 1:
				again(t, shared, alone, twin)
			default:
				for i := range n {
					twin[alone.block+protocol.BlockID(i)] = shared.block + protocol.BlockID(i)
				}
				shared.visit(1, n, messages.DefaultPriority)
				alone.visit(0, n, messages.DefaultPriority)
			}
			for _, at := range alone.pool.Attached() {
				require.NotEqual(t, messages.NoPage, pageOf(shared.pool, twin[at.Block]),
					"block %d is lost in the divided pool", at.Block)
			}
		}
	})
}

// again uses a block that is there alone, in both pools.
func again(t *rapid.T, shared, alone *tenants, twin map[protocol.BlockID]protocol.BlockID) {
	all := alone.pool.Attached()
	if len(all) == 0 {
		return
	}
	at := rapid.SampledFrom(all).Draw(t, "block")
	for _, one := range []struct {
		y    *tenants
		page messages.PageID
	}{{alone, at.Page}, {shared, pageOf(shared.pool, twin[at.Block])}} {
		one.y.use += 2
		pages := []messages.PageID{one.page}
		one.y.do(protocol.PoolOp{Kind: protocol.Claim, Pages: pages},
			protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Use: one.y.use})
	}
}

// pageOf is the page that caches a block, or NoPage.
func pageOf(p *Pool, b protocol.BlockID) messages.PageID {
	all := p.Attached()
	if i := slices.IndexFunc(all, func(at protocol.PageBlock) bool { return at.Block == b }); i >= 0 {
		return all[i].Page
	}
	return messages.NoPage
}

// TestPeekedPagesAreThoseBeyondQuotas: PeekVictims of a divided pool lists what is evicted when a
// tenant within its quota takes pages: what others have beyond theirs.
func TestPeekedPagesAreThoseBeyondQuotas(t *testing.T) {
	y := &tenants{pool: New("divided", 12, windows.NoQuota, windows.NoQuota/2, windows.NoQuota/4)}
	y.visit(2, 6, 90)
	y.visit(1, 6, 20)
	seen := y.do(protocol.PoolOp{Kind: protocol.PeekVictims, N: 3})
	assert.Equal(t, y.do(protocol.PoolOp{Kind: protocol.Take, N: 3}), seen)
}

// TestDividedPoolAllocatesNothing: neither taking nor letting go of pages does,
// with quotas either, once the records have grown.
func TestDividedPoolAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("checks allocate")
	}
	y := &tenants{pool: New("divided", 64, windows.NoQuota/4, windows.NoQuota/4, windows.NoQuota/2)}
	for tenant := range protocol.Tenant(3) {
		y.visit(tenant, 40, messages.DefaultPriority)
	}
	take := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 8}}}
	leave := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.AttachPages,
		Blocks: make([]protocol.BlockID, 8)}, {Kind: protocol.Drop}}}
	tenant := protocol.Tenant(0)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		op := &take.Ops[0]
		op.Tenant, op.Pages, take.Victims = tenant, op.Pages[:0], take.Victims[:0]
		tenant = (tenant + 1) % 3
		y.pool.Do(&take)
		for i := range leave.Ops[0].Blocks {
			leave.Ops[0].Blocks[i] = y.block
			y.block++
		}
		y.use += 2
		leave.Ops[0].Pages, leave.Ops[1].Pages, leave.Ops[1].Use = op.Pages, op.Pages, y.use
		y.pool.Do(&leave)
	}))
}

func TestFaultsOfTenants(t *testing.T) {
	p := New("divided", 4, windows.NoQuota, windows.NoQuota/2)
	assert.PanicsWithValue(t, "pool divided: take for tenant 2 of 2", func() {
		p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 1, Tenant: 2}}})
	})
	assert.PanicsWithValue(t, "pool divided: rebuild of page 1 for tenant 9 of 2", func() {
		Rebuild("divided", 4,
			[]protocol.KeptPage{{Page: 1, References: 1, Block: protocol.NoBlock, Tenant: 9}}, p.Quotas()...)
	})
	// The last number of 16 bits is that of no tenant: protocol.AnyTenant.
	assert.PanicsWithValue(t, "pool divided: 65536 quotas, tenants have 16 bits", func() {
		New("divided", 4, make([]windows.Quota, 1<<16)...)
	})
	assert.NotPanics(t, func() { New("divided", 4, make([]windows.Quota, 1<<16-1)...) })
}

// TestTenantsAreRankedAnewWhenPrioritiesEnd, also one whose first page is the
// same as before.
func TestTenantsAreRankedAgainWhenPrioritiesEnd(t *testing.T) {
	p := New("divided", 3, windows.NoQuota, windows.NoQuota, windows.NoQuota)
	for tenant, op := range []protocol.PoolOp{{Priority: 90}, {Priority: 50}, {Priority: 80}} {
		take := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 1,
			Tenant: protocol.Tenant(tenant)}}}
		p.Do(&take)
		op.Kind, op.Pages, op.Blocks = protocol.AttachPages, take.Ops[0].Pages,
			[]protocol.BlockID{protocol.BlockID(tenant)}
		p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{op, {Kind: protocol.Drop, Pages: op.Pages,
			Use: protocol.Use(2 * tenant)}}})
	}
	for ended, want := range []protocol.BlockID{1, 0, 0} {
		twin := Rebuild("divided", 3, keptPages(p), p.Quotas()...)
		work := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 1, Tenant: 1}}}
		for _, page := range []messages.PageID{0, 2}[:ended] {
			work.Ops = slices.Insert(work.Ops, 0, protocol.PoolOp{Kind: protocol.SetPriority,
				Pages: []messages.PageID{page}, Priority: messages.DefaultPriority})
		}
		twin.Do(&work)
		require.NoError(t, twin.Check())
		assert.Equal(t, want, work.Victims[0].Block, "%d have ended", ended)
	}
}

// keptPages is what the owners of cached pages know.
func keptPages(p *Pool) (kept []protocol.KeptPage) {
	for _, at := range p.Attached() {
		i := int32(at.Page)
		kept = append(kept, protocol.KeptPage{
			Page: at.Page, Block: at.Block, Depth: p.order.Page(i).Depth, Use: p.order.Page(i).Use,
			Tenant:   p.TenantOf(at.Page),
			Priority: p.order.Page(i).Priority,
		})
	}
	return kept
}
