package pool

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
	"github.com/kvactor/kvactor/windows"
)

// machine drives a pool and the oracle with the same legal operations.
type machine struct {
	pool   *Pool
	oracle *oracle
	work   protocol.PoolWork
	block  protocol.BlockID // the next new one
	use    protocol.Use
	// the pool has the policy forecast: the oracle accepts any victim of the right priority
	forecast bool
	span     protocol.Span // of a forecast
	states   bool          // the forecast is that of a pool of states
}

// TestModel checks after every batch that pool and oracle agree in everything:
// answers, counts, the facts of each page, the order of eviction and of the free.
func TestModel(t *testing.T) { rapid.Check(t, checkModel) }

func FuzzModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkModel)) }

func checkModel(t *rapid.T) {
	pages := rapid.IntRange(0, 24).Draw(t, "pages")
	quotas := drawQuotas(t)
	m := &machine{pool: New("test", pages, quotas...), oracle: newOracle(pages, quotas...)}
	if m.forecast = rapid.Bool().Draw(t, "forecast"); m.forecast {
		m.span = protocol.Span(rapid.IntRange(1, 3).Draw(t, "span"))
		m.states = rapid.Bool().Draw(t, "states")
		m.pool = NewWith("test", pages, evict.Options{Name: evict.Forecast,
			Seed: 1, Span: m.span, States: m.states, DoublesAt: rapid.SampledFrom([]float64{0, 4}).Draw(t,
				"doubles at"),
		}, quotas...)
	}
	t.Repeat(map[string]func(*rapid.T){
		"":        m.agree,
		"batch":   m.batch,
		"resize":  m.resize,
		"rebuild": m.rebuild,
	})
}

// drawQuotas draws none, or those of one to four tenants.
func drawQuotas(t *rapid.T) []windows.Quota {
	shares := []windows.Quota{0, windows.NoQuota / 10, windows.NoQuota / 4, windows.NoQuota / 2,
		windows.NoQuota}
	return rapid.SliceOfN(rapid.SampledFrom(shares), 0, 4).Draw(t, "quotas")
}

// kinds are drawn with the weights of their number here.
var kinds = []protocol.PoolOpKind{
	protocol.Claim, protocol.Claim, protocol.Unclaim, protocol.Take, protocol.Take, protocol.Take,
	protocol.Drop, protocol.Drop, protocol.Drop, protocol.AttachPages, protocol.AttachPages,
	protocol.AttachPages,
	protocol.DetachPages, protocol.SetPriority, protocol.AddPins, protocol.EndPin,
	protocol.EndCoverage, protocol.Inspect, protocol.HeldBlocks, protocol.PeekVictims,
	protocol.TakeForCheckpoint,
	protocol.FollowCheckpoint,
}

// batch does up to six operations in one message; the oracle goes ahead, because
// what is legal depends on the operations before.
func (m *machine) batch(t *rapid.T) {
	m.work.Ops = m.work.Ops[:0]
	m.work.Now += time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 5}).Draw(t, "passes"))
	var want []protocol.PoolOp
	var victims []protocol.Victim
	if m.forecast {
		m.one(t)
		return
	}
	for range rapid.IntRange(1, 6).Draw(t, "operations") {
		op := m.draw(t)
		m.work.Ops = append(m.work.Ops, op)
		answered, evicted := m.oracle.do(clone(op))
		want = append(want, answered)
		victims = append(victims, evicted...)
	}
	m.pool.Do(&m.work)
	require.Equal(t, victims, append([]protocol.Victim(nil), m.work.Victims...))
	for i := range want {
		require.Equal(t, clone(want[i]), clone(m.work.Ops[i]), "operation %d", i)
	}
	require.Equal(t, m.oracle.counts(), m.work.Counts)
}

// one does one operation with a forecast: the pool goes ahead, and the oracle follows its
// victims if they are legal.
func (m *machine) one(t *rapid.T) {
	op := m.draw(t)
	if op.Kind == protocol.Drop && rapid.Bool().Draw(t, "request") {
		op.Request = &protocol.RequestFacts{Arrived: m.work.Now, Answer: 9}
		for i := range m.span.Signatures(len(op.Pages)) {
			id := op.Pages[m.span.Block(i)]
			signature := uint64(1)
			if id != messages.NoPage {
				signature += 2 * uint64(m.oracle.pages[id].block)
			}
			op.Request.Signatures = append(op.Request.Signatures, signature)
		}
		op.Request.Blocks = len(op.Pages)
		op.Request.Prompt = rapid.IntRange(0, len(op.Pages)).Draw(t, "prompt")
	}
	m.work.Ops = append(m.work.Ops, clone(op))
	m.pool.Do(&m.work)
	if op.Kind == protocol.PeekVictims {
		m.checkPeek(t, m.work.Ops[0], m.work.Victims)
		m.oracle.scanNext = m.pool.scanNext
		return
	}
	m.oracle.chosen = append([]protocol.Victim{}, m.work.Victims...)
	want, victims := m.oracle.do(clone(op))
	m.oracle.chosen = nil
	require.Empty(t, m.oracle.illegal)
	require.Equal(t, victims, append([]protocol.Victim(nil), m.work.Victims...))
	require.Equal(t, clone(want), clone(m.work.Ops[0]))
	require.Equal(t, m.oracle.counts(), m.work.Counts)
}

// checkPeek checks that a look ahead lists cached pages once, then used ones that cache a
// block, and without quotas the lower priorities first.
func (m *machine) checkPeek(t *rapid.T, op protocol.PoolOp, victims []protocol.Victim) {
	require.LessOrEqual(t, len(victims), op.N)
	seen, last := map[messages.PageID]bool{}, messages.Priority(0)
	for i, v := range victims {
		g := m.oracle.pages[v.Page]
		require.False(t, seen[v.Page])
		seen[v.Page] = true
		require.Equal(t, m.oracle.victim(v.Page), v)
		require.Equal(t, i < op.Count, g.cached())
		if len(m.oracle.quotas) == 0 && i < op.Count {
			require.GreaterOrEqual(t, g.priority, last)
			last = g.priority
		}
	}
	if len(m.oracle.quotas) == 0 {
		require.Equal(t, min(op.N, m.oracle.counts().Cached), op.Count)
	}
}

// clone copies the slices, empty ones as nil, so that equal means equal contents.
func clone(op protocol.PoolOp) protocol.PoolOp {
	op.Pages = append([]messages.PageID(nil), op.Pages...)
	op.Blocks = append([]protocol.BlockID(nil), op.Blocks...)
	op.Shares = append([]protocol.Share(nil), op.Shares...)
	return op
}

// draw makes an operation that is legal now. Uses repeat and go back, as those
// of a request do that continues an older one.
func (m *machine) draw(t *rapid.T) protocol.PoolOp {
	op := protocol.PoolOp{
		Kind: rapid.SampledFrom(kinds).Draw(t, "kind"),
		Priority: rapid.SampledFrom([]messages.Priority{0, 35, 35, 35, 63, 64, 80, 100}).Draw(
			t, "priority"),
		Depth:                rapid.Int32Range(0, 3).Draw(t, "depth"),
		CoveredByReservation: rapid.IntRange(0, 3).Draw(t, "covered") == 0,
		Awaited:              rapid.Bool().Draw(t, "awaited"),
	}
	m.use++
	op.Use = m.use - min(m.use, protocol.Use(rapid.IntRange(0, 4).Draw(t, "older")))
	c := m.oracle.counts()
	switch op.Kind {
	case protocol.Take:
		op.N = rapid.IntRange(0, c.Free+c.Cached).Draw(t, "n")
		op.Tenant = protocol.Tenant(rapid.IntRange(0, max(1, len(m.oracle.quotas))-1).Draw(t, "tenant"))
		return op
	case protocol.TakeForCheckpoint:
		if m.forecast && !m.states {
			op.Kind = protocol.Inspect // only pools of states have checkpoints
			return op
		}
		op.CoveredByReservation = false // state pools have no reservations
		op.Tenant = protocol.Tenant(rapid.IntRange(0, max(1, len(m.oracle.quotas))-1).Draw(t, "tenant"))
		return op
	case protocol.HeldBlocks:
		return op
	case protocol.PeekVictims:
		op.N = rapid.IntRange(0, c.Cached+2).Draw(t, "n")
		return op
	case protocol.AddPins:
		op.N = rapid.IntRange(0, 3).Draw(t, "n")
	}
	if op.Kind == protocol.FollowCheckpoint {
		op.Pages = m.drawFollowing(t)
		return op
	}
	var fit []messages.PageID
	for i, g := range m.oracle.pages {
		if legal(op, g) {
			fit = append(fit, messages.PageID(i), messages.NoPage)
		}
	}
	if len(fit) > 0 {
		op.Pages = rapid.Permutation(fit).Draw(t, "pages")[:rapid.IntRange(0, len(fit)).Draw(t,
			"of them")]
	}
	m.name(t, &op)
	return op
}

// drawFollowing draws a checkpoint or none, and deeper ones that follow it.
func (m *machine) drawFollowing(t *rapid.T) []messages.PageID {
	list, depth := []messages.PageID{messages.NoPage}, int32(-1)
	var stored []messages.PageID
	for i, g := range m.oracle.pages {
		if g.block != protocol.NoBlock {
			stored = append(stored, messages.PageID(i))
		}
	}
	if len(stored) == 0 {
		return list
	}
	if rapid.Bool().Draw(t, "behind one") {
		list[0] = rapid.SampledFrom(stored).Draw(t, "front")
		depth = m.oracle.pages[list[0]].depth
	}
	for _, id := range rapid.SliceOfDistinct(rapid.SampledFrom(stored),
		func(id messages.PageID) messages.PageID { return id }).Draw(t, "behind") {
		if m.oracle.pages[id].depth > depth {
			list = append(list, id)
		}
	}
	return list
}

// name fills in blocks where an operation has them.
func (m *machine) name(t *rapid.T, op *protocol.PoolOp) {
	switch op.Kind {
	case protocol.AttachPages:
		for range op.Pages {
			op.Blocks = append(op.Blocks, m.block)
			m.block++
		}
	case protocol.DetachPages, protocol.SetPriority:
		if rapid.Bool().Draw(t, "named") {
			for _, id := range op.Pages {
				block := protocol.NoBlock
				if id != messages.NoPage {
					block = m.oracle.pages[id].block
				}
				op.Blocks = append(op.Blocks, block)
			}
		}
	}
}

// legal tells whether the operation may name the page.
func legal(op protocol.PoolOp, g oraclePage) bool {
	stored := g.block != protocol.NoBlock
	switch op.Kind {
	case protocol.Claim:
		return stored || !g.unheld()
	case protocol.Drop, protocol.Unclaim:
		if op.CoveredByReservation {
			return g.covered > 0
		}
		return g.references > g.covered
	case protocol.AttachPages:
		return !stored && !g.unheld()
	case protocol.DetachPages, protocol.SetPriority, protocol.AddPins:
		return stored
	case protocol.EndPin:
		return g.pins > 0
	case protocol.EndCoverage:
		return g.covered > 0
	default:
		return true
	}
}

func (m *machine) resize(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		return
	}
	r := protocol.ResizePool{
		Now: m.work.Now, Pages: rapid.IntRange(m.oracle.counts().Used, 24).Draw(t, "pages"),
	}
	m.pool.Resize(&r)
	if m.forecast {
		m.oracle.chosen = append([]protocol.Victim{}, r.Victims...)
		defer func() { m.oracle.chosen = nil }()
	}
	victims, moves := m.oracle.resize(r.Pages)
	require.Equal(t, victims, append([]protocol.Victim(nil), r.Victims...))
	require.Equal(t, moves, pageMoves(r.Moves))
	require.Equal(t, m.oracle.counts(), r.Counts)
}

// pageMoves are the new numbers of pages.
func pageMoves(list []protocol.PageMoved) (moves []messages.PageMove) {
	for i := range list {
		moves = append(moves, list[i].PageMove)
	}
	return moves
}

// rebuild replaces the pool by one made of what its owners know; only the order
// of the free pages is lost.
func (m *machine) rebuild(t *rapid.T) {
	var kept []protocol.KeptPage
	for i, g := range m.oracle.pages {
		if !g.unheld() || g.cached() {
			kept = append(kept, protocol.KeptPage{
				Page: messages.PageID(i), References: int32(g.references), CoveredReferences: int32(g.covered),
				Pins:  int32(g.pins),
				Block: g.block, Depth: g.depth, Priority: g.priority, Use: g.use, Tenant: g.tenant,
			})
		}
	}
	if len(kept) > 0 {
		kept = rapid.Permutation(kept).Draw(t, "kept")
	}
	m.pool = m.pool.rebuilt(len(m.oracle.pages), kept)
	m.oracle.resize(len(m.oracle.pages)) // renews the order of the free pages
	m.oracle.scanNext = 0
}

// agree compares everything that is.
func (m *machine) agree(t *rapid.T) {
	require.NoError(t, m.pool.Check())
	require.Equal(t, m.oracle.counts(), m.pool.Counts())
	for i, g := range m.oracle.pages {
		p, known := &m.pool.pages[i], m.pool.order.Page(int32(i))
		got := oraclePage{
			references: int(p.references), covered: int(p.covered), pins: int(p.pins),
			block: p.block, depth: known.Depth, use: known.Use,
		}
		if p.stored() {
			got.priority = known.Priority
		}
		if !p.free() {
			got.tenant = m.pool.TenantOf(messages.PageID(i))
		}
		require.Equal(t, g, got, "page %d", i)
	}
	var cached, freed []messages.PageID
	for _, i := range m.pool.order.Sorted() {
		cached = append(cached, messages.PageID(i))
	}
	for tenant := range m.oracle.quotas {
		require.Equal(t, m.oracle.account(protocol.Tenant(tenant)),
			m.pool.Account(protocol.Tenant(tenant)), "tenant %d", tenant)
	}
	if m.forecast {
		slices.Sort(cached)
		require.ElementsMatch(t, m.oracle.cachedInOrder(), cached)
	} else {
		require.Equal(t, m.oracle.cachedInOrder(), cached)
	}
	for _, i := range m.pool.free {
		freed = append(freed, messages.PageID(i))
	}
	require.Equal(t, append([]messages.PageID(nil), m.oracle.free...), freed)
	require.NotEmpty(t, m.pool.String())
}
