package evict_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
	_ "github.com/kvactor/kvactor/pool/evict/published"
	"github.com/kvactor/kvactor/windows"
)

// known is what the oracle knows of a page.
type known struct {
	evict.Contents
	tenant                protocol.Tenant
	joined, stored, waits bool
}

// oracle is a list of pages that is searched in full.
type oracle struct {
	pages  []known
	quotas []windows.Quota
	now    time.Duration
}

func (o *oracle) before(a, b int32) bool {
	x, y := &o.pages[a], &o.pages[b]
	switch {
	case x.Copy != y.Copy:
		return x.Copy
	case !x.Copy && x.Priority != y.Priority:
		return x.Priority < y.Priority
	case !x.Copy && x.Useless != y.Useless:
		return x.Useless
	}
	return cmp.Or(
		cmp.Compare(x.Use.Moment(), y.Use.Moment()), cmp.Compare(y.Depth, x.Depth),
		cmp.Compare(x.Use, y.Use), cmp.Compare(x.Tie, y.Tie), cmp.Compare(a, b),
	) < 0
}

// count is how many pages a tenant has.
func (o *oracle) count(t protocol.Tenant) (n int) {
	for i := range o.pages {
		if o.pages[i].joined && o.pages[i].tenant == t {
			n++
		}
	}
	return n
}

// over tells whether a tenant has more pages than its quota, or as many with atLeast.
func (o *oracle) over(t protocol.Tenant, spare int) bool {
	return len(o.quotas) > 0 && o.count(t)+spare > o.quotas[t].Pages(len(o.pages))
}

// in lists the pages that may be evicted of some tenants, in their order by LRU.
func (o *oracle) in(of func(protocol.Tenant) bool) (list []int32) {
	for i := range o.pages {
		if g := &o.pages[i]; g.waits && of(g.tenant) {
			list = append(list, int32(i))
		}
	}
	slices.SortFunc(list, func(a, b int32) int {
		if o.before(a, b) {
			return -1
		}
		return 1
	})
	return list
}

// groups are the pages that a tenant may replace, in order of preference.
func (o *oracle) groups(taker protocol.Tenant) [3][]int32 {
	var g [3][]int32
	if o.over(taker, 1) {
		g[0] = o.in(func(t protocol.Tenant) bool { return t == taker })
	}
	g[1] = o.in(func(t protocol.Tenant) bool { return o.over(t, 0) })
	g[2] = o.in(func(protocol.Tenant) bool { return true })
	return g
}

func (o *oracle) advance(now time.Duration) {
	o.now = max(o.now, now)
}

// TestModel drives a Core of each policy and the oracle with the same calls. LRU evicts what the
// oracle says; what another policy evicts has the priority and the tenant that it says.
func TestModel(t *testing.T) {
	for _, name := range append(windows.EvictionPolicies(), "") {
		t.Run("policy "+name, rapid.MakeCheck(func(t *rapid.T) { checkModel(t, name) }))
	}
}

func checkModel(t *rapid.T, policy string) {
	pages := rapid.IntRange(1, 20).Draw(t, "pages")
	shares := []windows.Quota{0, windows.NoQuota / 4, windows.NoQuota / 2, windows.NoQuota}
	quotas := rapid.SliceOfN(rapid.SampledFrom(shares), 0, 3).Draw(t, "quotas")
	options := evict.Options{Name: policy, Seed: 1, Span: 1, BlockTokens: 512,
		Noted: rapid.Bool().Draw(t, "noted")}
	c := evict.New(evict.Config{Pages: pages, Quotas: quotas, Total: pages, Policy: options})
	o := &oracle{pages: make([]known, pages), quotas: quotas}
	m := &machine{core: c, oracle: o, exact: policy == "" || policy == evict.LRU, noted: options.Noted}
	t.Repeat(map[string]func(*rapid.T){
		"":        m.agree,
		"advance": m.advance,
		"store":   m.store,
		"add":     m.add,
		"remove":  m.remove,
		"forget":  m.forget,
		"change":  m.change,
		"release": m.release,
		"victim":  m.victim,
		"move":    m.move,
	})
}

type machine struct {
	core         *evict.Core
	oracle       *oracle
	exact, noted bool
	use          protocol.Use
}

// pick draws a page that the oracle accepts, None if there is none.
func (m *machine) pick(t *rapid.T, accepts func(g *known) bool) int32 {
	var list []int32
	for i := range m.oracle.pages {
		if accepts(&m.oracle.pages[i]) {
			list = append(list, int32(i))
		}
	}
	if len(list) == 0 {
		return evict.None
	}
	return rapid.SampledFrom(list).Draw(t, "page")
}

func (m *machine) advance(t *rapid.T) {
	now := m.oracle.now + time.Duration(rapid.IntRange(0, 3).Draw(t, "passes"))
	m.core.Advance(now)
	m.oracle.advance(now)
}

func (m *machine) store(t *rapid.T) {
	p := m.pick(t, func(g *known) bool { return !g.stored })
	if p == evict.None {
		return
	}
	m.use++
	s := evict.Contents{
		Use:      m.use - min(m.use, protocol.Use(rapid.IntRange(0, 4).Draw(t, "older"))),
		Depth:    rapid.Int32Range(0, 3).Draw(t, "depth"),
		Tie:      rapid.Int32Range(0, 2).Draw(t, "tie"),
		Priority: rapid.SampledFrom([]messages.Priority{0, 35, 35, 80}).Draw(t, "priority"),
		Copy:     rapid.IntRange(0, 4).Draw(t, "copy") == 0,
		Useless:  rapid.Bool().Draw(t, "useless"),
	}
	tenant := protocol.Tenant(0)
	if n := len(m.oracle.quotas); n > 0 {
		tenant = protocol.Tenant(rapid.IntRange(0, n-1).Draw(t, "tenant"))
	}
	m.core.Join(p, tenant)
	m.core.Store(p, s)
	if m.noted && !s.Copy {
		m.core.Note(p, &evict.Known{Last: int64(s.Use / 4)})
	}
	m.oracle.pages[p] = known{Contents: s, tenant: tenant, joined: true, stored: true}
}

func (m *machine) add(t *rapid.T) {
	if p := m.pick(t, func(g *known) bool { return g.stored && !g.waits }); p != evict.None {
		m.core.Add(p)
		m.oracle.pages[p].waits = true
	}
}

func (m *machine) remove(t *rapid.T) {
	if p := m.pick(t, func(g *known) bool { return g.waits }); p != evict.None {
		m.core.Remove(p)
		m.oracle.pages[p].waits = false
	}
}

func (m *machine) forget(t *rapid.T) {
	if p := m.pick(t, func(g *known) bool { return g.stored && !g.waits }); p != evict.None {
		m.core.Forget(p)
		m.core.Leave(p)
		m.oracle.pages[p] = known{}
	}
}

func (m *machine) change(t *rapid.T) {
	p := m.pick(t, func(g *known) bool { return g.stored })
	if p == evict.None {
		return
	}
	g := &m.oracle.pages[p]
	if rapid.Bool().Draw(t, "use") {
		m.use++
		m.core.Touch(p, m.use)
		g.Use = m.use
		return
	}
	if rapid.Bool().Draw(t, "appraise") {
		g.Useless = rapid.Bool().Draw(t, "useless")
		m.core.SetUseless(p, g.Useless)
		return
	}
	g.Priority = rapid.SampledFrom([]messages.Priority{0, 35, 80}).Draw(t, "priority")
	m.core.SetPriority(p, g.Priority)
}

// release tells the policy of pages that some request uses, with facts or without.
func (m *machine) release(t *rapid.T) {
	var path []messages.PageID
	for i, g := range m.oracle.pages {
		if g.stored && !g.waits && !g.Copy {
			path = append(path, messages.PageID(i), messages.NoPage)
		}
	}
	if len(path) == 0 || m.noted {
		return
	}
	path = rapid.Permutation(path).Draw(t, "path")[:rapid.IntRange(0, len(path)).Draw(t, "of them")]
	var facts *evict.Request
	if rapid.Bool().Draw(t, "facts") {
		facts = &evict.Request{Arrived: m.oracle.now, Blocks: len(path), Prompt: len(path),
			Tokens: 9}
		for i := range path {
			facts.Signatures = append(facts.Signatures, uint64(path[i]+2)<<8|uint64(i)+1)
		}
	}
	m.core.Used(path, facts)
	if rapid.Bool().Draw(t, "await") {
		m.core.Await(path)
	}
}

// victim compares the page that is evicted, and evicts it.
func (m *machine) victim(t *rapid.T) {
	taker := protocol.Tenant(rapid.IntRange(0, max(1, len(m.oracle.quotas))-1).Draw(t, "taker"))
	p, want := m.core.Victim(taker), evict.None
	for _, group := range m.oracle.groups(taker) {
		if want == evict.None && len(group) > 0 {
			want = group[0]
			m.allows(t, group, p)
		}
	}
	most := rapid.SampledFrom([]messages.Priority{0, 35, 80}).Draw(t, "most")
	limited := m.core.VictimUpTo(taker, most)
	if limited != evict.None {
		require.LessOrEqual(t, m.oracle.pages[limited].Priority, most)
	}
	if want == evict.None {
		require.Equal(t, evict.None, p)
		return
	}
	m.core.Remove(p)
	m.core.Forget(p)
	m.core.Leave(p)
	m.oracle.pages[p] = known{}
}

// allows checks that a page may be evicted of a group in its order by LRU.
func (m *machine) allows(t *rapid.T, group []int32, p int32) {
	if m.exact {
		require.Equal(t, group[0], p)
		return
	}
	require.Contains(t, group, p)
	a, b := &m.oracle.pages[group[0]], &m.oracle.pages[p]
	require.Equal(t, a.Copy, b.Copy)
	if !a.Copy {
		require.Equal(t, a.Priority, b.Priority)
		require.Equal(t, a.Useless, b.Useless)
	}
}

// move gives a page another number.
func (m *machine) move(t *rapid.T) {
	to := m.pick(t, func(g *known) bool { return !g.joined })
	from := m.pick(t, func(g *known) bool { return g.joined })
	if to == evict.None || from == evict.None {
		return
	}
	m.core.Move(from, to)
	m.oracle.pages[to], m.oracle.pages[from] = m.oracle.pages[from], known{}
}

// agree compares everything that is.
func (m *machine) agree(t *rapid.T) {
	require.NoError(t, m.core.Check())
	all := m.oracle.in(func(protocol.Tenant) bool { return true })
	require.Equal(t, len(all), m.core.Waiting())
	require.True(t, slices.Equal(all, m.core.Sorted()), "%v, not %v", m.core.Sorted(), all)
	for i, g := range m.oracle.pages {
		p := m.core.Page(int32(i))
		require.Equal(t, g.stored, p.Stored)
		require.Equal(t, g.waits, m.core.Waits(int32(i)))
		require.NotEmpty(t, m.core.Draw(int32(i)))
		if g.stored {
			held := evict.Contents{p.Use, p.Depth, p.Tie, p.Priority, p.Copy, p.Useless}
			require.Equal(t, g.Contents, held)
			require.Equal(t, g.tenant, p.Tenant)
		}
	}
	if len(m.oracle.quotas) == 0 {
		n := rapid.IntRange(0, len(all)).Draw(t, "peek")
		peeked := m.core.Peek(n, nil)
		require.Len(t, peeked, n)
		if n == len(all) {
			require.ElementsMatch(t, all, peeked)
		}
		if m.exact {
			require.True(t, slices.Equal(all[:n], peeked), "%v, not %v", peeked, all[:n])
		}
	}
}
