package publish

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// node is a block of the model: what it is, and what each of the pools holds of it.
type node struct {
	hash   kvevents.Hash
	parent int // index; −1: none
	tokens []messages.Token
	covers []messages.Cover
	ns     *messages.Namespace // of a block without a parent
	held   [4]holding
}

// model is an engine with two pools of full attention, one with a window and perhaps one of
// states, that stores and evicts blocks in any order.
type model struct {
	pools  []windows.Pool
	nodes  []node
	kept   []kvevents.Event
	next   uint64
	lost   uint64
	view   *View
	reader reader
	only   *messages.Namespace
}

// counted are the indexes of the pools that the view counts: pool 0 has a window.
var counted = []int{1, 2}

func modelPools(t *rapid.T) []windows.Pool {
	pools := []windows.Pool{
		{ID: 0, Window: rapid.IntRange(2, 7).Draw(t, "window"),
			Sink: rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "sink"), TokensPerBlock: 2},
		{ID: 1, TokensPerBlock: 2},
		{ID: 2, KVHeads: 2, TokensPerBlock: 2},
	}
	if rapid.Bool().Draw(t, "states") {
		pools = append(pools, windows.Pool{ID: 3, Kind: windows.KindState, TokensPerBlock: 2,
			Checkpoints: true})
	}
	return pools
}

// fewNames has so few names that blocks collide.
type fewNames struct{ engineNamer }

func (fewNames) name(_, b *block) (uint64, digest) { return uint64(b.hash[15]%5) + 1, digest{} }

func newModel(t *rapid.T) *model {
	m := &model{}
	if rapid.Bool().Draw(t, "only") {
		m.only = &messages.Namespace{}
	}
	m.pools = modelPools(t)
	v, err := New(Config{Pools: m.pools, Only: m.only})
	require.NoError(t, err)
	m.view = v
	m.reader = reader{}
	for i := range 24 {
		n := node{parent: rapid.IntRange(-1, i-1).Draw(t, "parent"),
			tokens: []messages.Token{messages.Token(i), 7}}
		n.hash = kvevents.Hash{15: byte(i + 1)}
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			n.tokens = n.tokens[:1] // stored in part
		case 1:
			n.covers = []messages.Cover{{Covered: true}, {}}
		}
		if n.parent < 0 {
			n.ns = []*messages.Namespace{nil, nil, nil, {Salt: "s"},
				{Encoder: "e"}}[rapid.IntRange(0, 4).Draw(t, "namespace")]
		}
		m.nodes = append(m.nodes, n)
	}
	return m
}

func (m *model) tell(e kvevents.Event) {
	e.ID = m.next
	m.next++
	m.kept = append(m.kept, e)
}

// event stores consecutive nodes in a pool, in which none of them is.
func (m *model) event(pool int, chain []int) kvevents.Event {
	first := m.nodes[chain[0]]
	e := kvevents.Event{Type: kvevents.EventStored, Pool: messages.PoolID(pool), Namespace: first.ns}
	if first.parent >= 0 {
		e.Parent, e.HasParent = m.nodes[first.parent].hash, true
	}
	for _, i := range chain {
		n := &m.nodes[i]
		e.Blocks = append(e.Blocks, kvevents.StoredBlock{
			Hash: n.hash, Tokens: n.tokens, Covers: n.covers, Tier: n.held[pool].tier,
			Priority: n.held[pool].priority,
		})
	}
	return e
}

// store stores a node in a pool, or in all, and those before it that the pool lacks
// too, or not.
func (m *model) store(t *rapid.T) {
	pool, i := m.draw(t)
	pools := []int{pool}
	if rapid.IntRange(0, 2).Draw(t, "all pools") > 0 {
		pools = nil
		for p := range m.pools {
			pools = append(pools, p)
		}
	}
	for _, p := range pools {
		m.storeIn(t, p, i)
	}
}

func (m *model) storeIn(t *rapid.T, pool, i int) {
	var chain []int
	for ; i >= 0 && !m.nodes[i].held[pool].held; i = m.nodes[i].parent {
		m.nodes[i].held[pool] = holding{held: true, priority: 35}
		chain = append(chain, i)
		if rapid.IntRange(0, 6).Draw(t, "enough") == 0 {
			break
		}
	}
	if slices.Reverse(chain); len(chain) > 0 {
		m.tell(m.event(pool, chain))
	}
}

func (m *model) remove(t *rapid.T) {
	pool, i := m.draw(t)
	if n := &m.nodes[i]; n.held[pool].held {
		n.held[pool] = holding{}
		m.tell(kvevents.Event{Type: kvevents.EventRemoved, Pool: messages.PoolID(pool),
			Hashes: []kvevents.Hash{n.hash}})
	}
}

func (m *model) update(t *rapid.T) {
	pool, i := m.draw(t)
	h := &m.nodes[i].held[pool]
	if !h.held {
		return
	}
	e := kvevents.Event{Type: kvevents.EventUpdated, Pool: messages.PoolID(pool),
		Hash: m.nodes[i].hash}
	if rapid.Bool().Draw(t, "tier") {
		h.tier = messages.Secondary - h.tier
		e.TierChanged, e.NewTier = true, h.tier
	} else {
		h.priority = messages.Priority(rapid.IntRange(0, 100).Draw(t, "priority"))
		e.NewPriority = h.priority
	}
	m.tell(e)
}

func (m *model) reset(*rapid.T) {
	for i := range m.nodes {
		for p := range m.nodes[i].held {
			if m.nodes[i].held[p].held {
				m.nodes[i].held[p] = holding{}
				m.tell(kvevents.Event{Type: kvevents.EventRemoved, Pool: messages.PoolID(p),
					Hashes: []kvevents.Hash{m.nodes[i].hash}})
			}
		}
	}
	m.tell(kvevents.Event{Type: kvevents.EventCleared})
}

// lose drops the events that no one has followed yet.
func (m *model) lose(*rapid.T) {
	m.lost += uint64(len(m.kept))
	m.kept = nil
}

func (m *model) draw(t *rapid.T) (pool, i int) {
	return rapid.IntRange(0, len(m.pools)-1).Draw(t, "pool"),
		rapid.IntRange(0, len(m.nodes)-1).Draw(t, "block")
}

func (m *model) follow(t *rapid.T) {
	batch := kvevents.EventBatch{Events: m.kept, Lost: m.lost}
	stale := m.lost > 0 || m.view.Stale()
	m.kept, m.lost = nil, 0
	changes, err := m.view.Follow(batch)
	if stale {
		require.ErrorIs(t, err, events.ErrStale)
		batch = kvevents.EventBatch{Snapshot: true, Next: m.next}
		for i := range m.nodes {
			for p := range m.nodes[i].held {
				if m.nodes[i].held[p].held {
					batch.Events = append(batch.Events, m.event(p, []int{i}))
				}
			}
		}
		changes, err = m.view.Follow(batch)
	}
	require.NoError(t, err)
	for i := range changes {
		require.NoError(t, m.reader.take(&changes[i]))
	}
	m.compare(t)
}

// compare holds the view, and what a reader made of its changes, against the
// definition of a published block.
func (m *model) compare(t *rapid.T) {
	want := reader{}
	for i := range m.nodes {
		if m.publishable(i) {
			n := &m.nodes[i]
			entry := told{tier: messages.Primary, priority: messages.MaxPriority, parent: m.parentName(n)}
			for _, p := range counted {
				entry.tier, entry.priority = max(entry.tier, n.held[p].tier),
					min(entry.priority, n.held[p].priority)
			}
			want[uint64(n.hash[15])] = entry
		}
	}
	require.Equal(t, want, m.reader)
	all := reader{}
	for _, c := range m.view.All() {
		require.NoError(t, all.take(&c))
	}
	require.Equal(t, want, all)
	require.Equal(t, len(want), m.view.Len())
}

func (m *model) parentName(n *node) uint64 {
	if n.parent < 0 {
		return 0
	}
	return uint64(m.nodes[n.parent].hash[15])
}

// publishable is the definition: the block lies in a prefix that can be reused.
func (m *model) publishable(i int) bool {
	for k := range m.nodes {
		if path := m.path(k); slices.Contains(path, i) && m.allowed(k) && m.reusable(path) {
			return true
		}
	}
	return false
}

// path are the nodes from the first of a prompt up to one.
func (m *model) path(i int) (path []int) {
	for ; i >= 0; i = m.nodes[i].parent {
		path = append(path, i)
	}
	slices.Reverse(path)
	return path
}

// reusable tells whether the pools hold what the token behind a path of whole blocks needs.
func (m *model) reusable(path []int) bool {
	for p, pool := range m.pools {
		for b, i := range path {
			needs := pool.Needs(b, 2*len(path))
			if pool.Kind == windows.KindState {
				needs = b == len(path)-1
			}
			if needs && !m.nodes[i].held[p].held {
				return false
			}
		}
	}
	return true
}

// allowed tells whether readers can follow the block and all before it.
func (m *model) allowed(i int) bool {
	for {
		n := &m.nodes[i]
		if len(n.tokens) < 2 || m.only != nil && n.covers != nil {
			return false
		}
		for _, p := range counted {
			if !n.held[p].held {
				return false
			}
		}
		if i = n.parent; i < 0 {
			return n.ns == nil || n.ns.Encoder == "" && m.only == nil
		}
	}
}

// told is what a reader knows of a block.
type told struct {
	tier     messages.Tier
	priority messages.Priority
	parent   uint64 // 0: none
}

// reader is the strictest reader of changes that there could be.
type reader map[uint64]told

func (r reader) take(c *Change) error {
	parent := c.Parent
	for _, b := range c.Blocks {
		had, known := r[b.Name]
		switch c.Kind {
		case Stored:
			if _, ok := r[parent]; parent != 0 && !ok || known || b.Name == 0 ||
				c.HasParent == (c.Parent == 0) {
				return fmt.Errorf("stored %d behind %d: parent known %v, known itself %v", b.Name, parent, ok,
					known)
			}
			r[b.Name] = told{c.Tier, b.Priority, parent}
			parent = b.Name
		case Removed:
			for name, x := range r {
				if x.parent == b.Name {
					return fmt.Errorf("removed %d before its child %d", b.Name, name)
				}
			}
			if !known || had.tier != c.Tier {
				return fmt.Errorf("removed %d from %s: known %v in %s", b.Name, c.Tier, known, had.tier)
			}
			delete(r, b.Name)
		case TierChanged:
			if !known || had.tier != c.OldTier || c.Tier == c.OldTier || had.parent != c.Parent {
				return fmt.Errorf("moved %d from %s to %s: known %v in %s", b.Name, c.OldTier, c.Tier, known,
					had.tier)
			}
			r[b.Name] = told{c.Tier, had.priority, had.parent}
		case PriorityChanged:
			if !known || had.priority != c.OldPriority || b.Priority == c.OldPriority {
				return fmt.Errorf("priority %d of %d: known %v with %d", b.Priority, b.Name, known,
					had.priority)
			}
			r[b.Name] = told{had.tier, b.Priority, had.parent}
		}
	}
	if c.Kind == Cleared && len(r) > 0 {
		return fmt.Errorf("cleared, but %d blocks are there", len(r))
	}
	return nil
}

func TestViewAgainstItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"store": m.store, "store again": m.store, "store more": m.store, "remove": m.remove,
			"update": m.update,
			"reset":  m.reset, "follow": m.follow, "follow again": m.follow, "lose": m.lose,
			"": func(t *rapid.T) { require.NoError(t, m.view.Check()) },
		})
	})
}

// With few names the set of published blocks depends on who came first, so there is
// no definition to compare with: Check and the strict reader are what is held.
func TestViewWithBlocksOfOneName(t *testing.T) {
	collisions := 0
	defer func() { require.Positive(t, collisions) }()
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		m.view.namer = fewNames{}
		defer func() { collisions += m.view.Collisions() }()
		follow := func(t *rapid.T) {
			changes, err := m.view.Follow(kvevents.EventBatch{Events: m.kept})
			require.NoError(t, err)
			m.kept = nil
			for i := range changes {
				require.NoError(t, m.reader.take(&changes[i]))
			}
			require.Len(t, m.reader, m.view.Len())
		}
		t.Repeat(map[string]func(*rapid.T){
			"store": m.store, "store again": m.store, "store more": m.store, "remove": m.remove,
			"follow": follow,
			"":       func(t *rapid.T) { require.NoError(t, m.view.Check()) },
		})
	})
}
