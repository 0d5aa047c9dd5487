package actors_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// limitedRig has a full and a limited pool, and more contents than pages.
func limitedRig(t *testing.T) *rig {
	r := newRig(t, setup{
		windows: []int{full, 2 * tpb},
		pages:   []windows.PageCounts{{Primary: 16, Secondary: 16}, {Primary: 16, Secondary: 6}},
		change:  func(c *windows.Config) { c.EventBufferMaxSize = 1 << 10 },
	}, actors.WithRestartLimit(100, 1))
	for i := range 4 {
		r.store(run(100*i, 16))
	}
	return r
}

// In the middle of its change an actor may have done any part of it. Whatever
// kind of request it was: the call is answered; the sequence of the request goes
// on with its bytes, or is lost and says so until it is released; a sequence that
// the request does not name goes on; and when all are gone, no page is held.
func TestAnActorMayFailInTheMiddleOfAnyChange(t *testing.T) {
	ctx := context.Background()
	all := []int{0, 1, 3, 6, 10}
	if testing.Short() {
		all = all[2:3]
	}
	names := []string{"coordinator", "tree", "offloader", "events", "pool:wfullh1", "pool:w8h1"}
	for _, name := range names {
		for kind, call := range requestsOfAllKinds(ctx) {
			t.Run(name+" "+kind, func(t *testing.T) {
				for _, parts := range all {
					synctest.Test(t, func(t *testing.T) { breakOff(t, name, parts, call) })
				}
			})
		}
	}
}

func breakOff(t *testing.T, name string, parts int, call func(*rig, *sequence) error) {
	ctx := context.Background()
	about := fmt.Sprintf("%s after %d parts", name, parts)
	r := limitedRig(t)
	s, err := r.start(run(500, 7))
	require.NoError(t, err)
	require.NoError(t, r.decode(r.writer, s, 1))
	other, err := r.start(run(600, 6))
	require.NoError(t, err)
	require.NoError(t, r.points.ArmWithin(name, parts))
	if err := call(r, s); err != nil {
		require.True(t, errors.Is(err, messages.ErrInternal) || errors.Is(err, messages.ErrSequenceLost),
			"%s: %v", about, err)
	}
	// The failpoint may not have been hit: it does in one of these, which then may fail.
	if more, err := r.start(run(200, 9)); err == nil {
		_ = r.release(more)
	}
	for range 2 {
		_ = r.Check(ctx)
	}
	require.NoError(t, r.decode(r.writer, other, 2), about)
	r.verify(other)
	if err := r.proven(s); err != nil {
		require.ErrorIs(t, err, messages.ErrSequenceLost, about)
		require.ErrorIs(t, r.release(s), messages.ErrSequenceLost, about)
		require.ErrorIs(t, r.release(s), messages.ErrUnknownSequence, about)
	}
	require.NoError(t, r.release(other), about)
	r.endAll()
	require.NoError(t, r.Reset(ctx), about)
	stats, err := r.Stats(ctx)
	require.NoError(t, err)
	assert.Zero(t, stats.Sequences, about)
	for _, p := range stats.Pools {
		assert.Equal(t, p.Primary.Total, p.Primary.Free, "%s: pool %s", about, p.Name)
		assert.Equal(t, p.Secondary.Total, p.Secondary.Free, "%s: pool %s", about, p.Name)
	}
	assert.LessOrEqual(t, stats.Restarts, int64(1), about)
	r.close()
}

// proven tells whether a sequence is lost, which it says of every call; if it is
// there, its bytes are right and it is released.
func (r *rig) proven(s *sequence) error {
	ctx := context.Background()
	_, err := r.TablesOf(ctx, s.id)
	switch {
	case errors.Is(err, messages.ErrUnknownSequence):
		return nil // it was the release that failed over its answer
	case err != nil:
		_, again := r.ForkOne(ctx, s.id, 1)
		require.ErrorIs(r.t, again, messages.ErrSequenceLost)
		_, again = r.TablesOf(ctx, s.id)
		require.ErrorIs(r.t, again, messages.ErrSequenceLost)
		return err
	}
	r.verify(s)
	require.NoError(r.t, r.release(s))
	return nil
}

// endAll releases the sequences that a request has made.
func (r *rig) endAll() {
	last, err := r.Admit(context.Background(), messages.AdmitRequest{Tokens: run(0, 1)})
	require.NoError(r.t, err)
	first := last.Sequence >> 52 << 20 // the first generation of this engine
	for slot := range messages.SequenceID(8) {
		for generation := range messages.SequenceID(16) {
			id := (first+generation)<<32 | slot
			err := r.release(&sequence{id: id})
			if err != nil && !errors.Is(err, messages.ErrUnknownSequence) {
				require.ErrorIs(r.t, err, messages.ErrSequenceLost)
			}
		}
	}
}

// Whatever the coordinator fails over, every call is answered, and nothing is lost.
func TestAnAnswerOutlivesItsCoordinator(t *testing.T) {
	ctx := context.Background()
	for parts := range 30 {
		synctest.Test(t, func(t *testing.T) {
			r := limitedRig(t)
			require.NoError(t, r.points.ArmWithin("coordinator", parts))
			var waiting []chan error
			for i := range 4 {
				waiting = append(waiting, later(func() error {
					_, err := r.Lookup(ctx, messages.Prefix{Tokens: run(100*i, 17)})
					return err
				}))
			}
			for _, answered := range waiting {
				if err := <-answered; err != nil {
					assert.ErrorIs(t, err, messages.ErrInternal, "after %d parts", parts)
				}
			}
			for range 4 { // the failpoint may not have been hit
				_ = r.Check(ctx)
			}
			r.verify()
			r.close()
		})
	}
}

// What a step has done that the coordinator breaks off in the middle cannot be proven.
func TestAStepThatBreaksOffIsNotTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		r := limitedRig(t)
		lost := 0
		for parts := range 16 {
			s, err := r.start(run(500, 7))
			require.NoError(t, err)
			require.NoError(t, r.decode(r.writer, s, 3))
			require.NoError(t, r.points.ArmWithin("coordinator", parts))
			before := *s
			if err := r.decode(r.writer, s, 4); err != nil && !errors.Is(err, messages.ErrSequenceLost) {
				require.ErrorIs(t, err, messages.ErrInternal)
				*s = before
			}
			for range 2 { // the failpoint may not have been hit
				_ = r.Check(ctx)
			}
			if _, err := r.TablesOf(ctx, s.id); err == nil {
				require.NoError(t, r.release(s))
				continue
			}
			lost++
			require.ErrorIs(t, r.release(s), messages.ErrSequenceLost)
		}
		assert.Positive(t, lost)
		r.verify()
		r.close()
	})
}

// Sequences may hold a page of which they have computed different lengths: one
// reused the whole block, one was rewound. When the tree is lost, the first that
// is released leaves its part on the page, and the others leave nothing there.
func TestAPageIsStoredOnceAfterTheTreeIsLost(t *testing.T) {
	ctx := context.Background()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 24}}})
		whole, err := r.start(run(0, 5))
		require.NoError(t, err)
		for token := messages.Token(5); token < 9; token++ {
			require.NoError(t, r.decode(r.writer, whole, token))
		}
		ids, err := r.ForkOne(ctx, whole.id, 1)
		require.NoError(t, err)
		require.NoError(t, r.RewindOne(ctx, ids[0], 3)) // to 6 tokens
		reuses, err := r.start(run(0, 10))
		require.NoError(t, err)
		require.NoError(t, r.points.ArmWithin("tree", 1))
		r.store(run(700, 12))
		found, err := r.Lookup(ctx, messages.Prefix{Tokens: run(0, 9)})
		require.NoError(t, err)
		require.Zero(t, found.MatchedTokens, "the tree was lost")
		require.NoError(t, r.release(&sequence{id: ids[0]}))
		require.NoError(t, r.release(reuses))
		require.NoError(t, r.release(whole))
		require.NoError(t, r.Check(ctx))
		stats, err := r.Stats(ctx)
		require.NoError(t, err)
		assert.EqualValues(t, 1, stats.Restarts)
		r.verify()
		r.close()
	})
}
