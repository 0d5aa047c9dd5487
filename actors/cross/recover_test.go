package cross_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// Whenever the join fails, between two rounds or before any of the requests that a
// round sends to the two sides: the call is served, once, nothing is left on one
// side only, and all sequences go on with their bytes.
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
		"append": func(r *rig, l *life) error { return r.decode(l, 3) },
		"rewind": func(r *rig, l *life) error {
			if err := r.Rewind(ctx, l.id, 1); err != nil {
				return err
			}
			l.chains = l.chains[:len(l.chains)-1]
			l.computed = min(l.computed, len(l.chains))
			return nil
		},
		"invalidate": func(r *rig, _ *life) error {
			_, err := r.Invalidate(ctx, messages.Selector{Session: "s"})
			return err
		},
		"events": func(r *rig, _ *life) error {
			_, err := r.Events(ctx)
			return err
		},
		"snapshot": func(r *rig, _ *life) error {
			_, err := r.Snapshot(ctx)
			return err
		},
		"contents": func(r *rig, _ *life) error {
			_, err := r.Contents(ctx)
			return err
		},
		"rebalance": func(r *rig, _ *life) error {
			_, err := r.Rebalance(ctx, nil)
			return err
		},
		"pin": func(r *rig, _ *life) error {
			pin, err := r.Pin(ctx, messages.Prefix{Encoder: run(100, 8)})
			if err != nil {
				return err
			}
			return r.Unpin(ctx, pin.Pin)
		},
		"prefetch": func(r *rig, _ *life) error {
			_, err := r.Prefetch(ctx, messages.Prefix{Encoder: run(100, 8)})
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
			for parts := range 9 {
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
	require.NoError(t, r.decode(l, 7))
	if parts == 0 {
		require.NoError(t, r.Inject("join"))
	} else {
		require.NoError(t, r.InjectWithin("join", parts-1))
	}
	require.NoError(t, call(r, l), "after %d parts", parts)
	for range 2 { // the fuse may not have burnt
		_ = r.Check(ctx)
	}
	require.NoError(t, r.Check(ctx), "after %d parts", parts)
	if _, gone := r.Tables(ctx, l.id); errors.Is(gone, messages.ErrUnknownSequence) {
		r.forget(l) // by the release
	} else {
		require.NoError(t, r.decode(l, 8))
	}
	require.NoError(t, r.decode(bystander, 1))
	r.verify()
	stats, err := r.Stats(ctx)
	require.NoError(t, err)
	assert.LessOrEqual(t, stats.Restarts, int64(1))
	assert.Len(t, r.lives, stats.Sequences, "after %d parts", parts)
	r.end()
}

// A join that fails between two stages goes on where it was: an answer that came
// meanwhile counts, a request that was not sent is sent, a complete answer is given.
func TestAJoinThatIsWholeGoesOn(t *testing.T) {
	s := newSides()
	s.held = true
	s.Submit(&messages.Reset{}, nil)
	s.Submit(&messages.ReadStats{}, nil)
	require.False(t, s.Broken())
	s.Hold(nil)
	s.held = false
	s.Failed(messages.ErrInternal)
	served := []string{
		"decoder Reset", "encoder Reset", "reply *messages.Reset", "decoder ReadStats", "encoder ReadStats", "reply *messages.ReadStats",
	}
	assert.Equal(t, served, s.take())

	for point, want := range map[string]string{"begin": "", "decoder": "decoder Reset", "encoder": "encoder Reset", "reply": "reply *messages.Reset"} {
		s := newSides()
		s.panics = point
		assert.Panics(t, func() { s.Submit(&messages.Reset{}, nil) }, point)
		require.False(t, s.Broken())
		s.take()
		s.Failed(messages.ErrInternal)
		log := s.take()
		assert.NotContains(t, log, "abort *messages.Reset", point)
		assert.Equal(t, "reply *messages.Reset", log[len(log)-1], point)
		if want != "" {
			assert.Equal(t, want, log[0], point)
		}
	}
}

// broken is a join that has broken off in the middle of a stage.
func broken(t *testing.T, s *sides, request any) {
	t.Helper()
	s.short = true
	require.Panics(t, func() { s.Submit(request, nil) })
	require.True(t, s.Broken())
	s.short = false
	s.take()
}

// What a stage had in hand that broke off is in doubt: sequences that it steps are
// lost, a release that the decoder's side has served is answered. What waits is
// served.
func TestAStageThatBreaksOff(t *testing.T) {
	for _, c := range []struct {
		request func(messages.SequenceID) any
		end     string
		lost    bool
	}{
		{func(id messages.SequenceID) any {
			return &messages.Commit{Steps: []messages.CommitStep{{Sequence: id, Computed: 4}}}
		}, "abort *messages.Commit", true},
		{func(id messages.SequenceID) any {
			return &messages.Release{Steps: []messages.ReleaseStep{{Sequence: id}}}
		}, "reply *messages.Release", false},
	} {
		s := newSides()
		a := s.admitOne()
		request := c.request(a.Sequence)
		broken(t, s, request)
		s.Queue(&messages.Reset{}, nil)
		s.Failed(messages.Refuse(messages.Internal, "join panicked"))
		assert.Equal(t, []string{
			"decoder ReadSequences", "encoder ReadSequences", "decoder LoseSequences", "decoder Release", "encoder Release", c.end,
			"decoder Reset", "encoder Reset", "reply *messages.Reset",
		}, s.take())
		var lost []messages.SequenceID
		if c.lost {
			lost = append(lost, a.Sequence)
		}
		assert.Equal(t, lost, s.last["decoder LoseSequences"].(*messages.LoseSequences).Sequences)
		assert.Empty(t, s.String(), "the sides say that nothing runs")
	}
}

// A side that fails during the recovery is asked again, but not for ever; a join
// that fails then goes on with it.
func TestASideMayFailDuringTheRecovery(t *testing.T) {
	commit := &messages.Commit{Steps: []messages.CommitStep{{Sequence: 1, Computed: 4}}}
	s := newSides()
	broken(t, s, commit)
	s.fail["encoder ReadSequences"] = errors.New("no")
	s.Failed(messages.Refuse(messages.Internal, "join panicked"))
	end := []string{"decoder LoseSequences", "decoder Release", "encoder Release", "abort *messages.Commit"}
	assert.Equal(t, append([]string{
		"decoder ReadSequences", "encoder ReadSequences", "decoder ReadSequences", "encoder ReadSequences",
	}, end...), s.take())

	s = newSides()
	broken(t, s, commit)
	s.panics = "encoder"
	assert.Panics(t, func() { s.Failed(messages.ErrInternal) })
	s.Failed(messages.ErrInternal)
	assert.Equal(t, append([]string{"decoder ReadSequences", "encoder ReadSequences"}, end...), s.take())
}
