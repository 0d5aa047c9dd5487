package actors_test

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// In a bubble of synctest a call that no one would ever answer is a deadlock,
// which the bubble reports: every test here is also one of "never hang".

// busyRig is an engine with the prompt [0,16) in its four device pages, which
// an admission of anything else must offload.
func busyRig(t *testing.T, list ...actors.Option) *rig {
	r := newRig(t, setup{
		pages:  []windows.PageCounts{{Primary: 4, Secondary: 8}},
		change: func(c *windows.Config) { c.OffloadAhead = false },
	}, list...)
	r.store(run(0, 16))
	return r
}

// work keeps the engine at work until the stall is released; its answer comes
// through the channel.
func (r *rig) work() (*stall, chan error) {
	s := r.device.stall()
	answered := make(chan error, 1)
	go func() {
		_, err := r.Admit(context.Background(), messages.AdmitRequest{Tokens: run(100, 4)})
		answered <- err
	}()
	<-s.reached
	return s, answered
}

// later makes a call of its own goroutine.
func later(call func() error) chan error {
	answered := make(chan error, 1)
	go func() { answered <- call() }()
	return answered
}

func (r *rig) lookup(ctx context.Context) error {
	_, err := r.Lookup(ctx, messages.Prefix{Tokens: run(0, 9)})
	return err
}

func TestACallWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := busyRig(t)
		stall, first := r.work()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		assert.ErrorIs(t, r.lookup(ctx), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))

		ctx, stop := context.WithCancel(context.Background())
		waiting := later(func() error {
			_, err := r.Admit(ctx, messages.AdmitRequest{Tokens: run(200, 4)})
			return err
		})
		synctest.Wait()
		stop()
		assert.ErrorIs(t, <-waiting, context.Canceled)

		close(stall.released)
		require.NoError(t, <-first)
		stats, err := r.Stats(context.Background())
		require.NoError(t, err)
		assert.Equal(t, 1, stats.Sequences, "what was cancelled has not begun")
		r.verify()
		r.close()
	})
}

// What has begun is answered, though its context has ended meanwhile: the
// caller would not know what it holds otherwise.
func TestACallThatHasBegunIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := busyRig(t)
		s := r.device.stall()
		ctx, cancel := context.WithCancel(context.Background())
		var a messages.Admitted
		answered := later(func() (err error) {
			a, err = r.Admit(ctx, messages.AdmitRequest{Tokens: run(100, 4)})
			return err
		})
		<-s.reached
		cancel()
		synctest.Wait()
		close(s.released)
		require.NoError(t, <-answered)
		_, err := r.TablesOf(context.Background(), a.Sequence)
		assert.NoError(t, err)
		r.close()
	})
}

func TestAContextThatHasEndedStartsNothing(t *testing.T) {
	r := newRig(t, setup{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.Admit(ctx, messages.AdmitRequest{Tokens: run(0, 4)})
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, r.Check(ctx), context.Canceled)
	stats, err := r.Stats(context.Background())
	require.NoError(t, err)
	assert.Zero(t, stats.Sequences)
	assert.EqualValues(t, 1, stats.Rounds)
	r.close()
}

// Over the bound calls enter in the order in which they came.
func TestTheGateLetsCallsInInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := busyRig(t, actors.WithMaxInFlight(1))
		stall, first := r.work()
		var pins [5]messages.PinID // later ones are greater
		var all []chan error
		for i := range pins {
			all = append(all, later(func() (err error) {
				pinned, err := r.Pin(context.Background(), messages.Prefix{Tokens: run(0, 9)})
				pins[i] = pinned.Pin
				return err
			}))
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		assert.ErrorIs(t, r.lookup(ctx), context.DeadlineExceeded,
			"at the gate a call heeds its context too")
		cancel()
		close(stall.released)
		require.NoError(t, <-first)
		for _, answered := range all {
			require.NoError(t, <-answered)
		}
		assert.True(t, slices.IsSorted(pins[:]), pins)
		r.close()
	})
}

// A place that comes free in the moment in which its call gives up is passed on.
func TestTheGateLosesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := busyRig(t, actors.WithMaxInFlight(2))
		for range 50 {
			ctx, cancel := context.WithCancel(context.Background())
			var all []chan error
			for range 6 {
				all = append(all, later(func() error { return r.lookup(ctx) }))
			}
			all = append(all, later(func() error { return r.lookup(context.Background()) }))
			cancel()
			for _, answered := range all {
				if err := <-answered; err != nil {
					require.ErrorIs(t, err, context.Canceled)
				}
			}
		}
		assert.NoError(t, r.lookup(context.Background()))
		r.close()
	})
}

func TestABusyEngineRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := busyRig(t, actors.WithMaxInFlight(2), actors.WithBusyRefusal())
		stall, first := r.work()
		second := later(func() error { return r.lookup(context.Background()) })
		synctest.Wait()
		err := r.lookup(context.Background())
		assert.ErrorIs(t, err, messages.ErrBusy)
		assert.EqualError(t, err, "2 calls are in flight")
		close(stall.released)
		require.NoError(t, <-first)
		require.NoError(t, <-second)
		assert.NoError(t, r.lookup(context.Background()))
		r.close()
	})
}

func TestCloseServesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := busyRig(t)
		stall, first := r.work()
		waiting := later(func() error { return r.lookup(context.Background()) })
		synctest.Wait()
		leaked := 0
		closed := later(func() (err error) {
			leaked, err = r.Close(context.Background())
			return err
		})
		synctest.Wait()
		assert.ErrorIs(t, r.lookup(context.Background()), messages.ErrClosed, "too late")
		again := later(func() error {
			n, err := r.Close(context.Background())
			assert.Equal(t, 1, n)
			return err
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := r.Close(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "a second Close waits for the first")
		close(stall.released)
		require.NoError(t, <-first)
		require.NoError(t, <-waiting)
		require.NoError(t, <-closed)
		require.NoError(t, <-again)
		assert.Equal(t, 1, leaked, "the page of the one that runs")
		r.ended()
	})
}

// Those that wait at the gate have not been accepted.
func TestCloseRefusesWhatWaitsAtTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := busyRig(t, actors.WithMaxInFlight(1))
		stall, first := r.work()
		atTheGate := later(func() error { return r.lookup(context.Background()) })
		synctest.Wait()
		closed := later(func() error {
			_, err := r.Close(context.Background())
			return err
		})
		synctest.Wait()
		close(stall.released)
		require.NoError(t, <-first)
		assert.ErrorIs(t, <-atTheGate, messages.ErrClosed)
		require.NoError(t, <-closed)
		r.ended()
	})
}

func TestACloseThatMayNotWaitAbortsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := busyRig(t)
		stall, first := r.work()
		waiting := later(func() error { return r.lookup(context.Background()) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		closed := later(func() error {
			_, err := r.Close(ctx)
			return err
		})
		time.Sleep(2 * time.Second)
		close(stall.released)
		assert.ErrorIs(t, <-closed, context.DeadlineExceeded)
		for _, answered := range []chan error{first, waiting} {
			if err := <-answered; err != nil {
				assert.ErrorIs(t, err, messages.ErrClosed)
			}
		}
		shutdown(r.system)
	})
}

// A device that never comes to an end does not hold Close up: at its deadline all
// who wait get an error, at the gate, in the queue and in the round under way.
func TestACloseEndsWithItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t,
			setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 8}, {Primary: 8}}},
			actors.WithMaxInFlight(4))
		ctx := context.Background()
		_, err := r.start(run(0, 16))
		require.NoError(t, err)
		stuck := r.device.stick()
		require.NoError(t, r.points.Arm("tree")) // the recovery waits for the kernel of the prompt
		var waiting []chan error
		for range 7 {
			waiting = append(waiting, later(func() error { return r.lookup(ctx) }))
		}
		synctest.Wait()
		require.ErrorIs(t, r.Submit(&inspect.Check{}, func(error) {}), messages.ErrBusy,
			"the gate is full")
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		start := time.Now()
		_, err = r.Close(short)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		assert.ErrorContains(t, err, "the pools keep their memory")
		assert.Zero(t, r.device.given.Load(), "what kernels may still write to is not given away")
		for _, answered := range waiting {
			assert.ErrorIs(t, <-answered, messages.ErrClosed)
		}
		short, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = r.Close(short)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "the second one waits, too")
		assert.Zero(t, r.device.given.Load())
		close(stuck.released)
		_, err = r.Close(ctx)
		assert.NoError(t, err)
		r.awaitKernels()
		r.ended()
	})
}

// everyCall makes each call that the facade has, with arguments of no value.
func (r *rig) everyCall(answered func(name string, err error)) {
	asked := 0
	engine := reflect.ValueOf(r.Engine)
	for i := range engine.NumMethod() {
		name, m := engine.Type().Method(i).Name, engine.Method(i)
		if takes := m.Type(); takes.NumIn() == 0 || takes.In(0) != reflect.TypeFor[context.Context]() ||
			name == "Close" {
			continue
		}
		asked++
		arguments := []reflect.Value{reflect.ValueOf(context.Background())}
		for n := 1; n < m.Type().NumIn(); n++ {
			arguments = append(arguments, reflect.Zero(m.Type().In(n)))
		}
		if name == "Do" {
			arguments[1] = reflect.ValueOf(&inspect.ReadStats{})
		}
		results := m.Call(arguments)
		err, _ := results[len(results)-1].Interface().(error)
		answered(name, err)
	}
	assert.Greater(r.t, asked, 20, "calls")
	answered("Submit", r.Submit(&inspect.ReadStats{}, func(error) {}))
}

func TestACallAfterCloseIsRefused(t *testing.T) {
	r := newRig(t, setup{})
	r.store(run(0, 9))
	r.close()
	ctx := context.Background()
	r.everyCall(func(name string, err error) { assert.ErrorIs(t, err, messages.ErrClosed, name) })
	leaked, err := r.Close(ctx)
	assert.NoError(t, err)
	assert.Zero(t, leaked)
}

// Calls that race with Close are served or refused, never left.
func TestCallsThatRaceWithClose(t *testing.T) {
	for range 200 {
		r := newRig(t,
			setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 8}, {Primary: 8}}})
		var hosts sync.WaitGroup
		for i := range 8 {
			hosts.Go(func() {
				for {
					_, err := r.Lookup(context.Background(), messages.Prefix{Tokens: run(i, 9)})
					if i%4 == 0 && err == nil {
						_, err = r.Rebalance(context.Background(), nil)
					}
					if err != nil {
						assert.ErrorIs(t, err, messages.ErrClosed)
						return
					}
				}
			})
		}
		_, err := r.Close(context.Background())
		assert.NoError(t, err)
		hosts.Wait()
		r.ended()
	}
}

// Submit calls back once, whatever happens.
func TestSubmitAnswersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := busyRig(t, actors.WithMaxInFlight(3))
		stall, first := r.work()
		answers := make(chan error, 9)
		for range 2 {
			require.NoError(t, r.Submit(&inspect.ReadStats{}, func(err error) { answers <- err }))
		}
		assert.ErrorIs(t, r.Submit(&inspect.ReadStats{}, func(err error) { answers <- err }),
			messages.ErrBusy)
		close(stall.released)
		require.NoError(t, <-first)
		require.NoError(t, <-answers)
		require.NoError(t, <-answers)
		r.close()
		assert.Empty(t, answers)
	})
}

// With the default clock durations are those of the wall.
func TestRetentionRunsByTheDefaultClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{change: func(c *windows.Config) { c.EventBufferMaxSize = 100 }})
		ctx := context.Background()
		a, err := r.Admit(ctx, messages.AdmitRequest{Tokens: run(0, 8), Retention: &messages.Retention{
			Ranges: []messages.RetentionRange{{Start: 0, End: messages.EndOfPrompt, Priority: 80,
				Duration: time.Minute}},
		}})
		require.NoError(t, err)
		_, err = r.Commit(ctx, []messages.CommitStep{{Sequence: a.Sequence, Computed: 8}})
		require.NoError(t, err)
		_, err = r.Release(ctx, []messages.ReleaseStep{{Sequence: a.Sequence}})
		require.NoError(t, err)
		time.Sleep(time.Minute - time.Nanosecond)
		assert.Empty(t, priorities(t, r))
		time.Sleep(time.Nanosecond)
		assert.Equal(t, [][2]messages.Priority{{80, 35}, {80, 35}}, priorities(t, r))
		r.close()
	})
}

// priorities lists the changes of priority since the last call. Timers act
// with a request, so there is one before.
func priorities(t *testing.T, r *rig) (changes [][2]messages.Priority) {
	require.NoError(t, r.lookup(context.Background()))
	batch, err := r.Events(context.Background())
	require.NoError(t, err)
	for _, e := range batch.Events {
		if e.Type == kvevents.EventUpdated && !e.TierChanged {
			changes = append(changes, [2]messages.Priority{e.OldPriority, e.NewPriority})
		}
	}
	return changes
}

// Every refusal of the facade is a *messages.Refusal, for errors.Is and As.
func TestRefusalsAreRefusals(t *testing.T) {
	r := newRig(t, setup{})
	_, err := r.Admit(context.Background(), messages.AdmitRequest{Tokens: run(0, 100)})
	var refusal *messages.Refusal
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, messages.Refusal{
		Code: messages.ErrOutOfPages, Message: "pool wfullh1 needs 25 pages and has 8", Pool: "wfullh1",
		Need: 25, Available: 8, Total: 8, Never: true,
	}, *refusal)
	assert.ErrorIs(t, r.RewindOne(context.Background(), 77, 1), messages.ErrUnknownSequence)
	assert.ErrorIs(t, r.Unpin(context.Background(), 77), messages.ErrUnknownPin)
	r.close()
}
