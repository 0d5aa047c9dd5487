package cross_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// Whenever the join fails, between two rounds or after any of the requests that a
// round sends to the two sides: the call is answered, nothing is left on one side
// only, and sequences of other calls go on with their bytes.
func TestTheJoinMayFailInAnyRequest(t *testing.T) {
	ctx := context.Background()
	for kind, call := range map[string]func(*rig, *life) error{
		"admit": func(r *rig, _ *life) error {
			m := &messages.Admit{Requests: []messages.AdmitRequest{ask(run(300, 6), run(0, 6)), ask(run(100, 8), run(7, 6))}}
			err := r.Do(ctx, m)
			for i := range m.Results {
				if err == nil && m.Results[i].Err == nil {
					r.begin(m.Requests[i], m.Results[i])
				}
			}
			return err
		},
		"commit": func(r *rig, _ *life) error {
			l, err := r.admit(ask(run(400, 6), run(0, 6)))
			if err != nil {
				return err
			}
			_, err = r.Commit(ctx, []messages.CommitStep{{Sequence: l.id, Computed: 0}})
			return err
		},
		"fork": func(r *rig, l *life) error {
			m := &messages.Fork{Sequence: l.id, Count: 2}
			err := r.Do(ctx, m)
			if err == nil {
				require.NoError(t, m.Err)
				for _, id := range m.Sequences {
					fork := *l
					fork.id = id
					r.lives = append(r.lives, &fork)
				}
			}
			return err
		},
		"release": func(r *rig, l *life) error {
			results, err := r.Release(ctx, []messages.ReleaseStep{{Sequence: l.id, After: l.after}})
			if err == nil {
				require.NoError(t, results[0].Err)
			}
			return err
		},
		"lookup": func(r *rig, _ *life) error {
			_, err := r.Lookup(ctx, messages.Prefix{Encoder: run(100, 8), Tokens: run(0, 6)})
			return err
		},
		"reset": func(r *rig, _ *life) error { return r.Reset(ctx) },
		"check": func(r *rig, _ *life) error { return r.Check(ctx) },
	} {
		t.Run(kind, func(t *testing.T) {
			for parts := range 8 {
				breakOff(t, parts, call)
			}
		})
	}
}

func breakOff(t *testing.T, parts int, call func(*rig, *life) error) {
	ctx := context.Background()
	r := newRig(t, setup{pages: pages(24, 12)})
	bystander := r.start(ask(run(100, 8), run(0, 6)))
	l := r.start(ask(run(200, 7), run(50, 6)))
	require.NoError(t, r.InjectWithin("join", parts))
	if err := call(r, l); err != nil {
		require.ErrorIs(t, err, messages.ErrInternal, "after %d parts", parts)
	}
	for range 2 { // the fuse may not have burnt
		_ = r.Check(ctx)
	}
	require.NoError(t, r.Check(ctx), "after %d parts", parts)
	if _, gone := r.Tables(ctx, l.id); errors.Is(gone, messages.ErrUnknownSequence) {
		r.forget(l) // by a release that was answered, or aborted halfway
	}
	require.NoError(t, r.decode(bystander, 1))
	r.verify()
	stats, err := r.Stats(ctx)
	require.NoError(t, err)
	assert.LessOrEqual(t, stats.Restarts, int64(1))
	assert.Len(t, r.lives, stats.Sequences, "after %d parts", parts)
	r.end()
}

// Calls that wait when the join fails are served after the recovery.
func TestCallsThatWaitOutliveTheJoin(t *testing.T) {
	s := newSides()
	s.held = true
	s.Submit(&messages.Reset{}, nil)
	s.Submit(&messages.ReadStats{}, nil)
	s.Failed(messages.Refuse(messages.Internal, "join panicked"))
	require.Equal(t, []string{"decoder Reset", "decoder ReadSequences"}, s.take())
	require.NoError(t, s.aborted, "the record is the decoder's until it has answered what came after")
	s.held = false
	s.Answered(nil)
	assert.Equal(t, []string{
		"encoder ReadSequences", "abort *messages.Reset", "decoder Release", "encoder Release",
		"decoder ReadStats", "encoder ReadStats", "reply *messages.ReadStats",
	}, s.take())
}

// A side that fails during the recovery is asked again, but not for ever.
func TestASideMayFailDuringTheRecovery(t *testing.T) {
	s := newSides()
	s.fail["encoder ReadSequences"] = errors.New("no")
	s.Failed(messages.Refuse(messages.Internal, "join panicked"))
	assert.Equal(t, []string{
		"decoder ReadSequences", "encoder ReadSequences", "decoder ReadSequences", "encoder ReadSequences", "decoder Release", "encoder Release",
	}, s.take())
}
