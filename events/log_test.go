package events

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// hash makes a short name for a block.
func hash(b ...byte) (h messages.Hash) {
	copy(h[:], b)
	return h
}

// stored makes an event that stores one block of the given tokens.
func stored(name byte, tokens ...messages.Token) messages.Event {
	return messages.Event{Type: messages.EventStored, Blocks: []messages.StoredBlock{
		{Hash: hash(name), Tokens: tokens, Priority: messages.DefaultPriority},
	}}
}

// wrap makes of events, whose hashes are known, what the log takes.
func wrap(list []messages.Event) []protocol.Event { return protocol.WrapEvents(list) }

// take reads a log like a reader.
func take(l *Log) messages.EventBatch {
	batch, _ := Name(l.Take())
	return batch
}

// snapshot starts a reader anew from keys.
func snapshot(l *Log, keys []messages.Event) messages.EventBatch {
	batch, _ := Name(l.Snapshot(wrap(keys)))
	return batch
}

func ids(events []messages.Event) []uint64 {
	out := []uint64{}
	for _, e := range events {
		out = append(out, e.ID)
	}
	return out
}

func TestLogGivesConsecutiveIDs(t *testing.T) {
	l := New(10)
	l.Append(wrap([]messages.Event{stored(1), {ID: 99, Type: messages.EventCleared}}))
	l.Append(nil)
	l.Append(wrap([]messages.Event{stored(2)}))
	batch := take(l)
	assert.Equal(t, []uint64{0, 1, 2}, ids(batch.Events))
	assert.Equal(t, messages.EventCleared, batch.Events[1].Type)
	assert.Zero(t, batch.Lost)
	assert.False(t, batch.Snapshot)

	assert.Empty(t, take(l).Events)
	l.Append(wrap([]messages.Event{stored(3)}))
	assert.Equal(t, []uint64{3}, ids(take(l).Events))
}

func TestLogDropsTheOldestAndCounts(t *testing.T) {
	l := New(3)
	for i := range byte(8) {
		l.Append(wrap([]messages.Event{stored(i)}))
	}
	batch := take(l)
	assert.Equal(t, []uint64{5, 6, 7}, ids(batch.Events))
	assert.Equal(t, hash(5), batch.Events[0].Blocks[0].Hash)
	assert.EqualValues(t, 5, batch.Lost)
	assert.Zero(t, take(l).Lost, "told once")

	l.Append(wrap(make([]messages.Event, 0)))
	l.Append(wrap([]messages.Event{stored(0), stored(1), stored(2), stored(3)}))
	batch = take(l)
	assert.Equal(t, []uint64{9, 10, 11}, ids(batch.Events))
	assert.EqualValues(t, 1, batch.Lost)
}

func TestLogSnapshotSupersedesWhatWasKept(t *testing.T) {
	l := New(2)
	l.Append(wrap([]messages.Event{stored(1), stored(2), stored(3)}))
	keys := []messages.Event{stored(3), stored(2), stored(1)}
	batch := snapshot(l, keys)
	assert.True(t, batch.Snapshot)
	assert.Equal(t, keys, batch.Events)
	assert.EqualValues(t, 3, batch.Next)
	assert.EqualValues(t, 1, batch.Lost)

	batch = take(l)
	assert.Empty(t, batch.Events)
	assert.Zero(t, batch.Lost)
	l.Append(wrap([]messages.Event{stored(4)}))
	assert.Equal(t, []uint64{3}, ids(take(l).Events))
}

func TestLogOfZeroIsOff(t *testing.T) {
	l := New(0)
	assert.False(t, l.Enabled())
	l.Append(wrap([]messages.Event{stored(1)}))
	assert.Equal(t, messages.EventBatch{Events: []messages.Event{}}, take(l))
	assert.Zero(t, l.Next())
	require.NoError(t, l.Check())
	assert.True(t, New(1).Enabled())
	assert.PanicsWithValue(t, "events: a log of -1 events", func() { New(-1) })
}

// Of any number of events none is lost.
func TestALogOfAnyNumber(t *testing.T) {
	l := New(math.MaxInt)
	l.Append(tell(messages.EventStored, born(1)))
	require.Empty(t, l.Settle())
	require.NoError(t, l.Check())
	batch := take(l)
	assert.Len(t, batch.Events, 1)
	assert.Zero(t, batch.Lost)
}

func TestABatchIsTheReaders(t *testing.T) {
	l := New(2)
	appended := []messages.Event{stored(1, 10, 20), stored(2)}
	l.Append(wrap(appended))
	appended[0] = messages.Event{Type: messages.EventCleared}
	taken := take(l).Events
	assert.Equal(t, []messages.Token{10, 20}, taken[0].Blocks[0].Tokens, "the slice of an append may be used again")

	l.Append(wrap([]messages.Event{stored(7), stored(8), stored(9)}))
	assert.Equal(t, hash(1), taken[0].Blocks[0].Hash, "a taken batch stays as it is")
	assert.Equal(t, hash(2), taken[1].Blocks[0].Hash)
}

func TestLogSteadyAppendsAllocateNothing(t *testing.T) {
	l := New(64)
	batch := []messages.Event{stored(1), stored(2), stored(3)}
	for range 64 {
		l.Append(wrap(batch))
	}
	if !invariants {
		assert.Zero(t, testing.AllocsPerRun(100, func() { l.Append(wrap(batch)) }))
	}
}

func TestLogWithoutEventsAllocatesNothing(t *testing.T) {
	l := New(0)
	batch := []messages.Event{stored(1)}
	assert.Zero(t, testing.AllocsPerRun(100, func() { l.Append(wrap(batch)) }))
}

func TestLogCheckSeesDamage(t *testing.T) {
	damage := map[string]func(*Log){
		"a ring of 3 slots, the limit is 2":         func(l *Log) { l.limit = 2 },
		"2 kept and 3 lost of 2 events in 3 slots":  func(l *Log) { l.lost = 3 },
		"4 kept and 0 lost of 2 events in 3 slots":  func(l *Log) { l.kept = 4 },
		"5 stored pool 0: 02 primary 35 (0 tokens)": func(l *Log) { l.ring[1].ID = 5 },
		"where event 2 should be":                   func(l *Log) { l.kept, l.next = 3, 3 },
		"in a free slot":                            func(l *Log) { l.ring[2].ID = 5 },
	}
	for want, hurt := range damage {
		l := New(3)
		l.Append(wrap([]messages.Event{stored(1), stored(2)}))
		require.Len(t, l.ring, 2)
		l.ring = append(l.ring, protocol.Event{})
		require.NoError(t, l.Check())
		hurt(l)
		assert.ErrorContains(t, l.Check(), want)
	}
}

// logMachine holds a log against the list of everything that ever happened.
type logMachine struct {
	log   *Log
	limit int
	all   []messages.Event // with ids
	taken int              // events before it were taken, or are in a snapshot
}

func (m *logMachine) append(t *rapid.T) {
	n := rapid.IntRange(0, 2*m.limit+1).Draw(t, "events")
	batch := make([]messages.Event, n)
	for i := range batch {
		batch[i] = stored(byte(len(m.all)), messages.Token(len(m.all)))
		told := batch[i]
		told.ID = uint64(len(m.all))
		m.all = append(m.all, told)
	}
	m.log.Append(wrap(batch))
}

func (m *logMachine) take(t *rapid.T) {
	from := max(m.taken, len(m.all)-m.limit)
	batch := take(m.log)
	require.EqualValues(t, from-m.taken, batch.Lost)
	require.Len(t, batch.Events, len(m.all)-from)
	for i, e := range batch.Events {
		require.Equal(t, m.all[from+i], e)
	}
	m.taken = len(m.all)
}

func (m *logMachine) snapshot(t *rapid.T) {
	batch := snapshot(m.log, nil)
	require.EqualValues(t, len(m.all), batch.Next)
	require.EqualValues(t, max(m.taken, len(m.all)-m.limit)-m.taken, batch.Lost)
	m.taken = len(m.all)
}

func (m *logMachine) check(t *rapid.T) {
	require.NoError(t, m.log.Check())
	require.EqualValues(t, len(m.all), m.log.Next())
}

func logAgainstHistory(t *rapid.T) {
	limit := rapid.IntRange(1, 9).Draw(t, "limit")
	m := &logMachine{log: New(limit), limit: limit}
	t.Repeat(map[string]func(*rapid.T){
		"append": m.append, "take": m.take, "snapshot": m.snapshot, "": m.check,
	})
}

func TestLogAgainstHistory(t *testing.T) { rapid.Check(t, logAgainstHistory) }

func FuzzLog(f *testing.F) { f.Fuzz(rapid.MakeFuzz(logAgainstHistory)) }

func BenchmarkLogAppend(b *testing.B) {
	l := New(4096)
	batch := make([]protocol.Event, 16)
	for i := range batch {
		batch[i].Event = stored(byte(i), 1, 2, 3, 4)
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Append(batch)
	}
}
