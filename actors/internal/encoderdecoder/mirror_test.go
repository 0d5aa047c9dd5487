package encoderdecoder_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// kept makes a log of so many events.
func kept(n int) func(*windows.Config) {
	return func(c *windows.Config) { c.EventBufferMaxSize = n }
}

// watcher follows the events of a rig: by a mirror, and by what parents and
// tokens say of the prefixes of blocks.
type watcher struct {
	*rig
	mirror   *events.Mirror
	prefixes map[kvevents.Hash]string
	blind    bool // events were lost, so that parents may be unknown
}

func watch(r *rig) *watcher {
	return &watcher{rig: r, mirror: events.NewMirror(), prefixes: map[kvevents.Hash]string{}}
}

// learn writes down what each block of stored events is.
func (w *watcher) learn(list []kvevents.Event) {
	for i := range list {
		e := &list[i]
		if w.blind {
			return
		}
		before := ""
		if e.HasParent {
			var known bool
			before, known = w.prefixes[e.Parent]
			require.True(w.t, known, "%s: no one has heard of its parent", events.Draw(e))
		}
		for _, b := range e.Blocks {
			before += fmt.Sprint(b.Tokens)
			if old, twice := w.prefixes[b.Hash]; twice {
				require.Equal(w.t, old, before, "a hash has two meanings")
			}
			w.prefixes[b.Hash] = before
		}
	}
}

// follow reads what happened, and holds the mirror against a snapshot and both
// against the contents of the trees.
func (w *watcher) follow() {
	w.t.Helper()
	batch, err := w.Events(context.Background())
	if errors.Is(err, messages.ErrInternal) { // an actor failed at it
		batch, err = w.Events(context.Background())
	}
	require.NoError(w.t, err)
	w.blind = w.blind || batch.Lost > 0
	w.learn(batch.Events)
	if err := w.mirror.Follow(batch); batch.Lost == 0 {
		require.NoError(w.t, err)
	} else {
		require.ErrorIs(w.t, err, events.ErrStale)
	}
	w.compare()
}

// compare reads a snapshot, which a stale mirror begins again with.
func (w *watcher) compare() {
	w.t.Helper()
	snapshot, err := w.Snapshot(context.Background())
	if errors.Is(err, messages.ErrInternal) { // an actor failed at it
		snapshot, err = w.Snapshot(context.Background())
	}
	require.NoError(w.t, err)
	w.learn(snapshot.Events)
	if w.mirror.Stale() {
		require.NoError(w.t, w.mirror.Follow(snapshot))
	}
	require.NoError(w.t, w.mirror.Compare(snapshot))
	if w.blind {
		return
	}
	blocks, err := w.Contents(context.Background())
	require.NoError(w.t, err)
	var want, got []string
	prefixes := make([]string, len(blocks))
	for i, b := range blocks {
		prefixes[i] = fmt.Sprint(b.Tokens)
		if b.Parent >= 0 {
			prefixes[i] = prefixes[b.Parent] + prefixes[i]
		}
		for p, l := range b.Pages {
			if _, tier, held := l.Page(); held {
				want = append(want, fmt.Sprint(p, tier, len(b.Tokens), prefixes[i]))
			}
		}
	}
	for k, e := range w.mirror.All() {
		got = append(got, fmt.Sprint(k.Pool, e.Tier, e.Tokens, w.prefixes[k.Hash]))
	}
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(w.t, want, got)
}

// The blocks of an input are told of the cross pool: with the tokens that the
// host passed, behind each other, named by the whole input.
func TestEventsOfTheCrossPool(t *testing.T) {
	r := newRig(t, setup{pages: pages(20, 20), change: kept(100)})
	defer r.end()
	r.store(ask(run(100, 6), run(0, 4)))
	r.store(ask(append(run(100, 6), 9), run(0, 4)))
	batch, err := r.Events(context.Background())
	require.NoError(t, err)
	require.Len(t, batch.Events, 6)
	assert.Equal(t, []kvevents.EventType{kvevents.EventCreated, kvevents.EventCreated},
		[]kvevents.EventType{batch.Events[0].Type, batch.Events[1].Type})
	assert.Equal(t, messages.PoolID(1), batch.Events[1].Pool)
	assert.Equal(t, 20, batch.Events[1].PrimaryPages)
	var tokens [2][][]messages.Token
	names := map[kvevents.Hash]bool{}
	for _, e := range batch.Events[2:] {
		require.Equal(t, kvevents.EventStored, e.Type)
		assert.False(t, e.HasParent, "an input begins with its first block")
		for _, b := range e.Blocks {
			tokens[e.Pool] = append(tokens[e.Pool], b.Tokens)
			names[b.Hash] = true
		}
	}
	assert.Equal(t, [][]messages.Token{run(0, 4), run(0, 4)}, tokens[0])
	assert.Equal(t, [][]messages.Token{run(100, 4), {104, 105}, run(100, 4), {104, 105, 9}}, tokens[1])
	assert.Len(t, names, 6,
		"blocks of different inputs have different names, also where they are alike")
}

// What is left of an input that lost its tail is told with its parent when the
// tail is back; host memory and priorities are told of as of the other pools.
func TestEventsOfEvictedInputs(t *testing.T) {
	now := time.Duration(0)
	r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 20}, {Primary: 3, Secondary: 1}},
		change: kept(100), now: &now})
	defer r.end()
	w := watch(r)
	request := ask(run(100, 11), run(0, 4))
	request.EncoderRetention = &messages.Retention{Ranges: []messages.RetentionRange{{
		End: messages.EndOfPrompt, Priority: 80, Duration: time.Second,
	}}}
	r.store(request)
	w.follow()
	now = time.Minute
	r.store(ask(run(200, 8), run(0, 4)))
	batch, err := r.Events(context.Background())
	require.NoError(t, err)
	w.learn(batch.Events)
	kinds := map[string]int{}
	for _, e := range batch.Events {
		if e.Pool == 1 {
			kinds[fmt.Sprintf("%s %v %d", e.Type, e.TierChanged, len(e.Hashes))]++
		}
	}
	assert.Equal(t, map[string]int{"updated false 0": 3, "updated true 0": 2, "removed false 1": 1,
		"stored false 0": 1}, kinds,
		"three expire, two go to host memory, where the first makes way for the second")
	require.NoError(t, w.mirror.Follow(batch))
	w.compare()
	r.store(request)
	batch, err = r.Events(context.Background())
	require.NoError(t, err)
	w.learn(batch.Events)
	anew := false
	for _, e := range batch.Events {
		anew = anew || e.Pool == 1 && e.Type == kvevents.EventStored && !e.HasParent
	}
	assert.True(t, anew, "what was left is not reused: the input is stored from its start")
	require.NoError(t, w.mirror.Follow(batch))
	w.compare()
}

// cleared says that nothing is left of either side, and comes once.
func TestClearedIsOfBothSides(t *testing.T) {
	r := newRig(t, setup{pages: pages(20, 20), change: kept(100)})
	defer r.end()
	w := watch(r)
	clears := func() (n int) {
		batch, err := r.Events(context.Background())
		require.NoError(t, err)
		w.learn(batch.Events)
		require.NoError(t, w.mirror.Follow(batch))
		w.compare()
		for _, e := range batch.Events {
			if e.Type == kvevents.EventCleared {
				n++
			}
		}
		return n
	}
	r.store(ask(run(100, 6), run(0, 8)))
	require.NoError(t, r.Reset(context.Background()))
	assert.Equal(t, 1, clears())
	require.NoError(t, r.Reset(context.Background()))
	assert.Equal(t, 1, clears(), "nothing was there, but that is what it says")
	r.store(ask(run(100, 6), run(0, 3))) // the prompt has no whole block but is stored in part
	held := r.start(ask(run(200, 6), run(0, 8)))
	require.NoError(t, r.Reset(context.Background()))
	assert.Zero(t, clears(), "both sides hold what a sequence runs on")
	r.release(held)
	_, err := r.Invalidate(context.Background(),
		messages.Selector{Prefix: &messages.Prefix{Encoder: run(200, 6)}})
	require.NoError(t, err)
	assert.Zero(t, clears(), "the prompt is left")
	require.NoError(t, r.Reset(context.Background()))
	assert.Equal(t, 1, clears())
}

// A small log loses events of either side, and counts them.
func TestLostEventsOfBothSides(t *testing.T) {
	r := newRig(t, setup{pages: pages(20, 20), change: kept(3)})
	defer r.end()
	w := watch(r)
	r.store(ask(run(100, 6), run(0, 4)))
	r.store(ask(run(200, 6), run(0, 4)))
	batch, err := r.Events(context.Background())
	require.NoError(t, err)
	assert.EqualValues(t, 3, batch.Lost)
	require.Len(t, batch.Events, 3)
	assert.EqualValues(t, 3, batch.Events[0].ID)
	w.blind = true
	require.ErrorIs(t, w.mirror.Follow(batch), events.ErrStale)
	w.compare()
	r.store(ask(run(100, 6), run(50, 4)))
	w.follow()
}

// Whichever actor of either side fails, and wherever in a change, a mirror that
// follows knows what is stored, or knows that it does not.
func TestEventsWhenASideFails(t *testing.T) {
	names := []string{"tree", "pool:wfullh1", "pool:cross_h2", "offloader", "coordinator", "events"}
	for _, name := range names {
		for parts := range 4 {
			t.Run(fmt.Sprint(name, " ", parts), func(t *testing.T) {
				r := newRig(t,
					setup{pages: []windows.PageCounts{{Primary: 9, Secondary: 4}, {Primary: 5, Secondary: 4}},
						change: kept(1000)})
				defer r.end()
				r.unwritten = true
				w := watch(r)
				for i := range 6 {
					w.runSequence(ask(run(100*i, 7), run(0, 9)))
					w.follow()
				}
				if parts == 0 {
					require.NoError(t, r.points.Arm(name))
				} else {
					require.NoError(t, r.points.ArmWithin(name, parts-1))
				}
				for i := range 3 {
					w.runSequence(ask(run(100*i, 7), run(10*i, 9)))
					w.follow()
				}
				require.NoError(t, r.Reset(context.Background()))
				w.follow()
				require.NoError(t, r.Check(context.Background()))
			})
		}
	}
}

// runSequence admits, computes and releases a sequence without kernels, which may be lost on the
// way.
func (w *watcher) runSequence(request messages.AdmitRequest) {
	w.t.Helper()
	ctx := context.Background()
	a, err := w.Admit(ctx, request)
	if err != nil {
		require.ErrorIs(w.t, err, messages.ErrInternal)
		return
	}
	_, err = w.Commit(ctx,
		[]messages.CommitStep{{Sequence: a.Sequence, Computed: len(request.Tokens)}})
	if err != nil {
		require.ErrorIs(w.t, err, messages.ErrInternal)
	}
	_, err = w.Release(ctx, []messages.ReleaseStep{{Sequence: a.Sequence}})
	if err != nil {
		require.ErrorIs(w.t, err, messages.ErrInternal)
	}
}

func TestMirrorOfRandomHosts(t *testing.T) { rapid.Check(t, checkMirrorOfRandomHosts) }

func FuzzMirrorOfRandomHosts(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkMirrorOfRandomHosts)) }

func checkMirrorOfRandomHosts(rt *rapid.T) {
	i := rapid.IntRange(0, len(rooms)-1).Draw(rt, "room")
	c := &randomHosts{rt: rt, known: map[string]int{}, lossy: true}
	s := rooms[i]
	s.now = &c.now
	n := rapid.SampledFrom([]int{1 << 16, 5}).Draw(rt, "events kept")
	change := s.change
	s.change = func(w *windows.Config) {
		w.EventBufferMaxSize = n
		if change != nil {
			change(w)
		}
	}
	c.rig = newRig(rt, s)
	defer c.end()
	w := watch(c.rig)
	actions := c.actions()
	actions["reset"] = func(*rapid.T) { require.NoError(rt, c.Reset(context.Background())) }
	actions["follow"] = func(*rapid.T) { w.follow() }
	actions[""] = func(*rapid.T) {}
	rt.Repeat(actions)
	c.unpinAll()
	w.follow()
}
