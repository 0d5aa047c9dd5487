package survival_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// pending fails if a call that must wait has been answered.
func pending(t *testing.T, calls ...chan answer) {
	t.Helper()
	synctest.Wait()
	for i, c := range calls {
		select {
		case a := <-c:
			t.Fatalf("call %d was answered: %+v", i, a)
		default:
		}
	}
}

// served waits for a call that pages have come free for.
func served(t *testing.T, c chan answer) messages.Admitted {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-c:
		require.NoError(t, a.err)
		return a.admitted
	default:
		t.Fatal("the call still waits")
		return messages.Admitted{}
	}
}

// inRoom runs a test with a waiting room in a bubble; the engine must end with
// every page given back.
func inRoom(t *testing.T, limit int, s setup, test func(*testing.T, *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, s, actors.WithWaitingRoom(limit))
		test(t, r)
		r.close()
	})
}

func TestWithoutARoomNothingWaits(t *testing.T) {
	r := newRig(t, setup{})
	a := r.admit(prompt(0, 8*tpb))
	_, err := r.Admit(ctx, prompt(1000, 1))
	require.EqualError(t, err, "pool wfullh1 needs 1 pages, 0 available")
	r.release(a.Sequence)
	r.close()
}

func TestAdmissionsWaitForARelease(t *testing.T) {
	inRoom(t, 4, setup{}, func(t *testing.T, r *rig) {
		a := r.admit(prompt(0, 8*tpb))
		waiting := r.later(ctx, prompt(1000, 2*tpb))
		pending(t, waiting)
		assert.Equal(t, []int{8}, r.used(), "nothing is taken for those who wait")
		r.release(a.Sequence)
		r.release(served(t, waiting).Sequence)
	})
}

func TestFirstComeFirstServed(t *testing.T) {
	inRoom(t, 8, setup{}, func(t *testing.T, r *rig) {
		a := r.admit(prompt(0, 8*tpb))
		var waiting []chan answer
		for i := range 4 {
			waiting = append(waiting, r.later(ctx, prompt(1000*(i+1), 8*tpb)))
			pending(t, waiting...)
		}
		for _, c := range waiting {
			r.release(a.Sequence)
			a = served(t, c)
		}
		r.release(a.Sequence)
	})
}

// One release serves as many as fit, in order.
func TestOneReleaseServesSeveral(t *testing.T) {
	inRoom(t, 8, setup{}, func(t *testing.T, r *rig) {
		a := r.admit(prompt(0, 8*tpb))
		var waiting []chan answer
		for i := range 5 {
			waiting = append(waiting, r.later(ctx, prompt(1000*(i+1), 2*tpb)))
			synctest.Wait()
		}
		r.release(a.Sequence)
		var first messages.SequenceID
		for i, c := range waiting[:4] {
			s := served(t, c)
			if i == 0 {
				first = s.Sequence
				continue
			}
			defer r.release(s.Sequence)
		}
		pending(t, waiting[4])
		r.release(first)
		defer r.release(served(t, waiting[4]).Sequence)
		require.NoError(t, r.Check(ctx))
	})
}

// While a large one waits small ones do not take what comes free, though they fit.
func TestSmallOnesDoNotStarveALargeOne(t *testing.T) {
	inRoom(t, 8, setup{}, func(t *testing.T, r *rig) {
		var held []messages.SequenceID
		for i := range 4 {
			held = append(held, r.admit(prompt(100*i, 2*tpb)).Sequence)
		}
		large := r.later(ctx, prompt(1000, 8*tpb))
		pending(t, large)
		var small []chan answer
		for i, id := range held {
			r.release(id)
			if i < len(held)-1 {
				pending(t, large)
				small = append(small, r.later(ctx, prompt(2000+100*i, 1)))
				pending(t, small...)
			}
		}
		a := served(t, large)
		pending(t, small...)
		r.release(a.Sequence)
		for _, c := range small {
			r.release(served(t, c).Sequence)
		}
	})
}

// Over the bound an admission is refused as ever, also one that would fit if
// no one were before it.
func TestTheRoomHasABound(t *testing.T) {
	inRoom(t, 2, setup{}, func(t *testing.T, r *rig) {
		a, b := r.admit(prompt(0, 5*tpb)), r.admit(prompt(500, tpb))
		one := r.later(ctx, prompt(1000, 4*tpb))
		synctest.Wait()
		two := r.later(ctx, prompt(2000, 3*tpb))
		pending(t, one, two)
		_, err := r.Admit(ctx, prompt(3000, tpb))
		require.EqualError(t, err, "pool wfullh1 needs 1 pages, 0 available")
		require.ErrorIs(t, err, messages.ErrOutOfPages)
		r.release(a.Sequence)
		r.release(b.Sequence, served(t, one).Sequence, served(t, two).Sequence)
	})
}

func TestWhatNeverFitsIsRefusedAtOnce(t *testing.T) {
	inRoom(t, 4, setup{}, func(t *testing.T, r *rig) {
		_, err := r.Admit(ctx, prompt(0, 8*tpb+1))
		require.EqualError(t, err, "pool wfullh1 needs 9 pages and has 8")
		a := r.admit(prompt(0, 8*tpb))
		waiting := r.later(ctx, prompt(1000, tpb))
		pending(t, waiting)
		_, err = r.Admit(ctx, prompt(2000, 8*tpb+1)) // behind another, too
		require.EqualError(t, err, "pool wfullh1 needs 9 pages and has 8")
		r.release(a.Sequence)
		r.release(served(t, waiting).Sequence)
	})
}

// A prompt that is stored in part needs fewer pages than the pool has, and still
// has more blocks than it.
func TestWhatIsStoredDoesNotMakeItFit(t *testing.T) {
	inRoom(t, 4, setup{}, func(t *testing.T, r *rig) {
		a := r.admit(prompt(0, 8*tpb))
		r.compute(a.Sequence, 8*tpb)
		_, err := r.Admit(ctx, prompt(0, 9*tpb))
		require.EqualError(t, err, "pool wfullh1 needs 1 pages beside the 8 held, and has 8")
		r.release(a.Sequence)
	})
}

// Blocks that are stored while one waits are matched: it needs fewer pages.
func TestACommitServesThoseWhoMatchIt(t *testing.T) {
	inRoom(t, 4, setup{}, func(t *testing.T, r *rig) {
		a := r.admit(prompt(0, 6*tpb))
		waiting := r.later(ctx, prompt(0, 7*tpb))
		pending(t, waiting)
		r.compute(a.Sequence, 6*tpb)
		b := served(t, waiting)
		assert.Equal(t, 6*tpb, b.ReusedTokens)
		r.release(a.Sequence, b.Sequence)
	})
}

// What a batch matched is claimed while it is decided, and given back when it waits.
func TestNothingIsClaimedForThoseWhoWait(t *testing.T) {
	inRoom(t, 4, setup{}, func(t *testing.T, r *rig) {
		r.store(run(0, 3*tpb))
		a := r.admit(prompt(1000, 2*tpb))
		waiting := r.later(ctx, prompt(0, 7*tpb))
		pending(t, waiting)
		assert.Equal(t, []int{2}, r.used())
		require.NoError(t, r.Check(ctx))
		r.release(a.Sequence)
		b := served(t, waiting)
		assert.Equal(t, 3*tpb, b.ReusedTokens)
		r.release(b.Sequence)
	})
}

// An append that slides a window drops pages; the one who waits gets them.
func TestAWindowThatSlidesServes(t *testing.T) {
	s := setup{windows: []int{2 * tpb}, pages: []windows.PageCounts{{Primary: 8}}}
	inRoom(t, 4, s, func(t *testing.T, r *rig) {
		a := r.admit(prompt(0, 8*tpb))
		waiting := r.later(ctx, prompt(1000, 4*tpb))
		pending(t, waiting)
		r.compute(a.Sequence, 8*tpb)
		b := served(t, waiting)
		r.release(a.Sequence, b.Sequence)
	})
}

func TestUnpinServes(t *testing.T) {
	inRoom(t, 4, setup{}, func(t *testing.T, r *rig) {
		a := r.admit(prompt(0, 4*tpb))
		r.compute(a.Sequence, 4*tpb)
		r.release(a.Sequence)
		pin, err := r.Pin(ctx, messages.Prefix{Tokens: run(0, 4*tpb)})
		require.NoError(t, err)
		waiting := r.later(ctx, prompt(1000, 5*tpb))
		pending(t, waiting)
		require.NoError(t, r.Unpin(ctx, pin.Pin))
		r.release(served(t, waiting).Sequence)
	})
}

// A caller that goes makes way for those behind it.
func TestACancelledFirstMakesWay(t *testing.T) {
	inRoom(t, 4, setup{}, func(t *testing.T, r *rig) {
		a := r.admit(prompt(0, 5*tpb))
		leaving, cancel := context.WithCancel(ctx)
		large := r.later(leaving, prompt(1000, 8*tpb))
		synctest.Wait()
		small := r.later(ctx, prompt(2000, tpb))
		pending(t, large, small)
		cancel()
		b := served(t, small)
		require.ErrorIs(t, (<-large).err, context.Canceled)
		r.release(a.Sequence, b.Sequence)
	})
}

// Those who have gone take up no place.
func TestTheCancelledTakeNoPlace(t *testing.T) {
	inRoom(t, 2, setup{}, func(t *testing.T, r *rig) {
		a := r.admit(prompt(0, 8*tpb))
		first := r.later(ctx, prompt(1000, 8*tpb))
		pending(t, first)
		for range 10 {
			leaving, cancel := context.WithCancel(ctx)
			gone := r.later(leaving, prompt(2000, tpb))
			pending(t, gone)
			cancel()
			require.ErrorIs(t, (<-gone).err, context.Canceled)
		}
		second := r.later(ctx, prompt(3000, tpb))
		pending(t, first, second)
		r.release(a.Sequence)
		b := served(t, first)
		r.release(b.Sequence)
		r.release(served(t, second).Sequence)
	})
}

func TestCloseEndsTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{}, actors.WithWaitingRoom(4))
		r.admit(prompt(0, 8*tpb))
		one, two := r.later(ctx, prompt(1000, 8*tpb)), r.later(ctx, prompt(2000, tpb))
		pending(t, one, two)
		leaked, err := r.Close(ctx)
		require.NoError(t, err)
		assert.Equal(t, 8, leaked)
		require.ErrorIs(t, (<-one).err, messages.ErrClosed)
		require.ErrorIs(t, (<-two).err, messages.ErrClosed)
		r.end()
	})
}

func TestFailureEndsTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{}, actors.WithWaitingRoom(4), actors.WithRestartLimit(0, 1))
		r.admit(prompt(0, 8*tpb))
		waiting := r.later(ctx, prompt(1000, 8*tpb))
		pending(t, waiting)
		require.NoError(t, r.points.Arm("tree"))
		_, err := r.Lookup(ctx, messages.Prefix{Tokens: run(0, 8)})
		require.ErrorIs(t, err, messages.ErrFailed)
		require.ErrorIs(t, (<-waiting).err, messages.ErrFailed)
		_, _ = r.Close(ctx)
		r.end()
	})
}

// An actor may die while two wait, and while one that waited is tried: that one is answered
// with the failure, and comes behind the other when its host sends it again.
func TestTheRoomOutlivesAFailure(t *testing.T) {
	for _, name := range []string{"coordinator", "tree", "offloader", "pool:wfullh1"} {
		t.Run(name, func(t *testing.T) {
			inRoom(t, 4, setup{pages: []windows.PageCounts{{Primary: 8, Secondary: 8}}},
				func(t *testing.T, r *rig) {
					a := r.admit(prompt(0, 8*tpb))
					r.compute(a.Sequence, 8*tpb)
					one := r.later(ctx, prompt(1000, 8*tpb))
					synctest.Wait()
					two := r.later(ctx, prompt(2000, tpb))
					pending(t, one, two)
					require.NoError(t, r.points.Arm(name))
					r.release(a.Sequence)
					synctest.Wait()
					if len(one) == 0 {
						one, two = two, one
					}
					b := served(t, one)
					require.NoError(t, r.points.Arm(name))
					r.release(b.Sequence)
					r.release(served(t, two).Sequence)
				})
		})
	}
}

// A batch waits until its first request fits; it never waits with a part of it
// admitted, which could be the very pages that it waits for.
func TestABatchWaitsAsAWhole(t *testing.T) {
	inRoom(t, 4, setup{}, func(t *testing.T, r *rig) {
		a := r.admit(prompt(0, 6*tpb))
		done := make(chan []messages.Admitted, 1)
		go func() {
			results, err := r.AdmitBatch(ctx, []messages.AdmitRequest{{}, prompt(1000, 9*tpb),
				prompt(2000, 8*tpb), prompt(3000, tpb)})
			assert.NoError(t, err)
			done <- results
		}()
		synctest.Wait()
		assert.Empty(t, done)
		assert.Equal(t, []int{6}, r.used())
		r.release(a.Sequence)
		results := <-done
		require.ErrorIs(t, results[0].Err, messages.ErrBadRequest)
		require.ErrorIs(t, results[1].Err, messages.ErrOutOfPages)
		require.NoError(t, results[2].Err)
		require.EqualError(t, results[3].Err, "pool wfullh1 needs 1 pages, 0 available")
		r.release(results[2].Sequence)
	})
}

// What the other requests of a batch have claimed is not there for its first. A
// batch that lacks pages for that alone would wait for ever: it is decided as ever.
func TestABatchDoesNotWaitForItself(t *testing.T) {
	inRoom(t, 4, setup{}, func(t *testing.T, r *rig) {
		r.store(run(0, 2*tpb))
		results, err := r.AdmitBatch(ctx, []messages.AdmitRequest{prompt(1000, 7*tpb),
			prompt(0, 2*tpb+1)})
		require.NoError(t, err)
		require.EqualError(t, results[0].Err, "pool wfullh1 needs 7 pages, 6 available")
		require.NoError(t, results[1].Err)
		assert.Equal(t, 2*tpb, results[1].ReusedTokens)
		r.release(results[1].Sequence)
	})
}

// Prompts with multimodal items wait like others: what they lend the tree while
// they are decided they give back.
func TestPromptsWithItemsWait(t *testing.T) {
	inRoom(t, 4, setup{}, func(t *testing.T, r *rig) {
		a := r.admit(prompt(0, 8*tpb))
		q := prompt(1000, 2*tpb)
		q.Multimodal = []messages.MultimodalItem{{Hash: [32]byte{1}, Start: 1, Length: 5}}
		one := r.later(ctx, q)
		synctest.Wait()
		two := r.later(ctx, q)
		pending(t, one, two)
		r.release(a.Sequence)
		b := served(t, one)
		r.compute(b.Sequence, 2*tpb)
		r.release(b.Sequence, served(t, two).Sequence)
		found, err := r.Lookup(ctx, messages.Prefix{Tokens: q.Tokens, Multimodal: q.Multimodal})
		require.NoError(t, err)
		assert.Equal(t, 2*tpb-1, found.MatchedTokens)
	})
}

// A rebalance that leaves a pool too small for who waits ends the wait.
func TestAShrunkPoolRefusesWhoNeverFits(t *testing.T) {
	s := setup{windows: []int{long, 8 * tpb}, pages: []windows.PageCounts{{Primary: 16},
		{Primary: 16}}}
	inRoom(t, 4, s, func(t *testing.T, r *rig) {
		pools := r.Pools()
		a := r.admit(prompt(0, 2*tpb))
		waiting := r.later(ctx, prompt(1000, 15*tpb))
		pending(t, waiting)
		_, err := r.Rebalance(ctx, map[string]float64{pools[0].Name: 0.5, pools[1].Name: 0.5})
		require.NoError(t, err)
		pending(t, waiting)
		_, err = r.Rebalance(ctx, map[string]float64{pools[0].Name: 0.3, pools[1].Name: 0.7})
		require.NoError(t, err)
		synctest.Wait()
		require.ErrorIs(t, (<-waiting).err, messages.ErrOutOfPages)
		r.release(a.Sequence)
	})
}

func TestTheRoomIsSmallerThanTheEngine(t *testing.T) {
	for _, list := range [][]actors.Option{
		{actors.WithWaitingRoom(-1)},
		{actors.WithWaitingRoom(actors.DefaultMaxInFlight)},
		{actors.WithMaxInFlight(2), actors.WithWaitingRoom(2)},
	} {
		s := setup{}
		system := newSystem()
		_, err := actors.Spawn(system.Root, s.config(t), list...)
		require.ErrorContains(t, err, "WithWaitingRoom")
		system.Shutdown()
	}
}

// As many wait as may; a release still gets through.
func TestAFullRoomLetsReleasesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{}, actors.WithMaxInFlight(4), actors.WithWaitingRoom(3))
		a := r.admit(prompt(0, 8*tpb))
		var waiting []chan answer
		for i := range 3 {
			waiting = append(waiting, r.later(ctx, prompt(1000*(i+1), 8*tpb)))
			synctest.Wait()
		}
		for _, c := range waiting {
			r.release(a.Sequence)
			a = served(t, c)
		}
		r.release(a.Sequence)
		r.close()
	})
}
