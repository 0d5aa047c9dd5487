package survival_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// cancelling is a crowd of callers whose contexts end at random.
type cancelling struct {
	*rig
	cancelled, refused, served atomic.Int64
}

// shortContext gives a context that ends within the time that an admission takes, or
// that has ended.
func shortContext(random *rand.Rand) (context.Context, context.CancelFunc) {
	c, cancel := context.WithCancel(ctx)
	switch random.IntN(4) {
	case 0:
		cancel()
	case 1:
		go func() {
			for range random.IntN(50) {
				_ = c.Err()
			}
			cancel()
		}()
	default:
		time.AfterFunc(time.Duration(random.IntN(1000))*time.Microsecond, cancel)
	}
	return c, cancel
}

// requests draws one or several admissions of all kinds.
func requests(random *rand.Rand) []messages.AdmitRequest {
	list := make([]messages.AdmitRequest, 1+random.IntN(3))
	for i := range list {
		q := prompt(100*random.IntN(3), 1+random.IntN(10*tpb))
		switch random.IntN(4) {
		case 0:
			q.ChunkTokens = tpb * (1 + random.IntN(2))
		case 1:
			q.BeamWidth = 1 + random.IntN(2)
		case 2:
			q.Multimodal = []messages.MultimodalItem{{Hash: [32]byte{byte(random.IntN(2))}, Length: 1}}
		}
		list[i] = q
	}
	return list
}

// caller admits and releases what it was given.
func (c *cancelling) caller(seed uint64, calls int) {
	random := rand.New(rand.NewPCG(seed, 1))
	own := rand.New(rand.NewPCG(seed, 2)) // of the goroutines that cancel
	for range calls {
		short, cancel := shortContext(rand.New(rand.NewPCG(own.Uint64(), 3)))
		results, err := c.AdmitBatch(short, requests(random))
		cancel()
		if err != nil {
			c.cancelled.Add(1)
			if !errors.Is(err, context.Canceled) {
				c.t.Errorf("a call was answered with %v", err)
			}
			continue
		}
		c.releaseSome(random, results)
	}
}

// releaseSome releases what was admitted; some of it after a step.
func (c *cancelling) releaseSome(random *rand.Rand, results []messages.Admitted) {
	var steps []messages.ReleaseStep
	for _, a := range results {
		if a.Err != nil {
			c.refused.Add(1)
			if !errors.Is(a.Err, messages.ErrOutOfPages) {
				c.t.Errorf("an admission was refused with %v", a.Err)
			}
			continue
		}
		c.served.Add(1)
		if random.IntN(2) == 0 {
			// It ends before the first block of some chunked prompts: refused, and harmless.
			if _, err := c.Commit(ctx,
				[]messages.CommitStep{{Sequence: a.Sequence, Computed: a.ReusedTokens/tpb*tpb +
					tpb}}); err != nil {
				c.t.Error(err)
			}
		}
		steps = append(steps, messages.ReleaseStep{Sequence: a.Sequence, Discard: random.IntN(4) == 0})
	}
	if _, err := c.Release(ctx, steps); err != nil {
		c.t.Error(err)
	}
}

// Admissions are cancelled at any moment: at the end nothing is taken, nothing
// reserved, and everything can be.
func TestCancelledAdmissionsLeaveNothingTaken(t *testing.T) {
	for name, room := range map[string]int{"refused": 0, "waiting": 8, "a room for all": 64} {
		t.Run(name, func(t *testing.T) {
			pages := windows.PageCounts{Primary: 12, Secondary: 6}
			r := newRig(t, setup{windows: []int{long, 3 * tpb}, pages: []windows.PageCounts{pages, pages}},
				actors.WithWaitingRoom(room))
			c := &cancelling{rig: r}
			var crowd sync.WaitGroup
			for i := range 8 {
				crowd.Go(func() { c.caller(uint64(i), 400) })
			}
			crowd.Wait()
			c.nothingTaken(pages.Primary)
			t.Logf("%d cancelled, %d refused, %d served", c.cancelled.Load(), c.refused.Load(),
				c.served.Load())
			assert.NotZero(t, c.cancelled.Load())
			assert.NotZero(t, c.served.Load())
			r.close()
		})
	}
}

// The moments of an admission are the messages of its round. Its caller goes away
// before, between and after all of them: what is answered is held and can be let
// go, what is not has taken nothing.
func TestAnAdmissionIsCancelledAtEachOfItsMoments(t *testing.T) {
	for name, list := range map[string][]actors.Option{"refused": nil,
		"waiting": {actors.WithWaitingRoom(4)}} {
		for _, large := range []bool{false, true} { // it fits, or waits
			t.Run(fmt.Sprintf("%s, large %v", name, large), func(t *testing.T) {
				answers := map[bool]int{}
				for moment := 0; ; moment++ {
					over := false
					synctest.Test(t, func(t *testing.T) { over = cancelAt(t, moment, large, answers, list) })
					if over {
						t.Logf("%d moments, served at %d of them, not at %d", moment, answers[true], answers[false])
						break
					}
				}
				assert.NotZero(t, answers[false], "some were cancelled, or refused")
				assert.Equal(t, !large, answers[true] > 0, "some were served")
			})
		}
	}
}

// cancelAt cancels an admission when so many messages were received, and tells
// whether it was over by then.
func cancelAt(
	t *testing.T, moment int, large bool, answers map[bool]int, list []actors.Option,
) (over bool) {
	scheduler := mailbox.NewScheduler(uint64(moment))
	pages := windows.PageCounts{Primary: 8, Secondary: 4}
	r := newRig(t, setup{windows: []int{long, 3 * tpb}, pages: []windows.PageCounts{pages, pages}},
		append(list, enginetest.WithScheduler(scheduler))...)
	until := func(done func() bool) {
		for !done() {
			synctest.Wait()
			scheduler.Step()
		}
	}
	call := func(do func()) {
		var done atomic.Bool
		go func() {
			defer done.Store(true)
			do()
		}()
		until(done.Load)
	}
	var held messages.Admitted
	call(func() { r.store(run(0, 12)) })
	if large {
		call(func() { held = r.admit(prompt(500, 5*tpb)) })
	}
	leaving, cancel := context.WithCancel(ctx)
	defer cancel()
	q := prompt(0, 6*tpb) // reuses two blocks
	q.ChunkTokens = 2 * tpb
	waiting := r.later(leaving, q)
	for range moment {
		synctest.Wait()
		scheduler.Step()
	}
	synctest.Wait()
	over = len(waiting) > 0 || scheduler.Runnable() == 0 && moment > 0
	cancel()
	until(func() bool { return len(waiting) > 0 })
	got := <-waiting
	answers[got.err == nil]++
	call(func() {
		if got.err == nil {
			r.release(got.admitted.Sequence)
		}
		if large {
			r.release(held.Sequence)
		}
		r.nothingTaken(pages.Primary)
		_, err := r.Close(ctx)
		require.NoError(t, err)
	})
	r.end()
	return over
}

// nothingTaken fails if anything is held or reserved.
func (r *rig) nothingTaken(pages int) {
	r.t.Helper()
	stats, err := r.Stats(ctx)
	require.NoError(r.t, err)
	assert.Zero(r.t, stats.Sequences)
	assert.Equal(r.t, []int{0, 0}, r.used())
	require.NoError(r.t, r.Check(ctx))
	a := r.admit(prompt(5000, pages*tpb))
	assert.Equal(r.t, []int{pages, pages}, r.used(), "no reserve is left")
	r.release(a.Sequence)
}

// Everything is cancelled while it waits in the room, and the pages are still
// those of no one but the one who has them.
func TestAllWhoWaitAreCancelled(t *testing.T) {
	inRoom(t, 16, setup{}, func(t *testing.T, r *rig) {
		a := r.admit(prompt(0, 8*tpb))
		leaving, cancel := context.WithCancel(ctx)
		var waiting []chan answer
		for i := range 16 {
			waiting = append(waiting, r.later(leaving, prompt(1000*(i+1), 3*tpb)))
		}
		pending(t, waiting...)
		cancel()
		synctest.Wait()
		for _, c := range waiting {
			require.ErrorIs(t, (<-c).err, context.Canceled)
		}
		require.NoError(t, r.Check(ctx))
		r.release(a.Sequence)
		assert.Equal(t, []int{0}, r.used())
		r.release(r.admit(prompt(9000, 8*tpb)).Sequence)
	})
}

// A context that ends in the very round that would send its call to the room:
// the call is answered at the end of the round and takes up no place.
func TestACallLeavesWhileItIsChecked(t *testing.T) {
	var hook atomic.Pointer[func()] // of the next round's start
	s := setup{clock: func() time.Duration {
		if do := hook.Swap(nil); do != nil {
			(*do)()
		}
		return 0
	}}
	inRoom(t, 1, s, func(t *testing.T, r *rig) {
		a := r.admit(prompt(0, 8*tpb))
		busy := make(chan struct{})
		stall := func() { <-busy }
		hook.Store(&stall)
		looked := make(chan error)
		go func() {
			_, err := r.Lookup(ctx, messages.Prefix{Tokens: run(0, 1)})
			looked <- err
		}()
		synctest.Wait() // the engine is at work on another's call
		leaving, cancel := context.WithCancel(ctx)
		gone := r.later(leaving, prompt(1000, tpb))
		synctest.Wait()
		leave := func() {
			cancel()
			time.Sleep(time.Second)
		}
		hook.Store(&leave)
		close(busy)
		require.NoError(t, <-looked)
		time.Sleep(time.Minute)
		require.Len(t, gone, 1)
		require.ErrorIs(t, (<-gone).err, context.Canceled)
		waiting := r.later(ctx, prompt(2000, tpb))
		pending(t, waiting)
		r.release(a.Sequence)
		r.release(served(t, waiting).Sequence)
	})
}

// A call with a deadline waits no longer than that.
func TestADeadlineEndsTheWait(t *testing.T) {
	inRoom(t, 1, setup{}, func(t *testing.T, r *rig) {
		a := r.admit(prompt(0, 8*tpb))
		start := time.Now()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := r.Admit(short, prompt(1000, tpb))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		r.release(a.Sequence)
	})
}
