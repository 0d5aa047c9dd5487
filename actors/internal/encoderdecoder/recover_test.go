package encoderdecoder_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// callsOfAllKinds leave the sequence with as many tokens or end it; what a call
// says of itself is true.
func callsOfAllKinds() map[string]func(*rig, *hostSequence) error {
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
		"prefetch": func(r *rig) error { _, err := r.Prefetch(ctx, input); return err },
		"invalidate": func(r *rig) error {
			_, err := r.Invalidate(ctx, messages.Selector{Session: "s"})
			return err
		},
		"forget": func(r *rig) error {
			_, err := r.Invalidate(ctx, messages.Selector{Prefix: &input})
			return err
		},
		"rebalance": func(r *rig) error { _, err := r.Rebalance(ctx, nil); return err },
		"reset":     func(r *rig) error { return r.Reset(ctx) },
		"events":    func(r *rig) error { _, err := r.Events(ctx); return err },
		"snapshot":  func(r *rig) error { _, err := r.Snapshot(ctx); return err },
		"contents":  func(r *rig) error { _, err := r.Contents(ctx); return err },
		"stats":     func(r *rig) error { _, err := r.Stats(ctx); return err },
		"scales":    func(r *rig) error { _, err := r.Scales(ctx); return err },
		"check":     func(r *rig) error { return r.Check(ctx) },
	} {
		calls[kind] = func(r *rig, _ *hostSequence) error { return call(r) }
	}
	return calls
}

// stepsOfAllKinds are the calls about sequences.
func stepsOfAllKinds() map[string]func(*rig, *hostSequence) error {
	ctx := context.Background()
	return map[string]func(*rig, *hostSequence) error{
		"admit": func(r *rig, _ *hostSequence) error {
			m := &messages.Admit{Requests: []messages.AdmitRequest{ask(run(300, 6), run(0, 6)),
				ask(run(100, 8), run(7, 6))}}
			err := r.Do(ctx, m)
			for i := range m.Results {
				if err == nil && m.Results[i].Err == nil {
					r.begin(m.Requests[i], m.Results[i])
				}
			}
			return err
		},
		"commit": func(r *rig, _ *hostSequence) error {
			l, err := r.admit(ask(run(400, 6), run(0, 6)))
			if err != nil {
				return err
			}
			_, err = r.Commit(ctx, []messages.CommitStep{{Sequence: l.id, Computed: 0}})
			return err
		},
		"fork": func(r *rig, l *hostSequence) error {
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
				r.running = append(r.running, &fork)
			}
			return nil
		},
		"release": func(r *rig, l *hostSequence) error {
			results, err := r.Release(ctx, []messages.ReleaseStep{{Sequence: l.id, After: l.after}})
			if err == nil {
				err = results[0].Err
			}
			return err
		},
		"append": func(r *rig, l *hostSequence) error {
			results, err := r.Append(ctx, []messages.AppendStep{{Sequence: l.id, Tokens: run(3, 1)}})
			if err = cmp.Or(err, firstOf(results)); err == nil {
				l.chains = append(l.chains, l.chains[len(l.chains)-1].Next(3, messages.Cover{}))
				l.ready = append(l.ready, results[0].Ready...)
			}
			return err
		},
		"rewind": func(r *rig, l *hostSequence) error {
			err := r.RewindOne(ctx, l.id, 1)
			if err == nil {
				l.chains = l.chains[:len(l.chains)-1]
				l.computed = min(l.computed, len(l.chains))
			}
			return err
		},
		"tables": func(r *rig, l *hostSequence) error { _, err := r.TablesOf(ctx, l.id); return err },
	}
}

func firstOf(results []messages.StepResult) error {
	if len(results) == 0 {
		return nil
	}
	return results[0].Err
}

// Whatever actor fails, before its next message or in the middle of its next change:
// the call is answered; its sequence goes on with its bytes, or is lost and says so
// until it is released; others go on; and when all are gone, no page of any pool is
// held.
func TestAnyActorMayFailInAnyRequest(t *testing.T) {
	parts := []int{-1, 0, 2, 5}
	if testing.Short() {
		parts = parts[2:3]
	}
	for _, name := range []string{
		"coordinator", "tree", "offloader", "pool:wfullh1", "pool:cross_h2", "events",
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

// breakOff makes an actor fail in a call, before its next message if parts is -1.
func breakOff(t *testing.T, name string, parts int, call func(*rig, *hostSequence) error) {
	t.Helper()
	ctx := context.Background()
	about := fmt.Sprintf("%s after %d parts", name, parts)
	r := newRig(t, setup{
		pages:  []windows.PageCounts{{Primary: 24, Secondary: 8}, {Primary: 12, Secondary: 6}},
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
	if err := call(r, l); err != nil {
		require.True(t, errors.Is(err, messages.ErrInternal) || errors.Is(err, messages.ErrSequenceLost),
			"%s: %v", about, err)
	}
	for range 2 { // the failpoint may not have been hit
		_ = r.Check(ctx)
	}
	require.NoError(t, r.Check(ctx), about)
	r.finishAfter(l, about)
	require.NoError(t, r.decode(bystander, 1), about)
	r.verify()
	stats, err := r.Stats(ctx)
	require.NoError(t, err)
	assert.LessOrEqual(t, stats.Restarts, int64(1), about)
	assert.Len(t, r.running, stats.Sequences, about)
	r.end()
}

// finishAfter goes on with the sequence of a call that something failed in, if it
// is there; if it is lost it says so to every call.
func (r *rig) finishAfter(l *hostSequence, about string) {
	r.t.Helper()
	ctx := context.Background()
	_, err := r.TablesOf(ctx, l.id)
	switch {
	case err == nil:
		require.NoError(r.t, r.decode(l, 8), about)
		return
	case errors.Is(err, messages.ErrSequenceLost):
		_, err = r.ForkOne(ctx, l.id, 1)
		require.ErrorIs(r.t, err, messages.ErrSequenceLost, about)
		results, err := r.Release(ctx, []messages.ReleaseStep{{Sequence: l.id, After: l.after}})
		require.NoError(r.t, err, about)
		require.ErrorIs(r.t, results[0].Err, messages.ErrSequenceLost, about)
		_, err = r.TablesOf(ctx, l.id)
		require.ErrorIs(r.t, err, messages.ErrUnknownSequence, about)
	default:
		require.ErrorIs(r.t, err, messages.ErrUnknownSequence, about)
	}
	r.forget(l)
}
