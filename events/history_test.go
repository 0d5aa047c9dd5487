package events

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// history holds a log against the list of everything that ever happened, with
// hashes spelled when it did: blocks go, ids are used again, events are lost, the
// log fails, readers come, go, take their time, and are absent.
type history struct {
	forest
	log    *Log
	limit  int
	all    []kvevents.Event          // with ids
	gap    int                       // events before it were lost for everybody
	next   map[kvevents.ReaderID]int // what each reader takes next
	taken  []kvevents.EventBatch     // and not looked at yet
	want   []kvevents.EventBatch     // what they should be
	order  []kvevents.ReaderID       // of next
	blind  bool                      // the log does not know the blocks
	absent int                       // readers that are further behind are absent
}

// append tells the log what has happened, and notes what readers should hear.
func (m *history) append(want ...kvevents.Event) {
	for _, e := range want {
		e.ID = uint64(len(m.all))
		m.all = append(m.all, e)
	}
	changed := len(m.changes.List) > 0
	m.forest.log(m.log)
	// A blind log can tell of nothing but a pool's creation.
	if m.blind && len(want) > 0 && want[0].Type != kvevents.EventCreated {
		m.gap = len(m.all)
	}
	newest := 0
	for _, id := range m.order {
		newest = max(newest, m.next[id])
	}
	if changed && !m.blind && len(m.order) > 0 && len(m.all)-newest > m.absent {
		m.blind, m.gap = true, len(m.all)
	}
}

// grow adds one to four blocks behind any block there is, and stores them.
func (m *history) grow(t *rapid.T) {
	e := entering{}
	if len(m.blocks) > 0 && rapid.Bool().Draw(t, "behind another") {
		if p := rapid.SampledFrom(m.blocks).Draw(t, "parent"); len(p.tokens) == testTokens {
			e.parent = p
		}
	}
	if e.parent == nil {
		e.ns.Salt = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "salt")
	}
	n := rapid.IntRange(1, 4*testTokens).Draw(t, "tokens")
	if n > testTokens { // whole blocks; fewer are a block that is stored in part
		n = n / testTokens * testTokens
		e.padding = rapid.IntRange(0, testTokens-1).Draw(t, "padding")
	}
	for range n {
		e.tokens = append(e.tokens, messages.Token(rapid.IntRange(0, 9).Draw(t, "token")))
	}
	if rapid.IntRange(0, 4).Draw(t, "covered") == 0 {
		e.covers = make([]messages.Cover, n)
		at := rapid.IntRange(0, n-1).Draw(t, "at")
		e.covers[at] = messages.Cover{Covered: true, Hash: [32]byte{7}, Position: at}
	}
	m.store(t, m.enter(e))
}

// again stores blocks that are there.
func (m *history) again(t *rapid.T) {
	if len(m.blocks) > 0 {
		m.store(t, m.chain(t))
	}
}

// chain draws blocks that follow one another.
func (m *history) chain(t *rapid.T) (chain []*block) {
	b := rapid.SampledFrom(m.blocks).Draw(t, "last")
	for n := rapid.IntRange(1, 5).Draw(t, "blocks"); n > 0 && b != nil; n-- {
		chain, b = append(chain, b), b.parent
	}
	slices.Reverse(chain)
	return chain
}

// store tells that pools hold those of a chain that they lacked, up to the first
// that they hold, in one or two changes of one event.
func (m *history) store(t *rapid.T, chain []*block) {
	var want []kvevents.Event
	for p := range 2 {
		blocks := chain
		if i := slices.IndexFunc(chain, func(b *block) bool { return b.pools[p] }); i >= 0 {
			blocks = chain[:i]
		}
		if len(blocks) == 0 {
			continue
		}
		w := blocks[0].storedEvent(messages.PoolID(p))
		cut := rapid.IntRange(1, len(blocks)).Draw(t, "cut")
		for i, b := range blocks {
			b.pools[p], b.tiers[p], b.priority = true, messages.Primary, 1
			s := b.stored(messages.Primary, 1)
			if i >= cut {
				s.Priority, b.priority = 2, 2
			}
			w.Blocks = append(w.Blocks, s)
		}
		m.tell(protocol.Change{Kind: protocol.BlocksStored, Pool: w.Pool, Priority: 1}, blocks[:cut]...)
		if cut < len(blocks) {
			m.tell(protocol.Change{Kind: protocol.BlocksStored, Pool: w.Pool, Priority: 2, Joined: true},
				blocks[cut:]...)
		}
		want = append(want, w)
	}
	m.append(want...)
}

// remove tells that a pool lacks blocks now, in either order; two chains may be
// of one event.
func (m *history) remove(t *rapid.T) {
	p := rapid.IntRange(0, 1).Draw(t, "pool")
	w := kvevents.Event{Type: kvevents.EventRemoved, Pool: messages.PoolID(p)}
	for range rapid.IntRange(1, 2).Draw(t, "chains") {
		if len(m.blocks) == 0 {
			break
		}
		chain := m.chain(t)
		if slices.ContainsFunc(chain, func(b *block) bool { return !b.pools[p] }) {
			continue
		}
		m.tell(protocol.Change{Kind: protocol.BlocksRemoved, Pool: w.Pool, Joined: w.Hashes != nil},
			chain...)
		for _, b := range chain {
			b.pools[p] = false
			w.Hashes = append(w.Hashes, b.name())
		}
	}
	if w.Hashes != nil {
		m.append(w)
	}
}

// update tells of a block's tier or priority.
func (m *history) update(t *rapid.T) {
	if len(m.blocks) == 0 {
		return
	}
	b := rapid.SampledFrom(m.blocks).Draw(t, "block")
	w := kvevents.Event{Type: kvevents.EventUpdated, Hash: b.name(), OldPriority: 1, NewPriority: 2}
	c := protocol.Change{Kind: protocol.PriorityChanged, OldPriority: 1, Priority: 2}
	if rapid.Bool().Draw(t, "tier") {
		w = kvevents.Event{Type: kvevents.EventUpdated, Hash: b.name(), TierChanged: true,
			OldTier: messages.Primary, NewTier: messages.Secondary}
		c = protocol.Change{Kind: protocol.TierChanged, Tier: messages.Secondary}
	}
	b.tiers[0], b.priority = c.Tier, c.Priority
	m.tell(c, b)
	m.append(w)
}

// vanish removes blocks that no pool holds and that nothing follows.
func (m *history) vanish(t *rapid.T) {
	for i := len(m.blocks) - 1; i >= 0; i-- {
		if b := m.blocks[i]; b.behind == 0 && !b.pools[0] && !b.pools[1] && rapid.Bool().Draw(t, "goes") {
			m.leave(b)
		}
	}
	m.append()
}

// created tells of a pool.
func (m *history) created(*rapid.T) {
	m.log.Created(1, PoolPages{2, 3})
	m.append(kvevents.Event{Type: kvevents.EventCreated, Pool: 1, PrimaryPages: 2, SecondaryPages: 3})
}

// first is the oldest event that can be told.
func (m *history) first() int { return max(m.gap, len(m.all)-m.limit) }

// reader draws an open reader.
func (m *history) reader(t *rapid.T) kvevents.ReaderID {
	return rapid.SampledFrom(m.order).Draw(t, "reader")
}

// take reads what the reader looks at later.
func (m *history) take(t *rapid.T) {
	if len(m.order) == 0 {
		return
	}
	id := m.reader(t)
	d, err := m.log.Take(id)
	require.NoError(t, err)
	from := max(m.next[id], m.first())
	w := kvevents.EventBatch{Engine: "e", Lost: uint64(from - m.next[id]),
		Events: append([]kvevents.Event{}, m.all[from:]...)}
	m.taken, m.want = append(m.taken, d), append(m.want, w)
	m.next[id] = len(m.all)
}

// snapshot reads all keys.
func (m *history) snapshot(t *rapid.T) {
	if len(m.order) == 0 {
		return
	}
	id := m.reader(t)
	d, err := m.log.Snapshot(id, m.keys())
	require.NoError(t, err)
	lost := max(m.next[id], m.first()) - m.next[id]
	w := kvevents.EventBatch{Engine: "e", Lost: uint64(lost), Snapshot: true, Next: uint64(len(m.all)),
		Events: []kvevents.Event{}}
	for _, b := range m.blocks {
		for p, held := range b.pools {
			if !held {
				continue
			}
			e := b.storedEvent(messages.PoolID(p))
			e.Blocks = []kvevents.StoredBlock{b.stored(b.tiers[p], b.priority)}
			w.Events = append(w.Events, e)
		}
	}
	m.taken, m.want = append(m.taken, d), append(m.want, w)
	m.next[id], m.blind = len(m.all), false
}

// ready looks at a batch, not always the oldest: nothing that came after it has changed it.
func (m *history) ready(t *rapid.T) {
	if len(m.taken) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.taken)-1).Draw(t, "batch")
	d := m.taken[i]
	if rapid.IntRange(0, 5).Draw(t, "dropped") > 0 {
		require.Equal(t, m.want[i], d)
	}
	m.taken, m.want = slices.Delete(m.taken, i, i+1), slices.Delete(m.want, i, i+1)
}

// fail loses what the log keeps and all that it knows of blocks.
func (m *history) fail(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "fails") > 0 {
		return
	}
	n := rapid.IntRange(0, 2).Draw(t, "events lost")
	m.log, m.blind = Resume(m.log, n), true
	m.log.absence = uint64(m.absent)
	for range n {
		m.append(kvevents.Event{})
	}
	m.gap = len(m.all)
}

// empty is a tree that has lost all it held.
func (m *history) empty(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "empties") > 0 {
		return
	}
	n := rapid.IntRange(1, 3).Draw(t, "events lost")
	m.log.TreeLost(0, n)
	m.forest = forest{}
	for range n {
		m.append(kvevents.Event{})
	}
	m.gap = len(m.all)
}

// open adds a reader.
func (m *history) open(t *rapid.T) {
	if len(m.order) > 3 {
		return
	}
	id, err := m.log.OpenReader()
	require.NoError(t, err)
	m.next[id], m.order = len(m.all), append(m.order, id)
}

// close removes one.
func (m *history) close(t *rapid.T) {
	if len(m.order) == 0 {
		return
	}
	id := m.reader(t)
	require.NoError(t, m.log.CloseReader(id))
	_, err := m.log.Take(id)
	require.ErrorIs(t, err, messages.ErrBadRequest)
	delete(m.next, id)
	m.order = slices.DeleteFunc(m.order, func(o kvevents.ReaderID) bool { return o == id })
}

func (m *history) check(t *rapid.T) {
	require.NoError(t, m.log.Check())
	require.EqualValues(t, len(m.all), m.log.Next())
}

func logAgainstHistory(t *rapid.T) {
	limit := rapid.IntRange(1, 9).Draw(t, "limit")
	m := &history{log: newLog(limit), limit: limit, next: map[kvevents.ReaderID]int{FirstReader: 0},
		order: []kvevents.ReaderID{FirstReader}}
	m.absent = rapid.IntRange(1, 50).Draw(t, "absent")
	m.log.absence = uint64(m.absent)
	t.Repeat(map[string]func(*rapid.T){
		"grow": m.grow, "grow more": m.grow, "again": m.again, "remove": m.remove,
		"remove more": m.remove, "update": m.update,
		"vanish": m.vanish, "vanish more": m.vanish, "created": m.created, "take": m.take,
		"snapshot": m.snapshot, "ready": m.ready,
		"ready too": m.ready, "fail": m.fail, "empty": m.empty, "open": m.open, "close": m.close,
		"": m.check,
	})
	m.nothingStays(t)
}

// nothingStays looks at what was taken, empties the forest and has everything read:
// then the log has no block left.
func (m *history) nothingStays(t *rapid.T) {
	for len(m.taken) > 0 {
		m.ready(t)
	}
	for i := len(m.blocks) - 1; i >= 0; i-- {
		m.leave(m.blocks[i])
	}
	m.append()
	for _, id := range m.order {
		take(t, m.log, id)
	}
	m.check(t)
	for _, r := range m.log.blocks.All() {
		require.Nil(t, r, "blocks are left over")
	}
	require.Empty(t, m.log.events)
}

func TestLogAgainstHistory(t *testing.T) { rapid.Check(t, logAgainstHistory) }

func FuzzLog(f *testing.F) { f.Fuzz(rapid.MakeFuzz(logAgainstHistory)) }
