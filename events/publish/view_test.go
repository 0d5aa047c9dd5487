package publish

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// engine feeds a view of one pool with blocks of two tokens.
type engine struct {
	t    *testing.T
	view *View
	next uint64
}

func newEngine(t *testing.T, c Config) *engine {
	if c.Pools == nil {
		c.Pools = []windows.Pool{{TokensPerBlock: 2}}
	}
	v, err := New(c)
	require.NoError(t, err)
	return &engine{t: t, view: v}
}

func name(n byte) kvevents.Hash { return kvevents.Hash{15: n} }

// stored stores the blocks one after the other, behind parent unless it is 0.
func stored(parent byte, names ...byte) kvevents.Event {
	e := kvevents.Event{Type: kvevents.EventStored}
	if parent != 0 {
		e.Parent, e.HasParent = name(parent), true
	}
	for _, n := range names {
		e.Blocks = append(e.Blocks, kvevents.StoredBlock{Hash: name(n),
			Tokens: []messages.Token{messages.Token(n), 0}, Priority: 35})
	}
	return e
}

func removed(names ...byte) kvevents.Event {
	e := kvevents.Event{Type: kvevents.EventRemoved}
	for _, n := range names {
		e.Hashes = append(e.Hashes, name(n))
	}
	return e
}

// follow passes events to the view and returns what it tells, in short.
func (e *engine) follow(list ...kvevents.Event) (out []string) {
	for i := range list {
		list[i].ID = e.next
		e.next++
	}
	changes, err := e.view.Follow(kvevents.EventBatch{Events: list})
	require.NoError(e.t, err)
	require.NoError(e.t, e.view.Check())
	return draw(changes)
}

func draw(changes []Change) (out []string) {
	for _, c := range changes {
		s := []string{"stored", "removed", "moved", "priority", "cleared", "created"}[c.Kind]
		for _, b := range c.Blocks {
			s += " " + string(rune('0'+b.Name))
		}
		if c.HasParent && c.Kind == Stored {
			s += " behind " + string(rune('0'+c.Parent))
		}
		out = append(out, s)
	}
	return out
}

// A parent that is evicted takes its published subtree along, and brings it back.
func TestASubtreeGoesAndComesWithItsParent(t *testing.T) {
	e := newEngine(t, Config{})
	assert.Equal(t, []string{"stored 1 2 3"}, e.follow(stored(0, 1, 2, 3)))
	assert.Equal(t, []string{"stored 4 behind 1"}, e.follow(stored(1, 4)))
	assert.Equal(t, []string{"removed 4 3 2 1"}, sorted(e.follow(removed(1))))
	assert.Equal(t, 3, e.view.Known()-1)
	assert.Equal(t, []string{"stored 1 2 3", "stored 4 behind 1"}, e.follow(stored(0, 1)))
	assert.Equal(t, 3, e.view.Match([]kvevents.Hash{name(1), name(2), name(3), name(9)}))
}

// sorted makes one order of the two in which siblings may go.
func sorted(got []string) []string {
	if len(got) == 1 && got[0] == "removed 3 4 2 1" {
		return []string{"removed 4 3 2 1"}
	}
	return got
}

// What comes and goes within one batch is never told.
func TestABatchIsToldByItsResult(t *testing.T) {
	e := newEngine(t, Config{})
	assert.Empty(t, e.follow(stored(0, 1, 2), removed(1, 2)))
	assert.Zero(t, e.view.Known())
	e.follow(stored(0, 1))
	assert.Empty(t, e.follow(removed(1), stored(0, 1)))
	assert.Equal(t, []string{"removed 1", "cleared", "stored 2"},
		e.follow(removed(1), kvevents.Event{Type: kvevents.EventCleared}, stored(0, 2)))
}

// A block whose parent was never stored waits for it.
func TestABlockBehindAnUnknownParentWaits(t *testing.T) {
	e := newEngine(t, Config{})
	assert.Empty(t, e.follow(stored(1, 2)))
	assert.Empty(t, e.follow(removed(2)))
	assert.Zero(t, e.view.Known())
	assert.Empty(t, e.follow(stored(1, 2)))
	assert.Equal(t, []string{"stored 1 2"}, e.follow(stored(0, 1)))
}

// windowAndFull are a pool with a window and two of full attention.
func windowAndFull() []windows.Pool {
	return []windows.Pool{
		{ID: 0, Window: 4, TokensPerBlock: 2},
		{ID: 1, TokensPerBlock: 2},
		{ID: 2, KVHeads: 2, TokensPerBlock: 2},
	}
}

func TestAMovedBlockIsOnHostIfOnePoolSaysSo(t *testing.T) {
	e := newEngine(t, Config{Pools: windowAndFull()})
	on := func(p messages.PoolID, ev kvevents.Event) kvevents.Event { ev.Pool = p; return ev }
	move := kvevents.Event{Type: kvevents.EventUpdated, Hash: name(1), TierChanged: true,
		NewTier: messages.Secondary}
	assert.Empty(t, e.follow(on(1, stored(0, 1)), on(0, stored(0, 1))), "pool 2 has not stored it")
	assert.Equal(t, []string{"stored 1"}, e.follow(on(2, stored(0, 1))))
	assert.Equal(t, []string{"moved 1"}, e.follow(on(1, move)))
	assert.Empty(t, e.follow(on(2, move)))
	assert.Equal(t, []string{"removed 1"}, e.follow(on(0, removed(1))), "the next token needs it")
	assert.Empty(t, e.follow(on(1, removed(1))))
}

func TestPoolsThatCount(t *testing.T) {
	for _, c := range []struct {
		text  string
		pools []windows.Pool
		want  []messages.PoolID
	}{
		{"full attention before windows", windowAndFull(), []messages.PoolID{1, 2}},
		{"windows only: the largest", []windows.Pool{{ID: 0, Window: 4, TokensPerBlock: 2},
			{ID: 1, Window: 8, TokensPerBlock: 2}, {ID: 2, Chunk: 8, TokensPerBlock: 2}},
			[]messages.PoolID{1, 2}},
		{"states do not count", []windows.Pool{{ID: 0, Kind: windows.KindState},
			{ID: 1, TokensPerBlock: 2}}, []messages.PoolID{1}},
		{"nor does cross attention", []windows.Pool{{ID: 0}, {ID: 1, Kind: windows.KindCross}},
			[]messages.PoolID{0}},
	} {
		v, err := New(Config{Pools: c.pools})
		require.NoError(t, err, c.text)
		assert.Equal(t, c.want, v.pools[:v.counted], c.text)
	}
	_, err := New(Config{Pools: []windows.Pool{{Kind: windows.KindState}}})
	require.ErrorIs(t, err, messages.ErrNotSupported)
	_, err = New(Config{Pools: windowAndFull(), Naming: "md5"})
	require.ErrorIs(t, err, messages.ErrConfigInvalid)
}

// The sizes of pools are told when they change, as the least of those that count.
func TestSizesAreTold(t *testing.T) {
	e := newEngine(t, Config{Pools: windowAndFull()})
	created := func(p messages.PoolID, n int) kvevents.Event {
		return kvevents.Event{Type: kvevents.EventCreated, Pool: p, PrimaryPages: n,
			SecondaryPages: 2 * n}
	}
	changes, err := e.view.Follow(kvevents.EventBatch{Events: []kvevents.Event{created(0, 1)}})
	require.NoError(t, err)
	assert.Empty(t, changes)
	e.next = 1
	e.follow(created(1, 8))
	changes, err = e.view.Follow(
		kvevents.EventBatch{Events: []kvevents.Event{{ID: 2, Type: kvevents.EventCreated, Pool: 2,
			PrimaryPages: 6, SecondaryPages: 20}}})
	require.NoError(t, err)
	assert.Equal(t, []Change{{Kind: Created, Pages: events.PoolPages{Primary: 6, Secondary: 16}}},
		changes)
}

// With a gap in the ids nothing is applied until a snapshot comes, and then only the
// difference is told.
func TestAGapNeedsASnapshot(t *testing.T) {
	e := newEngine(t, Config{})
	e.follow(stored(0, 1, 2))
	_, err := e.view.Follow(
		kvevents.EventBatch{Events: []kvevents.Event{{ID: 9, Type: kvevents.EventCleared}}})
	require.ErrorIs(t, err, events.ErrStale)
	assert.Equal(t, "2 of 2 blocks published, next event 1, stale", e.view.String())
	changes, err := e.view.Follow(kvevents.EventBatch{Snapshot: true, Next: 12,
		Events: []kvevents.Event{stored(0, 1), stored(0, 3)}})
	require.NoError(t, err)
	assert.Equal(t, []string{"removed 2", "stored 3"}, draw(changes))
	assert.Equal(t, []string{"stored 1", "stored 3"}, draw(e.view.All()))
	e.next = 12
	assert.Equal(t, []string{"removed 3"}, e.follow(removed(3)))
}
