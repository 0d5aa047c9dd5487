package offloader_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/windows"
)

func storeOffloader() *offloader.Offloader { return openStoreOffloader("priority_lru") }

func openStoreOffloader(policy string) *offloader.Offloader {
	return offloader.New(offloader.Config{MinPriority: 10, Pools: []offloader.PoolConfig{{
		Name: "wfullh1", HostPages: 3, PageBytes: 64, Policy: policy,
		Regions: []windows.Region{{Runs: 2, TokenBytes: 8}}, TokensPerBlock: 4,
	}}})
}

// offload gives host memory the contents of device pages, one for each priority.
func offload(o *offloader.Offloader, priorities ...messages.Priority) {
	m := &protocol.Move{Stamp: 1, Pools: make([]protocol.PoolMove, 1)}
	for i, p := range priorities {
		m.Pools[0].Victims = append(m.Pools[0].Victims, protocol.Victim{Page: messages.PageID(i),
			Block: protocol.BlockID(i), Priority: p, Use: protocol.Use(i)})
	}
	o.Begin(m)
	finish(o)
}

// finish submits what is planned: one ticket for each submission.
func finish(o *offloader.Offloader) (submitted []offloader.Copy) {
	for s := o.Next(); s != nil; s = o.Next() {
		submitted = append(submitted, s.Copies...)
		o.Submitted(messages.Ticket{Stream: messages.StreamID(s.Lane) + 1, Seq: 1}, -1)
	}
	o.Finish()
	return submitted
}

func TestSavesAreOrderedCopies(t *testing.T) {
	o := storeOffloader()
	list := []offloader.Save{{From: 5, To: 4}, {From: 2, To: 3}}
	o.PlanSaves(list)
	copies := finish(o)
	require.Len(t, copies, 2)
	assert.Equal(t, offloader.Slot{Tier: messages.Secondary, Page: 4}, copies[0].Dst)
	assert.NoError(t, o.Check())
	assert.Equal(t, 3, o.Counts(0).Free, "save pages are no host pages")
	assert.False(t, o.Written(0, 4).IsZero())
}

func TestRefusedSave(t *testing.T) {
	o := storeOffloader()
	list := []offloader.Save{{From: 5, To: 4}, {From: 2, To: 3}}
	o.PlanSaves(list)
	require.NotNil(t, o.Next())
	o.Submitted(messages.Ticket{}, 0)
	finish(o)
	assert.True(t, list[0].Failed)
	assert.False(t, list[1].Failed)
}

// Contents from a store take free pages, then what is no dearer than they are, and
// nothing of what they belong to.
func TestLoad(t *testing.T) {
	load := func(o *offloader.Offloader, n int, keep ...protocol.BlockID) (*protocol.LoadPages,
		[]offloader.Displaced) {
		m := &protocol.LoadPages{Keep: [][]protocol.BlockID{keep}, Bytes: [][][]byte{make([][]byte, n)},
			Priority: messages.DefaultPriority}
		displaced := o.Load(m)
		require.NoError(t, o.Check())
		return m, displaced
	}
	o := storeOffloader()
	offload(o, 20, 80)
	room := func(blocks ...protocol.BlockID) *protocol.HostRoom {
		m := &protocol.HostRoom{Blocks: [][]protocol.BlockID{blocks}, Priority: messages.DefaultPriority}
		o.Room(m)
		return m
	}
	assert.Equal(t, []int{2}, room().Pages, "one page is free and one of priority 20")
	assert.Equal(t, [][]bool{{true, false, false}}, room(0, 1, 7).Displaceable, "20, 80, not there")
	assert.Panics(t, func() { load(o, 3) })
	o = storeOffloader()
	offload(o, 20, 80)
	assert.Panics(t, func() { load(o, 2, 0) }, "block 0 belongs to the match")
	o = storeOffloader()
	offload(o, 20, 80)

	m, displaced := load(o, 2)
	require.Len(t, displaced, 1)
	assert.EqualValues(t, 0, displaced[0].Block)
	assert.EqualValues(t, 20, displaced[0].Priority)
	assert.Equal(t, []protocol.BlockID{0}, m.Displaced[0])

	attachThenDisplace(t, o, m)
}

// attachThenDisplace names the blocks of loaded pages, as the tree does. From then on they are host
// contents like others.
func attachThenDisplace(t *testing.T, o *offloader.Offloader, m *protocol.LoadPages) {
	attach := protocol.Effect{Kind: protocol.HostAttach, Pages: m.Pages[0],
		Blocks: []protocol.BlockID{6, 7}, Depth: 2, Priority: messages.DefaultPriority}
	o.Begin(&protocol.Move{Stamp: 2, Effects: []protocol.Effect{attach},
		Pools: make([]protocol.PoolMove, 1)})
	finish(o)
	require.NoError(t, o.Check())
	assert.Equal(t, inspect.TierPages{Total: 3, Cached: 3}, o.Counts(0))
	offload(o, 35)
	assert.NoError(t, o.Check())
}

// TestLoadWithForecast: of contents from a store nothing is known that predicts their next use.
// They are displaced in order all the same.
func TestLoadWithForecast(t *testing.T) {
	o := openStoreOffloader("forecast")
	offload(o, 20, 80)
	m := &protocol.LoadPages{Keep: make([][]protocol.BlockID, 1), Bytes: [][][]byte{make([][]byte, 2)},
		Priority: messages.DefaultPriority}
	o.Load(m)
	require.NoError(t, o.Check())
	attachThenDisplace(t, o, m)
}
