package actors

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// publishMany publishes until the log has put off so much that a task is to apply it, and
// returns how many events that are.
func (d *eventsRig) publishMany() (published int) {
	for len(d.tasks) == 0 {
		d.publish()
		published++
		require.Less(d.t, published, applyAt)
	}
	return published
}

// publishWrong tells of a stored block that is not in the tree: the log fails over it.
func (d *eventsRig) publishWrong() {
	d.box.PostUserMessage(&published{changes: &protocol.Changes{List: []protocol.Change{{Kind: protocol.BlocksStored, Last: 1 << 20, Count: 1}}}})
}

// Changes are applied by a task, one for all of them, and not by the call that made them.
func TestATaskAppliesChanges(t *testing.T) {
	d, _ := newEventsRig(t, 1<<16)
	n := d.publishMany()
	assert.GreaterOrEqual(t, d.shell.core.Pending(), applyAt)
	d.publish()
	require.Len(t, d.tasks, 1)
	d.tasks[0]()
	assert.Zero(t, d.shell.core.Pending())
	d.tasks = nil
	assert.Equal(t, n, d.publishMany(), "the next ones need a task again")

	read := &kvevents.ReadEvents{}
	d.read(read)
	d.tasks[len(d.tasks)-1]()
	require.Len(t, read.Batch.Events, 2*n+1)
	assert.Zero(t, read.Batch.Lost)
	for i, e := range read.Batch.Events {
		require.EqualValues(t, i, e.ID)
		require.Equal(t, []messages.Token{1, messages.Token(i + 1)}, e.Blocks[0].Tokens)
	}
	d.tasks[0]() // the reader was first
}

// A read has all that was published before it, whether a task has applied it or not.
func TestAReadAppliesChanges(t *testing.T) {
	d, _ := newEventsRig(t, 4)
	for range 10 {
		d.publish()
	}
	open := &kvevents.OpenReader{}
	d.read(open)
	d.publish()
	first, second := &kvevents.ReadEvents{}, &kvevents.ReadEvents{Reader: open.Reader}
	d.read(first)
	d.read(second)
	d.tasks[0]()
	d.tasks[1]()
	assert.EqualValues(t, 7, first.Batch.Lost)
	require.Len(t, first.Batch.Events, 4)
	require.Len(t, second.Batch.Events, 1)
	assert.EqualValues(t, 10, second.Batch.Events[0].ID)
	assert.Zero(t, second.Batch.Lost)
}

// A log that fails over what it has put off loses that: readers are told how much, and are
// served.
func TestAFailureToApply(t *testing.T) {
	for _, how := range []string{"task", "read", "open", "read behind another"} {
		t.Run(how, func(t *testing.T) {
			d, panics := newEventsRig(t, 1<<16)
			d.publish()
			lost, answers := 2, 0
			switch how {
			case "task":
				d.publishWrong()
				lost += d.publishMany()
				d.tasks[0]()
				d.tasks = nil
			case "read", "open":
				d.publishWrong()
				var failing messages.Request = &kvevents.ReadEvents{}
				if how == "open" {
					failing = &kvevents.OpenReader{}
				}
				d.read(failing)
				require.Len(t, d.answers, 1)
				require.ErrorIs(t, d.answers[0], messages.ErrInternal)
				answers = 1
			default:
				d.read(&kvevents.ReadEvents{})
				d.publishWrong()
				d.read(&kvevents.ReadEvents{})
				d.tasks[0]()
				require.Equal(t, []error{nil, nil}, d.answers, "it is served after the restart")
				d.tasks, answers, lost = nil, 2, 0
			}
			assert.Equal(t, 1, *panics)
			d.publish()
			after := &kvevents.ReadEvents{}
			d.read(after)
			require.Len(t, d.answers, answers+1)
			require.NoError(t, d.answers[answers], "nothing to hash")
			assert.Empty(t, after.Batch.Events, "a log that knows no block")
			assert.EqualValues(t, lost+1, after.Batch.Lost)
		})
	}
}
