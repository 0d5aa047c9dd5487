package survival_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// recurrent is a setup of a model with recurrent layers, and few pages for states.
func recurrent() setup {
	return setup{
		states: true, pages: []windows.PageCounts{{Primary: 24, Secondary: 24},
			{Primary: 5, Secondary: 3}},
		change: func(c *windows.Config) { c.StateCheckpointInterval = tpb },
	}
}

// stateHost does things that copy states, with an engine whose actors fail.
type stateHost struct {
	*rig
	running []messages.SequenceID
	left    map[messages.SequenceID][]int // commits of the prompt that are to come
}

// try notes an error that a host must live with when an actor fails, and fails the
// test for any other.
func (h *stateHost) try(err error) bool {
	if err == nil {
		return true
	}
	alive := errors.Is(err, messages.ErrInternal) || errors.Is(err, messages.ErrSequenceLost) ||
		errors.Is(err, messages.ErrOutOfPages)
	require.True(h.t, alive, "%v", err)
	return false
}

// admit takes a prompt in, whose state is zeros or a copy.
func (h *stateHost) admit() {
	a, err := h.Admit(ctx, prompt(0, 3*tpb+1))
	if h.try(err) {
		h.running = append(h.running, a.Sequence)
		h.left[a.Sequence] = append(slices.Clone(a.Checkpoints), 3*tpb+1)
	}
}

// commit makes a checkpoint of each sequence, if its prompt is not yet computed.
func (h *stateHost) commit() {
	var steps []messages.CommitStep
	for _, id := range h.running {
		if left := h.left[id]; len(left) > 0 {
			steps = append(steps, messages.CommitStep{Sequence: id, Computed: left[0]})
		}
	}
	if len(steps) == 0 {
		return
	}
	results, err := h.Commit(ctx, steps)
	if !h.try(err) {
		return
	}
	for _, r := range results {
		if h.try(r.Err) {
			h.left[r.Sequence] = h.left[r.Sequence][1:]
		}
	}
}

// fork copies the working page of a sequence whose prompt is computed.
func (h *stateHost) fork() {
	for _, id := range h.running {
		if len(h.left[id]) == 0 {
			if forks, err := h.ForkOne(ctx, id, 1); h.try(err) {
				h.running = append(h.running, forks...)
			}
			return
		}
	}
}

// end releases the sequences; their working pages become checkpoints.
func (h *stateHost) end() {
	for len(h.running) > 0 {
		results, err := h.Release(ctx, []messages.ReleaseStep{{Sequence: h.running[0]}})
		if err == nil {
			err = results[0].Err
		}
		// A call that was not served may have released it all the same.
		if errors.Is(err, messages.ErrUnknownSequence) || h.try(err) ||
			errors.Is(err, messages.ErrSequenceLost) {
			h.running = h.running[1:]
		}
	}
	clear(h.left)
}

// other evicts and offloads checkpoints.
func (h *stateHost) other() {
	a, err := h.Admit(ctx, prompt(1000, 5*tpb))
	if h.try(err) {
		h.running = append(h.running, a.Sequence)
		h.left[a.Sequence] = append(slices.Clone(a.Checkpoints), 5*tpb)
	}
}

func (h *stateHost) prefetch() {
	_, err := h.Prefetch(ctx, messages.Prefix{Tokens: run(0, 3*tpb)})
	h.try(err)
}

// resize moves working pages and checkpoints.
func (h *stateHost) resize() {
	for _, pages := range [][]int{{18, 4}, {24, 5}} {
		_, err := h.Resize(ctx, pages)
		h.try(err)
	}
}

// Every actor fails twenty-five times at and within each request that copies states.
// Each call is answered, nothing stays held, and afterwards everything is as at first.
func TestActorsFailWhileStatesAreCopied(t *testing.T) {
	panics := 25
	if testing.Short() {
		panics = 3
	}
	for _, actor := range []string{"coordinator", "tree", "offloader", "pool:wfullh1", "pool:state"} {
		t.Run(actor, func(t *testing.T) {
			h := &stateHost{rig: newRig(t, recurrent(), actors.WithRestartLimit(10_000, time.Second)),
				left: map[messages.SequenceID][]int{}}
			actions := []func(){h.admit, h.commit, h.other, h.commit, h.commit, h.fork, h.prefetch, h.resize,
				h.end}
			for i := range 2 * panics * len(actions) { // one within a change may find none
				for n, action := range actions {
					if n == i%len(actions) {
						h.arm(actor, i/len(actions))
					}
					action()
				}
				h.end()
				require.NoError(t, h.Check(ctx), "round %d", i)
				require.Equal(t, []int{0, 0}, h.used(), "round %d", i)
			}
			stats, err := h.Stats(ctx)
			require.NoError(t, err)
			assert.Greater(t, stats.Restarts, int64(panics*len(actions)))
			assert.Positive(t, stats.Pools[1].Checkpoints)
			h.checkServing()
			h.close()
		})
	}
}

// arm makes an actor fail at its next message, or within its next change after so many
// of its parts.
func (h *stateHost) arm(actor string, i int) {
	if i%2 == 0 {
		require.NoError(h.t, h.points.Arm(actor))
		return
	}
	require.NoError(h.t, h.points.ArmWithin(actor, i/2%3))
}

// checkServing checks the engine when nothing fails: a sequence stores, and the next prompt finds
// its state. What is still armed fails in the one before.
func (h *stateHost) checkServing() {
	for range 3 {
		h.admit()
		h.commit()
		h.end()
	}
	require.NoError(h.t, h.Reset(ctx))
	for range 2 {
		h.admit()
		for range 4 {
			h.commit()
		}
		require.Empty(h.t, h.left[h.running[0]])
		h.end()
	}
	assert.Equal(h.t, 3*tpb, h.found(run(0, 3*tpb+1)))
}

// An engine that closes while sequences hold working pages counts them, and takes its
// memory back.
func TestCloseWithStates(t *testing.T) {
	r := newRig(t, recurrent())
	a := r.admit(prompt(0, 3*tpb+1))
	r.compute(a.Sequence, tpb)
	results, err := r.Fork(ctx, []messages.ForkStep{{Sequence: a.Sequence, Count: 1}})
	require.NoError(t, err)
	require.Error(t, results[0].Err, "the prompt is not computed")
	for _, n := range []int{2 * tpb, 3 * tpb, 3*tpb + 1} {
		r.compute(a.Sequence, n)
	}
	forks, err := r.ForkOne(ctx, a.Sequence, 1)
	require.NoError(t, err)
	require.Len(t, forks, 1)
	leaked, err := r.Close(ctx)
	require.NoError(t, err)
	assert.Equal(t, 4+2, leaked, "four blocks that both share, and a working page each")
	r.end()
}
