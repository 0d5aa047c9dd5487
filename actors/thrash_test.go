package actors_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// thrashing is an engine of one pool with room for 8 blocks that serves prompts one by one.
type thrashing struct {
	*rig
	log bytes.Buffer
}

func newThrashing(t *testing.T) *thrashing {
	r := &thrashing{}
	r.rig = newRig(t, setup{pages: []windows.PageCounts{{Primary: 8}}},
		actors.WithLogger(slog.New(slog.NewTextHandler(&r.log, nil))))
	return r
}

// serve serves the prompt of a client: 2 blocks and a token.
func (r *thrashing) serve(client int) {
	s, err := r.start(run(1000*client, 2*tpb+1))
	require.NoError(r.t, err)
	require.NoError(r.t, r.release(s))
}

// counted are the tokens that thrash since the last call.
func (r *thrashing) counted(before *int64) int64 {
	stats, err := r.Stats(r.t.Context())
	require.NoError(r.t, err)
	defer func() { *before = stats.ThrashTokens }()
	return stats.ThrashTokens - *before
}

// Clients that take turns thrash if they are somewhat more than fit, and not if they all fit, if
// they never come again, or if they are so many that no cache of twice the size had them.
func TestThrash(t *testing.T) {
	r := newThrashing(t)
	defer r.close()
	var before int64
	first := 0 // of the clients that come now
	turns := func(clients, turns int) int64 {
		for i := range clients * turns {
			r.serve(first + i%clients)
		}
		return r.counted(&before)
	}
	assert.Zero(t, turns(2, 10), "all fits")
	first = 100
	assert.Zero(t, turns(100, 1), "nothing is wanted again")
	first = 300
	assert.EqualValues(t, 2*6*2*tpb, turns(6, 3), "6 clients in the room of 4, two times again")
	first = 400
	assert.Zero(t, turns(20, 3), "20 clients in the room of 4")
	first = 500
	turns(6, 1)
	for forgotten, forget := range map[string]func() error{
		"reset":   func() error { return r.Reset(t.Context()) },
		"running": func() error { return r.ResetRunning(t.Context()) },
		"weights": func() error { return r.SetWeights(t.Context(), "2") },
		"adapter": func() error { return r.invalidate(messages.Selector{LoRA: "a", HasLoRA: true}) },
	} {
		require.NoError(t, forget())
		assert.Zero(t, turns(6, 1), forgotten)
		assert.Positive(t, turns(6, 1), forgotten)
	}
	assert.NotContains(t, r.log.String(), "forecast")
	turns(6, 200)
	assert.Equal(t, 1, strings.Count(r.log.String(), "eviction_policy forecast"), r.log.String())
	stats, err := r.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, inspect.ForgetStats{Resets: 1, RunningResets: 1, Weights: 1, Invalidations: 1},
		stats.Forgets)
	assert.Equal(t, "2", stats.Weights)
}

// invalidate forgets what a selector names.
func (r *thrashing) invalidate(s messages.Selector) error {
	_, err := r.Invalidate(r.t.Context(), s)
	return err
}
