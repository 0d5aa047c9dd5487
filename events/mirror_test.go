package events

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// stored makes an event that stores one block of the given tokens.
func stored(name byte, tokens ...messages.Token) kvevents.Event {
	return kvevents.Event{Type: kvevents.EventStored, Blocks: []kvevents.StoredBlock{
		{Hash: hash(name), Tokens: tokens, Priority: messages.DefaultPriority},
	}}
}

// cacheModel is a cache that does nothing but change: its keys are the truth, and
// the latest events, up to a limit, are kept for the mirror.
type cacheModel struct {
	keys   map[Key]Entry
	kept   []kvevents.Event
	limit  int
	next   uint64
	lost   uint64
	mirror *Mirror
	exact  bool // the mirror has followed everything
}

func newCacheModel(limit int) *cacheModel {
	return &cacheModel{keys: map[Key]Entry{}, limit: limit, mirror: NewMirror(), exact: true}
}

func (m *cacheModel) tell(e kvevents.Event) {
	e.ID = m.next
	m.next++
	if m.kept = append(m.kept, e); len(m.kept) > m.limit {
		m.kept, m.lost = m.kept[1:], m.lost+1
	}
	m.exact = false
}

// batch takes what is kept.
func (m *cacheModel) batch() kvevents.EventBatch {
	b := kvevents.EventBatch{Events: m.kept, Lost: m.lost}
	m.kept, m.lost = nil, 0
	return b
}

// known draws one of the keys; there may be none.
func (m *cacheModel) known(t *rapid.T) (Key, bool) {
	var keys []Key
	for k := range (&Mirror{keys: m.keys}).All() {
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return Key{}, false
	}
	return rapid.SampledFrom(keys).Draw(t, "key"), true
}

func (m *cacheModel) store(t *rapid.T) {
	e := kvevents.Event{Type: kvevents.EventStored,
		Pool: messages.PoolID(rapid.IntRange(0, 2).Draw(t, "pool"))}
	for _, name := range rapid.SliceOfNDistinct(rapid.Byte(), 1, 4, rapid.ID[byte]).Draw(t, "blocks") {
		k := Key{e.Pool, hash(name)}
		if _, known := m.keys[k]; known {
			continue
		}
		b := kvevents.StoredBlock{Hash: k.Hash, Tokens: make([]messages.Token, 1+name%4),
			Priority: messages.Priority(name % 101)}
		e.Blocks = append(e.Blocks, b)
		m.keys[k] = Entry{Priority: b.Priority, Tokens: len(b.Tokens)}
	}
	if len(e.Blocks) > 0 {
		m.tell(e)
	}
}

func (m *cacheModel) remove(t *rapid.T) {
	k, ok := m.known(t)
	if !ok {
		return
	}
	delete(m.keys, k)
	m.tell(kvevents.Event{Type: kvevents.EventRemoved, Pool: k.Pool, Hashes: []kvevents.Hash{k.Hash}})
}

func (m *cacheModel) move(t *rapid.T) {
	k, ok := m.known(t)
	if !ok {
		return
	}
	e := m.keys[k]
	old := e.Tier
	e.Tier = 1 - old
	m.keys[k] = e
	m.tell(kvevents.Event{Type: kvevents.EventUpdated, Pool: k.Pool, Hash: k.Hash, TierChanged: true,
		OldTier: old, NewTier: e.Tier})
}

func (m *cacheModel) reprioritize(t *rapid.T) {
	k, ok := m.known(t)
	if !ok {
		return
	}
	e := m.keys[k]
	old := e.Priority
	e.Priority = (old + 1 + messages.Priority(rapid.IntRange(0, 99).Draw(t, "more"))) % 101
	m.keys[k] = e
	m.tell(kvevents.Event{Type: kvevents.EventUpdated, Pool: k.Pool, Hash: k.Hash, OldPriority: old,
		NewPriority: e.Priority})
}

func (m *cacheModel) reset(t *rapid.T) {
	for k := range (&Mirror{keys: m.keys}).All() {
		m.tell(kvevents.Event{Type: kvevents.EventRemoved, Pool: k.Pool, Hashes: []kvevents.Hash{k.Hash}})
	}
	clear(m.keys)
	m.tell(kvevents.Event{Type: kvevents.EventCleared})
}

func (m *cacheModel) truth() []kvevents.Event {
	var out []kvevents.Event
	for k, e := range (&Mirror{keys: m.keys}).All() {
		out = append(out, kvevents.Event{Type: kvevents.EventStored, Pool: k.Pool,
			Blocks: []kvevents.StoredBlock{
				{Hash: k.Hash, Tokens: make([]messages.Token, e.Tokens), Tier: e.Tier, Priority: e.Priority},
			}})
	}
	return out
}

func (m *cacheModel) follow(t *rapid.T) {
	batch := m.batch()
	wasStale := m.mirror.Stale()
	err := m.mirror.Follow(batch)
	if wasStale || batch.Lost > 0 {
		require.ErrorIs(t, err, ErrStale)
		require.True(t, m.mirror.Stale())
		return
	}
	require.NoError(t, err)
	m.exact = true
}

func (m *cacheModel) snapshot(t *rapid.T) {
	m.batch() // is a part of the snapshot
	require.NoError(t,
		m.mirror.Follow(kvevents.EventBatch{Events: m.truth(), Snapshot: true, Next: m.next}))
	require.False(t, m.mirror.Stale())
	m.exact = true
}

func (m *cacheModel) check(t *rapid.T) {
	if !m.exact || m.mirror.Stale() {
		return
	}
	require.Equal(t, m.keys, m.mirror.keys)
	require.NoError(t,
		m.mirror.Compare(kvevents.EventBatch{Events: m.truth(), Snapshot: true, Next: m.next}))
}

func mirrorFollowsCache(t *rapid.T) {
	m := newCacheModel(rapid.IntRange(1, 40).Draw(t, "limit"))
	t.Repeat(map[string]func(*rapid.T){
		"store": m.store, "remove": m.remove, "move": m.move, "reprioritize": m.reprioritize,
		"reset":  m.reset,
		"follow": m.follow, "snapshot": m.snapshot, "": m.check,
	})
}

func TestMirrorFollowsACache(t *testing.T) { rapid.Check(t, mirrorFollowsCache) }

func FuzzMirror(f *testing.F) { f.Fuzz(rapid.MakeFuzz(mirrorFollowsCache)) }

// told makes a batch of the events with the ids that follow.
func told(m *Mirror, events ...kvevents.Event) kvevents.EventBatch {
	for i := range events {
		events[i].ID = m.next + uint64(i)
	}
	return kvevents.EventBatch{Events: events}
}

func TestMirrorSeesContradictions(t *testing.T) {
	a := hash(0xa)
	unknown := hash(0xb)
	secondary := stored(0xc)
	secondary.Blocks[0].Tier = messages.Secondary
	dear := stored(0xd)
	dear.Blocks[0].Priority = 101
	cases := []struct {
		name  string
		event kvevents.Event
		want  string
	}{
		{"stored twice", stored(0xa), "0a is stored already"},
		{"priority", dear, "priority 101 is above 100"},
		{"nothing stored", kvevents.Event{Type: kvevents.EventStored}, "it stores nothing"},
		{"nothing removed", kvevents.Event{Type: kvevents.EventRemoved}, "it removes nothing"},
		{"removed unknown", kvevents.Event{Type: kvevents.EventRemoved, Hashes: []kvevents.Hash{unknown}},
			"0b is not stored"},
		{"removed elsewhere", kvevents.Event{Type: kvevents.EventRemoved, Pool: 1,
			Hashes: []kvevents.Hash{a}}, "1 removed pool 1: 0a: but 0a is not stored"},
		{"removed twice", kvevents.Event{Type: kvevents.EventRemoved, Hashes: []kvevents.Hash{a, a}},
			"0a is not stored"},
		{"updated unknown", kvevents.Event{Type: kvevents.EventUpdated, Hash: unknown, TierChanged: true,
			NewTier: messages.Secondary}, "0b is not stored"},
		{"other tier", kvevents.Event{Type: kvevents.EventUpdated, Hash: a, TierChanged: true,
			OldTier: messages.Secondary}, "0a is in the primary tier"},
		{"same tier", kvevents.Event{Type: kvevents.EventUpdated, Hash: a, TierChanged: true},
			"0a is in the primary tier"},
		{"other priority", kvevents.Event{Type: kvevents.EventUpdated, Hash: a, OldPriority: 34,
			NewPriority: 36}, "0a has priority 35"},
		{"same priority", kvevents.Event{Type: kvevents.EventUpdated, Hash: a, OldPriority: 35,
			NewPriority: 35}, "0a has priority 35"},
		{"cleared too early", kvevents.Event{Type: kvevents.EventCleared}, "1 keys are stored"},
		{"no type", kvevents.Event{Type: "renamed"}, "no event is of this type"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := NewMirror()
			require.NoError(t, m.Follow(told(m, stored(0xa))))
			require.ErrorContains(t, m.Follow(told(m, c.event)), c.want)
			assert.False(t, m.Stale(), "a contradiction is no gap")
			assert.EqualValues(t, 2, m.next)
		})
	}
}

func TestMirrorReportsEveryContradiction(t *testing.T) {
	m := NewMirror()
	err := m.Follow(
		told(m, stored(1), stored(1), kvevents.Event{Type: kvevents.EventRemoved,
			Hashes: []kvevents.Hash{hash(2), hash(3)}}))
	assert.ErrorContains(t, err, "01 is stored already")
	assert.ErrorContains(t, err, "02 is not stored")
	assert.ErrorContains(t, err, "03 is not stored")
	assert.Equal(t, 1, m.Len())
}

func TestMirrorSeesGaps(t *testing.T) {
	for name, id := range map[string]uint64{"forwards": 3, "backwards": 0} {
		t.Run(name, func(t *testing.T) {
			m := NewMirror()
			require.NoError(t, m.Follow(told(m, stored(1), stored(2))))
			late := stored(4)
			late.ID = id
			require.ErrorIs(t, m.Follow(kvevents.EventBatch{Events: []kvevents.Event{late}}), ErrStale)
			assert.Equal(t, 2, m.Len(), "what comes after a gap is not applied")
			require.ErrorIs(t, m.Follow(told(m, stored(5))), ErrStale)
			assert.Contains(t, m.String(), "stale")

			require.NoError(t,
				m.Follow(kvevents.EventBatch{Snapshot: true, Events: []kvevents.Event{stored(9)}, Next: 12}))
			assert.Equal(t, 1, m.Len())
			require.NoError(t, m.Follow(told(m, stored(1))))
			assert.EqualValues(t, 13, m.next)
		})
	}
}

func TestMirrorOfASnapshotTakesHostMemory(t *testing.T) {
	m := NewMirror()
	e := stored(1)
	e.Blocks[0].Tier = messages.Secondary
	require.NoError(t, m.Follow(kvevents.EventBatch{Snapshot: true, Events: []kvevents.Event{e}}))
	got, ok := m.Find(Key{0, hash(1)})
	assert.True(t, ok)
	assert.Equal(t, Entry{Tier: messages.Secondary, Priority: 35}, got)

	bad := kvevents.EventBatch{Snapshot: true, Events: []kvevents.Event{{Type: kvevents.EventCleared},
		stored(1), stored(1)}}
	err := m.Follow(bad)
	assert.ErrorContains(t, err, "a snapshot with 0 cleared")
	assert.ErrorContains(t, err, "01 is stored already")
}

func TestMirrorKnowsPools(t *testing.T) {
	m := NewMirror()
	_, ok := m.Pool(1)
	assert.False(t, ok)
	require.NoError(t,
		m.Follow(
			told(m, kvevents.Event{Type: kvevents.EventCreated, Pool: 1, PrimaryPages: 8,
				SecondaryPages: 2})))
	pages, ok := m.Pool(1)
	assert.True(t, ok)
	assert.Equal(t, PoolPages{Primary: 8, Secondary: 2}, pages)
}

func TestMirrorCompareNamesEveryDifference(t *testing.T) {
	m := NewMirror()
	require.NoError(t, m.Follow(told(m, stored(1), stored(2, 5))))
	moved := stored(2, 5)
	moved.Blocks[0].Tier = messages.Secondary
	err := m.Compare(kvevents.EventBatch{Snapshot: true, Events: []kvevents.Event{moved, stored(3)},
		Next: 7})
	assert.ErrorContains(t, err, "the mirror is at event 2, the snapshot at 7")
	assert.ErrorContains(t, err,
		"the mirror has pool 0 02 primary 35 (1 tokens), the cache pool 0 02 secondary 35 (1 tokens)")
	assert.ErrorContains(t, err, "the mirror lacks pool 0 03")
	assert.ErrorContains(t, err, "the mirror has pool 0 01 primary 35 (0 tokens), the cache does not")
	assert.NoError(t,
		m.Compare(kvevents.EventBatch{Snapshot: true, Events: []kvevents.Event{stored(2, 5), stored(1)},
			Next: 2}))
}

func TestMirrorAllStopsWhenAsked(t *testing.T) {
	m := NewMirror()
	require.NoError(t, m.Follow(told(m, stored(2), stored(1))))
	for k := range m.All() {
		assert.Equal(t, hash(1), k.Hash)
		break
	}
}
