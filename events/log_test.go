package events

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

func ids(events []kvevents.Event) []uint64 {
	out := []uint64{}
	for _, e := range events {
		out = append(out, e.ID)
	}
	return out
}

func TestLogGivesConsecutiveIDs(t *testing.T) {
	l, f := newLog(10), &forest{}
	f.one(1)
	f.changes.List = append(f.changes.List, protocol.Change{Kind: protocol.EverythingForgot})
	f.log(l)
	f.log(l)
	f.one(2)
	f.log(l)
	batch := take(t, l, FirstReader)
	assert.Equal(t, []uint64{0, 1, 2}, ids(batch.Events))
	assert.Equal(t, kvevents.EventCleared, batch.Events[1].Type)
	assert.Zero(t, batch.Lost)
	assert.False(t, batch.Snapshot)
	assert.Equal(t, "e", batch.Engine)

	assert.Empty(t, take(t, l, FirstReader).Events)
	f.one(3)
	f.log(l)
	assert.Equal(t, []uint64{3}, ids(take(t, l, FirstReader).Events))
}

func TestLogDropsTheOldestAndCounts(t *testing.T) {
	l, f := newLog(3), &forest{}
	var blocks []*block
	for i := range messages.Token(8) {
		blocks = append(blocks, f.one(i))
		f.log(l)
	}
	batch := take(t, l, FirstReader)
	assert.Equal(t, []uint64{5, 6, 7}, ids(batch.Events))
	assert.Equal(t, blocks[5].name(), batch.Events[0].Blocks[0].Hash)
	assert.EqualValues(t, 5, batch.Lost)
	assert.Zero(t, take(t, l, FirstReader).Lost, "told once")

	for i := range messages.Token(4) {
		f.one(i)
	}
	f.log(l)
	batch = take(t, l, FirstReader)
	assert.Equal(t, []uint64{9, 10, 11}, ids(batch.Events))
	assert.EqualValues(t, 1, batch.Lost)
}

func TestLogOfZeroIsOff(t *testing.T) {
	l, f := newLog(0), &forest{}
	assert.False(t, l.Enabled())
	b := f.one(1)
	f.log(l)
	l.Created(0, PoolPages{1, 1})
	l.TreeLost(0, 3)
	assert.Equal(t, kvevents.EventBatch{Engine: "e", Events: []kvevents.Event{}},
		take(t, l, FirstReader))
	assert.Empty(t, snapshot(t, l, FirstReader, f.keys()).Events)
	assert.Zero(t, l.Next())
	assert.Zero(t, Resume(l, 2).Next())
	require.NoError(t, l.Check())
	assert.True(t, newLog(1).Enabled())
	assert.PanicsWithValue(t, "events: a log of -1 events", func() { newLog(-1) })
	b.pools[0] = false
}

// Of any number of events none is lost.
func TestALogOfAnyNumber(t *testing.T) {
	l, f := newLog(math.MaxInt), &forest{}
	for i := range messages.Token(100) {
		f.one(i)
	}
	f.log(l)
	require.NoError(t, l.Check())
	batch := take(t, l, FirstReader)
	assert.Len(t, batch.Events, 100)
	assert.Zero(t, batch.Lost)
}

// What cannot be told leaves a gap that a mirror sees.
func TestLostEventsLeaveAGap(t *testing.T) {
	for name, lose := range map[string]func(*Log) *Log{
		"tree lost": func(l *Log) *Log { l.TreeLost(0, 3); return l },
		"resumed":   func(l *Log) *Log { return Resume(l, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			l, m, f := newLog(10), NewMirror(), &forest{}
			f.one(1)
			f.log(l)
			require.NoError(t, m.Follow(take(t, l, FirstReader)))
			f.one(2)
			f.one(3)
			f.log(l)
			l, f = lose(l), &forest{}
			require.NoError(t, l.Check())
			f.one(4)
			f.log(l)
			batch := take(t, l, FirstReader)
			assert.GreaterOrEqual(t, batch.Lost, uint64(5), "two that were kept, three that no one knows")
			require.ErrorIs(t, m.Follow(batch), ErrStale)
			require.NoError(t, m.Follow(snapshot(t, l, FirstReader, f.keys())))
			assert.False(t, m.Stale())
			assert.Equal(t, 1, m.Len())
		})
	}
}

// Each reader takes all events at its own pace; a slow one loses some, others none.
func TestReadersLoseByThemselves(t *testing.T) {
	l, f := newLog(3), &forest{}
	fast, err := l.OpenReader()
	require.NoError(t, err)
	got := []uint64{}
	for i := range messages.Token(7) {
		f.one(i)
		f.log(l)
		batch := take(t, l, fast)
		assert.Zero(t, batch.Lost)
		got = append(got, ids(batch.Events)...)
		assert.LessOrEqual(t, len(l.events), 3, "the slow reader costs the buffer, no more")
	}
	assert.Equal(t, []uint64{0, 1, 2, 3, 4, 5, 6}, got)
	batch := take(t, l, FirstReader)
	assert.EqualValues(t, 4, batch.Lost)
	assert.Equal(t, []uint64{4, 5, 6}, ids(batch.Events))
	assert.Empty(t, l.events, "every reader has had everything")

	late, err := l.OpenReader()
	require.NoError(t, err)
	f.one(9)
	f.log(l)
	assert.Equal(t, []uint64{7}, ids(take(t, l, late).Events), "a reader begins where it was opened")
	require.NoError(t, l.CloseReader(late))
	require.NoError(t, l.CloseReader(fast))
	assert.Equal(t, []uint64{7}, ids(take(t, l, FirstReader).Events))
}

// A log whose readers have missed four buffers keeps nothing for them and knows no block: it
// counts. The first snapshot makes it a log again, for every reader that comes back.
func TestEventsOfAbsentReaders(t *testing.T) {
	assert.EqualValues(t, absentEvents, newLog(8).absence)
	assert.EqualValues(t, absentBuffers*absentEvents, newLog(absentEvents).absence)
	l, f := newLog(3), &forest{}
	l.absence = 12
	other, err := l.OpenReader()
	require.NoError(t, err)
	f.one(100)
	f.log(l)
	out, err := l.Take(other)
	require.NoError(t, err)
	for i := range messages.Token(12) {
		f.one(i)
		f.log(l)
	}
	require.False(t, l.blind, "twelve are not too many")
	f.one(12)
	f.log(l)
	require.True(t, l.blind)
	assert.Empty(t, l.events)
	assert.Empty(t, l.blocks)
	assert.EqualValues(t, 14, l.Next())
	assert.Equal(t, []uint64{0}, ids(out.Events), "a batch that is out stays")

	c := steady()
	events := uint64(c.Events())
	l.Append(c)
	if !invariants.Enabled {
		assert.Zero(t, testing.AllocsPerRun(9, func() { l.Append(c) }))
		events *= 11
	}
	batch := take(t, l, other)
	assert.Equal(t, 13+events, batch.Lost)
	assert.Empty(t, batch.Events)
	d, err := l.Snapshot(other, f.keys())
	require.NoError(t, err)
	assert.Len(t, d.Events, 14)
	f.one(50)
	f.log(l)
	assert.Equal(t, []uint64{14 + events}, ids(take(t, l, other).Events))
	batch = take(t, l, FirstReader)
	assert.Equal(t, 14+events, batch.Lost)
	assert.Len(t, batch.Events, 1)
	require.NoError(t, l.Check())
}

// A poll costs what it brings, however many events a reader that never asks has kept.
func TestATakeMakesRoomForItsOwnEvents(t *testing.T) {
	l, f := newLog(64), &forest{}
	fast, err := l.OpenReader()
	require.NoError(t, err)
	for i := range messages.Token(40) {
		f.one(i)
		f.log(l)
	}
	assert.Equal(t, 40, cap(take(t, l, fast).Events))
	assert.Zero(t, cap(take(t, l, fast).Events), "all are kept for the first reader still")
	b := f.one(41)
	f.log(l)
	batch := take(t, l, fast)
	assert.Equal(t, 1, cap(batch.Events))
	assert.Equal(t, b.name(), batch.Events[0].Blocks[0].Hash)
	assert.Len(t, take(t, l, FirstReader).Events, 41)
}

func TestReadersAreBounded(t *testing.T) {
	l := newLog(3)
	for range MaxReaders - 1 {
		_, err := l.OpenReader()
		require.NoError(t, err)
	}
	_, err := l.OpenReader()
	require.EqualError(t, err, "events have 64 readers already")
	require.EqualError(t, l.CloseReader(99), "reader 99 of events is not open")
	_, err = l.Snapshot(99)
	require.EqualError(t, err, "reader 99 of events is not open")
	require.NoError(t, l.CloseReader(5))
	id, err := l.OpenReader()
	require.NoError(t, err)
	assert.EqualValues(t, MaxReaders, id, "an id is never used again")
}

// Without a reader nothing is kept.
func TestALogWithoutReaders(t *testing.T) {
	l, f := newLog(3), &forest{}
	require.NoError(t, l.CloseReader(FirstReader))
	b := f.one(1)
	f.log(l)
	assert.Empty(t, l.events)
	f.leave(b)
	f.log(l)
	assert.Equal(t, []*record{nil}, l.blocks.All(), "not even its tokens")
	id, err := l.OpenReader()
	require.NoError(t, err)
	assert.Empty(t, take(t, l, id).Events)
}

// What a reader does with its batch is its own affair.
func TestABatchIsTheReaders(t *testing.T) {
	l, f := newLog(4), &forest{}
	f.one(10)
	f.log(l)
	first := snapshot(t, l, FirstReader, f.keys())
	first.Events[0].Blocks[0].Tokens[0]++
	again := snapshot(t, l, FirstReader, f.keys())
	assert.Equal(t, []messages.Token{10, 0, 0}, again.Events[0].Blocks[0].Tokens)
}

// A chain as long as a prompt that was generated block by block.
func TestNamesOfALongChain(t *testing.T) {
	const blocks = 100_000
	l, c := newLog(1), &protocol.Changes{}
	texts := slices.Repeat([][]byte{make([]byte, 4)}, blocks)
	c.Namespaces, c.Tokens = make([]messages.Namespace, 1), make([]messages.Token, blocks)
	for i := range protocol.BlockID(blocks) {
		c.Blocks = append(c.Blocks, i)
		c.List = append(c.List, protocol.Change{Kind: protocol.BlocksEntered, Last: i, Count: 1,
			Parent: i - 1, Tokens: 1})
	}
	c.List = append(c.List, protocol.Change{Kind: protocol.BlocksRemoved, Last: blocks - 1, Count: 1})
	l.Append(c)
	batch := take(t, l, FirstReader)
	assert.Equal(t, []kvevents.Hash{spell(messages.Namespace{}, texts...)}, batch.Events[0].Hashes)
	l.TreeLost(0, 1)
	assert.Empty(t, l.blocks)
}

// No two namespaces have a block of one name.
func TestNamesOfNamespaces(t *testing.T) {
	seen := map[kvevents.Hash]messages.Namespace{}
	l, f := newLog(100), &forest{}
	list := []messages.Namespace{
		{}, {HasLoRA: true}, {Salt: "a"}, {LoRA: "a", HasLoRA: true}, {Encoder: "a"},
		{Salt: "a", LoRA: "a", HasLoRA: true},
		{Salt: "aa"}, {Salt: "a", Encoder: "a"}, {Salt: "\x01a"}, {Encoder: "\x01a"},
		{Encoder: "a", LoRA: "a", HasLoRA: true},
	}
	for _, ns := range list {
		b := f.enter(entering{ns: ns, tokens: make([]messages.Token, testTokens)})
		f.tell(protocol.Change{Kind: protocol.BlocksStored}, b...)
	}
	f.log(l)
	for i, e := range take(t, l, FirstReader).Events {
		other, twice := seen[e.Blocks[0].Hash]
		assert.False(t, twice, "%+v and %+v", list[i], other)
		seen[e.Blocks[0].Hash] = list[i]
	}
}

func TestLogCheckSeesDamage(t *testing.T) {
	for want, harm := range map[string]func(*Log){
		"2 events are kept, the limit is 1":     func(l *Log) { l.limit = 1 },
		"2 events are kept of 1":                func(l *Log) { l.next = 1 },
		"event 5 is kept as 0":                  func(l *Log) { l.events[0].ID = 5 },
		"reader 0 is at event 3 of 2":           func(l *Log) { l.readers[0].next = 3 },
		"event 0 is kept, every reader is at 1": func(l *Log) { l.readers[0].next = 1 },
		"block 0 is known as another one": func(l *Log) {
			l.blocks.All()[0] = l.blocks.Of(1)
		},
		"block 1 follows one that is not in the tree": func(l *Log) { l.blocks.All()[0] = nil },
	} {
		l, f := newLog(3), &forest{}
		first := f.enter(entering{tokens: make([]messages.Token, testTokens)})
		second := f.enter(entering{parent: first[0], tokens: make([]messages.Token, testTokens)})
		f.tell(protocol.Change{Kind: protocol.BlocksStored}, second...)
		f.tell(protocol.Change{Kind: protocol.BlocksRemoved}, second...)
		f.log(l)
		require.NoError(t, l.Check())
		harm(l)
		assert.ErrorContains(t, l.Check(), want)
	}
}

// steady is a record of changes that leave the forest as it was, and that a full
// log takes with three allocations for each of its 16 blocks.
func steady() *protocol.Changes {
	f := &forest{}
	for i := range messages.Token(16) {
		b := f.one(i)
		f.tell(protocol.Change{Kind: protocol.BlocksRemoved}, b)
		f.leave(b)
	}
	return &f.changes
}

func TestLogSteadyAppendsAllocateBlocks(t *testing.T) {
	for limit, allocations := range map[int]float64{0: 0, 64: 48} {
		l, c := newLog(limit), steady()
		for range 64 {
			l.Append(c)
		}
		if !invariants.Enabled {
			assert.Equal(t, allocations, testing.AllocsPerRun(100, func() { l.Append(c) }))
		}
	}
}

func BenchmarkLogAppend(b *testing.B) {
	l, c := newLog(4096), steady()
	b.ReportAllocs()
	for b.Loop() {
		l.Append(c)
	}
}

func BenchmarkTake(b *testing.B) {
	const blocks, tokens = 6400, 16
	c := &protocol.Changes{Tokens: make([]messages.Token, blocks*tokens),
		Namespaces: make([]messages.Namespace, 1)}
	for i := range protocol.BlockID(blocks) {
		c.Blocks = append(c.Blocks, i)
	}
	c.List = []protocol.Change{
		{Kind: protocol.BlocksEntered, Last: blocks - 1, Count: blocks, Tokens: blocks * tokens,
			Parent: protocol.NoBlock},
		{Kind: protocol.BlocksStored, Last: blocks - 1, Count: blocks},
	}
	for b.Loop() {
		l := newLog(4)
		l.Append(c)
		_, _ = l.Take(FirstReader)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
}
