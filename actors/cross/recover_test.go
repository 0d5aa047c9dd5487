package cross_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// callsOfAllKinds leave the sequence with as many tokens or end it; what a call
// says of itself is true.
func callsOfAllKinds() map[string]func(*rig, *life) error {
	ctx := context.Background()
	input := messages.Prefix{Encoder: run(100, 8)}
	calls := stepsOfAllKinds()
	for kind, call := range map[string]func(*rig) error{
		"lookup": func(r *rig) error {
			_, err := r.Lookup(ctx, messages.Prefix{Encoder: run(100, 8), Tokens: run(0, 6)})
			return err
		},
		"pin": func(r *rig) error {
			pinned, err := r.Pin(ctx, input)
			if err != nil {
				return err
			}
			// A pin that was lost with the tree is no longer known.
			if err := r.Unpin(ctx, pinned.Pin); err != nil && !errors.Is(err, messages.ErrUnknownPin) {
				return err
			}
			return nil
		},
		"prefetch":   func(r *rig) error { _, err := r.Prefetch(ctx, input); return err },
		"invalidate": func(r *rig) error { _, err := r.Invalidate(ctx, messages.Selector{Session: "s"}); return err },
		"forget":     func(r *rig) error { _, err := r.Invalidate(ctx, messages.Selector{Prefix: &input}); return err },
		"rebalance":  func(r *rig) error { _, err := r.Rebalance(ctx, nil); return err },
		"reset":      func(r *rig) error { return r.Reset(ctx) },
		"events":     func(r *rig) error { _, err := r.Events(ctx); return err },
		"snapshot":   func(r *rig) error { _, err := r.Snapshot(ctx); return err },
		"contents":   func(r *rig) error { _, err := r.Contents(ctx); return err },
		"stats":      func(r *rig) error { _, err := r.Stats(ctx); return err },
		"scales":     func(r *rig) error { _, err := r.Scales(ctx); return err },
		"check":      func(r *rig) error { return r.Check(ctx) },
	} {
		calls[kind] = func(r *rig, _ *life) error { return call(r) }
	}
	return calls
}

// stepsOfAllKinds are the calls about sequences.
func stepsOfAllKinds() map[string]func(*rig, *life) error {
	ctx := context.Background()
	return map[string]func(*rig, *life) error{
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
			m := &messages.Fork{Steps: []messages.ForkStep{{Sequence: l.id, Count: 2}}}
			if err := r.Do(ctx, m); err != nil {
				return err
			}
			if err := m.Results[0].Err; err != nil {
				return err
			}
			for _, id := range m.Results[0].Forks {
				fork := *l
				fork.id = id
				r.lives = append(r.lives, &fork)
			}
			return nil
		},
		"release": func(r *rig, l *life) error {
			results, err := r.Release(ctx, []messages.ReleaseStep{{Sequence: l.id, After: l.after}})
			if err == nil {
				err = results[0].Err
			}
			return err
		},
		"append": func(r *rig, l *life) error {
			results, err := r.Append(ctx, []messages.AppendStep{{Sequence: l.id, Tokens: run(3, 1)}})
			if err = cmp.Or(err, firstOf(results)); err == nil {
				l.chains = append(l.chains, l.chains[len(l.chains)-1].Next(3, messages.Cover{}))
				l.ready = append(l.ready, results[0].Ready...)
			}
			return err
		},
		"rewind": func(r *rig, l *life) error {
			err := r.Rewind(ctx, l.id, 1)
			if err == nil {
				l.chains = l.chains[:len(l.chains)-1]
				l.computed = min(l.computed, len(l.chains))
			}
			return err
		},
		"tables": func(r *rig, l *life) error { _, err := r.Tables(ctx, l.id); return err },
	}
}

func firstOf(results []messages.StepResult) error {
	if len(results) == 0 {
		return nil
	}
	return results[0].Err
}

// Whenever the join fails, between two rounds or before any of the requests that a
// round sends to the two sides: the call is served, once, nothing is left on one
// side only, and all sequences go on with their bytes.
func TestTheJoinMayFailInAnyRequest(t *testing.T) {
	for kind, call := range callsOfAllKinds() {
		t.Run(kind, func(t *testing.T) {
			for parts := range 9 {
				breakOff(t, "join", parts-1, call)
			}
		})
	}
}

// Whatever actor of either side fails, before its next message or in the middle of
// its next change: the call is answered; its sequence goes on with its bytes, or is
// lost and says so until it is released; others go on; and when all are gone, no
// page is held on either side.
func TestAnyActorMayFailInAnyRequest(t *testing.T) {
	parts := []int{-1, 0, 2, 5}
	if testing.Short() {
		parts = parts[2:3]
	}
	for _, name := range []string{
		"cross:coordinator", "cross:tree", "cross:offloader", "cross:pool:cross_h2",
		"coordinator", "tree", "offloader", "pool:wfullh1", "events",
	} {
		t.Run(name, func(t *testing.T) {
			for _, call := range callsOfAllKinds() {
				for _, n := range parts {
					breakOff(t, name, n, call)
				}
			}
		})
	}
}

// breakOff lets an actor fail in a call, before its next message if parts is -1.
func breakOff(t *testing.T, name string, parts int, call func(*rig, *life) error) {
	t.Helper()
	ctx := context.Background()
	about := fmt.Sprintf("%s after %d parts", name, parts)
	r := newRig(t, setup{
		pages:  []windows.Counts{{Primary: 24, Secondary: 8}, {Primary: 12, Secondary: 6}},
		change: func(c *windows.Config) { c.EventBufferMaxSize = 1 << 10 },
	})
	bystander := r.start(ask(run(100, 8), run(0, 6)))
	l := r.start(ask(run(200, 7), run(50, 6)))
	require.NoError(t, r.decode(l, 7))
	if parts < 0 {
		require.NoError(t, r.points.Arm(name))
	} else {
		require.NoError(t, r.points.ArmWithin(name, parts))
	}
	if err := call(r, l); name == "join" {
		require.NoError(t, err, about)
	} else if err != nil {
		require.True(t, errors.Is(err, messages.ErrInternal) || errors.Is(err, messages.ErrSequenceLost), "%s: %v", about, err)
	}
	for range 2 { // the fuse may not have burnt
		_ = r.Check(ctx)
	}
	require.NoError(t, r.Check(ctx), about)
	r.settleLife(l, about)
	require.NoError(t, r.decode(bystander, 1), about)
	r.verify()
	stats, err := r.Stats(ctx)
	require.NoError(t, err)
	assert.LessOrEqual(t, stats.Restarts, int64(1), about)
	assert.Len(t, r.lives, stats.Sequences, about)
	r.end()
}

// settleLife goes on with the sequence of a call that something failed in, if it
// is there; if it is lost it says so to every call.
func (r *rig) settleLife(l *life, about string) {
	r.t.Helper()
	ctx := context.Background()
	_, err := r.Tables(ctx, l.id)
	switch {
	case err == nil:
		require.NoError(r.t, r.decode(l, 8), about)
		return
	case errors.Is(err, messages.ErrSequenceLost):
		_, err = r.Fork(ctx, l.id, 1)
		require.ErrorIs(r.t, err, messages.ErrSequenceLost, about)
		results, err := r.Release(ctx, []messages.ReleaseStep{{Sequence: l.id, After: l.after}})
		require.NoError(r.t, err, about)
		require.ErrorIs(r.t, results[0].Err, messages.ErrSequenceLost, about)
		_, err = r.Tables(ctx, l.id)
		require.ErrorIs(r.t, err, messages.ErrUnknownSequence, about)
	default:
		require.ErrorIs(r.t, err, messages.ErrUnknownSequence, about)
	}
	r.forget(l)
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
		assert.Equal(t, lost, s.last["decoder LoseSequences"].(*protocol.LoseSequences).Sequences)
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
