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
	d.box.PostUserMessage(
		&published{changes: &protocol.Changes{List: []protocol.Change{{Kind: protocol.BlocksStored,
			Last: 1 << 20, Count: 1}}}})
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
	assert.EqualValues(t, 7, first.Batch.Lost)
	require.Len(t, first.Batch.Events, 4)
	require.Len(t, second.Batch.Events, 1)
	assert.EqualValues(t, 10, second.Batch.Events[0].ID)
	assert.Zero(t, second.Batch.Lost)
}

// A log that fails over changes loses them and what it has kept: readers are told how much.
func TestALogThatFailsOverChanges(t *testing.T) {
	d, panics := newEventsRig(t, 1<<16)
	d.publish()
	d.publishWrong()
	assert.Equal(t, 1, *panics)
	d.publish()
	after := &kvevents.ReadEvents{}
	d.read(after)
	require.Equal(t, []error{nil}, d.answers)
	assert.Empty(t, after.Batch.Events, "a log that knows no block")
	assert.EqualValues(t, 3, after.Batch.Lost)
}
