package actors

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// publishWrong tells of a stored block that is not in the tree: the log fails over it.
func (d *eventsRig) publishWrong() {
	d.box.PostUserMessage(&published{changes: &protocol.Changes{List: []protocol.Change{{Kind: protocol.BlocksStored, Last: 1 << 20, Count: 1}}}})
}

// Each reader gets what was published since it was opened.
func TestAReadHasWhatWasPublished(t *testing.T) {
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

// A log that fails over changes loses them and what it has kept: readers are told how much, and
// are served, also those that waited.
func TestALogThatFailsOverChanges(t *testing.T) {
	for name, waits := range map[string]bool{"no reader waits": false, "a reader waits behind another": true} {
		t.Run(name, func(t *testing.T) {
			d, panics := newEventsRig(t, 1<<16)
			d.publish()
			lost, answers := 2, 0
			if waits {
				d.read(&kvevents.ReadEvents{})
			}
			d.publishWrong()
			if waits {
				d.read(&kvevents.ReadEvents{})
				d.tasks[0]()
				require.Equal(t, []error{nil, nil}, d.answers)
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
