package mailbox

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drain takes a whole batch.
func (q *queue) drain() (batch []any) {
	for q.left() {
		batch = append(batch, q.take())
	}
	return batch
}

func TestQueueForgetsWhatItGave(t *testing.T) {
	var q queue
	for i := range 4 {
		q.push(i)
	}
	require.True(t, q.swap())
	assert.Equal(t, []any{0, 1, 2, 3}, q.drain())
	assert.Equal(t, make([]any, 4), q.out, "taken messages can be collected")
	assert.False(t, q.swap())
	assert.Zero(t, q.waiting())
}

func TestQueueShrinksAfterABurst(t *testing.T) {
	for name, batch := range map[string]int{"under load": 1, "at rest": 0} {
		var q queue
		for range 2 {
			for i := range 100 * keptMessages {
				q.push(i)
			}
			q.swap()
			q.drain()
		}
		require.Greater(t, cap(q.in), keptMessages, name)
		require.Greater(t, cap(q.out), keptMessages, name)
		for range 2 {
			for i := range batch {
				q.push(i)
			}
			q.swap()
			q.drain()
		}
		assert.LessOrEqual(t, cap(q.in), keptMessages, name)
		assert.LessOrEqual(t, cap(q.out), keptMessages, name)
	}
}

func TestQueueSteadyLoadAllocatesNothing(t *testing.T) {
	var q queue
	load := func() {
		for range keptMessages / 2 {
			q.push(nil)
		}
		q.swap()
		for q.left() {
			q.take()
		}
	}
	for range 4 {
		load()
	}
	assert.Zero(t, testing.AllocsPerRun(10, load))
}

func TestQueueAgainstASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var model []any
		next := 0
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 512).Draw(t, "n") {
					q.push(next)
					model = append(model, next)
					next++
				}
			},
			"take": func(t *rapid.T) {
				if !q.left() && !q.swap() {
					require.Empty(t, model)
					return
				}
				require.Equal(t, model[0], q.take())
				model = model[1:]
			},
			"": func(t *rapid.T) {
				q.seen = q.at
				require.Equal(t, len(model), q.waiting())
			},
		})
	})
}
