package events

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// Events that nobody can tell leave a gap that a mirror sees.
func TestLostEventsLeaveAGap(t *testing.T) {
	for name, lose := range map[string]func(*Log) *Log{
		"lost":    func(l *Log) *Log { l.Lose(0, 3); return l },
		"resumed": func(l *Log) *Log { return Resume(l, wrap([]messages.Event{stored(5), stored(6), stored(7)})) },
	} {
		t.Run(name, func(t *testing.T) {
			l, m := New(10), NewMirror()
			l.Append(wrap([]messages.Event{stored(1)}))
			require.NoError(t, m.Follow(take(l)))
			l.Append(wrap([]messages.Event{stored(2), stored(3)}))
			l = lose(l)
			require.NoError(t, l.Check())
			l.Append(wrap([]messages.Event{stored(4)}))
			batch := take(l)
			assert.EqualValues(t, 5, batch.Lost, "two that were kept, three that nobody knows")
			assert.EqualValues(t, 6, batch.Events[0].ID)
			require.ErrorIs(t, m.Follow(batch), ErrStale)
			require.NoError(t, m.Follow(snapshot(l, []messages.Event{stored(4)})))
			assert.False(t, m.Stale())
		})
	}
	off := New(0)
	off.Lose(0, 3)
	assert.Zero(t, Resume(off, nil).Next())
}
