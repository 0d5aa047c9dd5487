package events

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// of gives an event to a pool.
func of(p messages.PoolID, e messages.Event) messages.Event {
	e.Pool = p
	return e
}

func types(batch messages.EventBatch) (list []messages.EventType) {
	for _, e := range batch.Events {
		list = append(list, e.Type)
	}
	return list
}

// Two trees tell one log; cleared speaks for both.
func TestTwoTreesTellOneLog(t *testing.T) {
	cleared := func(p messages.PoolID) messages.Event { return messages.Event{Type: messages.EventCleared, Pool: p} }
	removed := func(p messages.PoolID, names ...byte) messages.Event {
		e := messages.Event{Type: messages.EventRemoved, Pool: p}
		for _, n := range names {
			e.Hashes = append(e.Hashes, hash(n))
		}
		return e
	}
	const told, untold = messages.EventCleared, ""
	for name, c := range map[string]struct {
		events []messages.Event
		last   messages.EventType
	}{
		"both empty":           {[]messages.Event{cleared(0)}, told},
		"the other holds a":    {[]messages.Event{of(2, stored(1)), cleared(0)}, untold},
		"the first holds a":    {[]messages.Event{of(1, stored(1)), cleared(2)}, untold},
		"its own pools":        {[]messages.Event{of(0, stored(1)), of(1, stored(1)), removed(0, 1), removed(1, 1), cleared(0)}, told},
		"the other let go":     {[]messages.Event{of(3, stored(1)), cleared(0), removed(3, 1), cleared(2)}, told},
		"once for both":        {[]messages.Event{cleared(0), cleared(2)}, told},
		"twice, asked twice":   {[]messages.Event{cleared(0), cleared(2), cleared(0), cleared(2)}, told},
		"after something else": {[]messages.Event{cleared(0), of(0, stored(1)), removed(0, 1), cleared(2)}, told},
	} {
		t.Run(name, func(t *testing.T) {
			l, m := NewShared(100, 2), NewMirror()
			l.Append(wrap(c.events))
			batch := take(l)
			require.NoError(t, m.Follow(batch))
			kinds := types(batch)
			assert.Equal(t, c.last == told, len(kinds) > 0 && kinds[len(kinds)-1] == told)
			for _, e := range batch.Events {
				assert.False(t, e.Type == told && e.Pool != 0, "of no pool")
			}
			for i := range kinds[:max(0, len(kinds)-1)] {
				assert.False(t, kinds[i] == told && kinds[i+1] == told && name == "once for both")
			}
		})
	}
}

// A tree that has lost everything leaves a gap; afterwards the other one alone
// says whether anything is left.
func TestOneOfTwoTreesIsLost(t *testing.T) {
	l := NewShared(100, 1)
	l.Append(wrap([]messages.Event{of(0, stored(1)), of(1, stored(2))}))
	l.Lose(0, 1)
	l.Append(wrap([]messages.Event{{Type: messages.EventCleared, Pool: 0}}))
	assert.Empty(t, take(l).Events, "the second tree holds a block")
	l.Append(wrap([]messages.Event{{Type: messages.EventRemoved, Pool: 1, Hashes: []messages.Hash{hash(2)}}, {Type: messages.EventCleared, Pool: 1}}))
	assert.Equal(t, []messages.EventType{messages.EventRemoved, messages.EventCleared}, types(take(l)))

	l.Append(wrap([]messages.Event{of(0, stored(1)), of(1, stored(2))}))
	l = Resume(l, wrap([]messages.Event{{Type: messages.EventRemoved, Pool: 1, Hashes: []messages.Hash{hash(2)}}}))
	l.Append(wrap([]messages.Event{{Type: messages.EventCleared, Pool: 1}}))
	assert.Empty(t, take(l).Events, "a log that goes on knows what is held")
	l.Append(wrap([]messages.Event{{Type: messages.EventRemoved, Pool: 0, Hashes: []messages.Hash{hash(1)}}, {Type: messages.EventCleared, Pool: 0}}))
	assert.Len(t, take(l).Events, 2)
}

// Whether a tree has told of anything in between is known by pool.
func TestToldSince(t *testing.T) {
	l := NewShared(100, 1)
	l.Append(wrap([]messages.Event{of(0, stored(1)), of(1, stored(2))}))
	since := l.Next()
	assert.False(t, l.ToldSince(1, since))
	l.Append(wrap([]messages.Event{of(0, stored(3))}))
	assert.False(t, l.ToldSince(1, since))
	assert.True(t, l.ToldSince(0, since))
	l.Append(wrap([]messages.Event{of(1, stored(4))}))
	assert.True(t, l.ToldSince(1, since))
	since = l.Next()
	l.Lose(0, 1)
	assert.True(t, l.ToldSince(1, since), "nobody knows of which pool a lost event was")
	assert.True(t, l.ToldSince(0, since))
}
