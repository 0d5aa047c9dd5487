package mailbox

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drain takes all there is.
func (q *queue) drain() (list []any) {
	for q.waiting() > 0 {
		list = append(list, q.take())
	}
	return list
}

func TestQueueForgetsWhatItGave(t *testing.T) {
	var q queue
	for i := range 4 {
		q.push(i)
	}
	assert.Equal(t, []any{0, 1, 2, 3}, q.drain())
	assert.Equal(t, make([]any, 4), q.list[:4], "taken messages can be collected")
	assert.Zero(t, q.waiting())
}

func TestQueueShrinksAfterABurst(t *testing.T) {
	var q queue
	for i := range 100 * keptMessages {
		q.push(i)
	}
	q.drain()
	assert.LessOrEqual(t, cap(q.list), keptMessages)
}

func TestQueueThatIsNeverEmptyDoesNotGrow(t *testing.T) {
	var q queue
	q.push(0)
	for i := range 100_000 {
		q.push(i + 1)
		require.Equal(t, i, q.take())
	}
	assert.LessOrEqual(t, cap(q.list), 8)
}

func TestQueueSteadyLoadAllocatesNothing(t *testing.T) {
	var q queue
	load := func() {
		for range keptMessages / 2 {
			q.push(nil)
		}
		for q.waiting() > 0 {
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
				for range rapid.IntRange(0, len(model)).Draw(t, "n") {
					require.Equal(t, model[0], q.take())
					model = model[1:]
				}
			},
			"": func(t *rapid.T) { require.Equal(t, len(model), q.waiting()) },
		})
	})
}
