package actors_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// fallible are the actors that Inject knows, of an engine with one pool.
var fallible = []string{"coordinator", "tree", "offloader", "events", "pool:wfullh1"}

// hostedRig has more contents than device pages, so that every actor has work
// in every admission.
func hostedRig(t *testing.T, list ...actors.Option) *rig {
	r := newRig(t, setup{
		pages:  []windows.PageCounts{{Primary: 14, Secondary: 16}},
		change: func(c *windows.Config) { c.EventBufferMaxSize = 1 << 10 },
	}, list...)
	for i := range 4 {
		r.store(run(100*i, 16))
	}
	return r
}

// restarts collects what the engine tells of its restarts.
func (r *rig) restarts() *[]*messages.Restarted {
	var told []*messages.Restarted
	r.system.EventStream.Subscribe(func(event any) {
		if e, ok := event.(*messages.Restarted); ok {
			told = append(told, e)
		}
	})
	return &told
}

// A call that an actor dies of is answered with the failure, and served when it is repeated;
// sequences go on, and what was stored is found and right.
func TestEveryActorMayFail(t *testing.T) {
	for _, name := range fallible {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := hostedRig(t)
				told := r.restarts()
				s, err := r.start(run(100, 9))
				require.NoError(t, err)
				require.NoError(t, r.points.Arm(name))
				again, err := r.start(run(0, 13))
				require.NoError(t, err)
				require.NoError(t, r.decode(r.writer, s, 7))
				synctest.Wait() // the log on a goroutine of its own may fail after the answer
				stats, err := r.Stats(context.Background())
				require.NoError(t, err)
				assert.EqualValues(t, 1, stats.Restarts)
				require.Len(t, *told, 1)
				assert.Equal(t, name, (*told)[0].Actor)
				assert.Equal(t, 1, (*told)[0].Failures)
				assert.ErrorContains(t, (*told)[0].Cause, "panic on request")
				r.verify(s, again)
				require.NoError(t, r.release(s))
				require.NoError(t, r.release(again))
				r.verify()
				r.close()
			})
		})
	}
}

// A fetch over which a pool fails when its blocks are in host memory already is answered with
// the failure. The next one finds the blocks there.
func TestAFetchThatFailsKeepsWhatCame(t *testing.T) {
	var memory stores.Memory
	first := newRig(t, onePool, withStore(&memory, actors.SaveOnCommit))
	first.store(run(0, 21))
	flushed(t, first)
	first.close()

	r := newRig(t, onePool, withStore(&memory, actors.SaveOnReuse))
	r.store(run(0, 5))
	require.NoError(t, r.points.Arm("pool:wfullh1"))
	_, err := actors.StoreOf(r.Engine).Fetch(context.Background(), messages.Prefix{Tokens: run(0, 21)})
	if err != nil { // a check of the invariants may have met the failure in its place
		require.ErrorIs(t, err, messages.ErrInternal)
	}
	assert.Equal(t, actors.Fetched{Blocks: 0, LocalTokens: 20}, fetched(t, r, run(0, 21)))
	stats, err := r.Stats(context.Background())
	require.NoError(t, err)
	assert.EqualValues(t, 1, stats.Restarts)
	r.verify()
	r.close()
}

// During each kind of request an actor may die; every call is answered.
func TestAnActorMayFailInEveryRequest(t *testing.T) {
	ctx := context.Background()
	for _, name := range fallible {
		for kind, call := range requestsOfAllKinds(ctx) {
			t.Run(name+" "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := hostedRig(t)
					s, err := r.start(run(500, 7))
					require.NoError(t, err)
					require.NoError(t, r.decode(r.writer, s, 1))
					require.NoError(t, r.points.Arm(name))
					if err := call(r, s); err != nil {
						assert.ErrorIs(t, err, messages.ErrInternal)
					}
					// The failpoint may not have been hit yet: it is in one of these. An actor
					// on a goroutine of its own may fail after the answer.
					_ = r.Check(ctx)
					synctest.Wait()
					other, err := r.start(run(200, 9))
					require.NoError(t, err)
					require.NoError(t, r.release(other))
					r.sim.Drain()
					synctest.Wait()
					require.NoError(t, r.Check(ctx))
					r.verify()
					r.close()
				})
			})
		}
	}
}

// requestsOfAllKinds leave the running sequence with the same tokens, or end it.
func requestsOfAllKinds(ctx context.Context) map[string]func(*rig, *sequence) error {
	prefix := messages.Prefix{Tokens: run(0, 16)}
	return map[string]func(*rig, *sequence) error{
		"admit batch": func(r *rig, _ *sequence) error {
			_, err := r.AdmitBatch(ctx, []messages.AdmitRequest{{Tokens: run(0, 5)}, {Tokens: run(100, 6)}})
			return err
		},
		"append":  func(r *rig, s *sequence) error { return r.decode(r.writer, s, 2) },
		"rewind":  func(r *rig, s *sequence) error { return r.RewindOne(ctx, s.id, 1) },
		"release": func(r *rig, s *sequence) error { return r.release(s) },
		"fork": func(r *rig, s *sequence) error {
			forks, err := r.ForkOne(ctx, s.id, 2)
			if err != nil {
				return err
			}
			_, err = r.Append(ctx, []messages.AppendStep{{Sequence: forks[0], Tokens: run(9, 1)},
				{Sequence: forks[1], Tokens: run(8, 3)}})
			return err
		},
		"lookup": func(r *rig, _ *sequence) error { _, err := r.Lookup(ctx, prefix); return err },
		"pin": func(r *rig, _ *sequence) error {
			pinned, err := r.Pin(ctx, prefix)
			if err != nil {
				return err
			}
			// A pin that was lost with the tree is no longer known.
			if err := r.Unpin(ctx, pinned.Pin); err != nil && !errors.Is(err, messages.ErrUnknownPin) {
				return err
			}
			return nil
		},
		"prefetch": func(r *rig, _ *sequence) error { _, err := r.Prefetch(ctx, prefix); return err },
		"invalidate": func(r *rig, _ *sequence) error {
			_, err := r.Invalidate(ctx, messages.Selector{Prefix: &prefix})
			return err
		},
		"reset": func(r *rig, _ *sequence) error { return r.Reset(ctx) },
		"rebalance": func(r *rig, _ *sequence) error {
			_, err := r.Rebalance(ctx, nil)
			return err
		},
		"contents": func(r *rig, _ *sequence) error { _, err := r.Contents(ctx); return err },
		"snapshot": func(r *rig, _ *sequence) error { _, err := r.Snapshot(ctx); return err },
		"events":   func(r *rig, _ *sequence) error { _, err := r.Events(ctx); return err },
		"stats":    func(r *rig, _ *sequence) error { _, err := r.Stats(ctx); return err },
		"scales":   func(r *rig, _ *sequence) error { _, err := r.Scales(ctx); return err },
		"tables": func(r *rig, s *sequence) error {
			_, err := r.TablesOf(ctx, s.id)
			return err
		},
		"admit and commit": func(r *rig, _ *sequence) error {
			_, err := r.start(run(300, 9))
			return err
		},
		"check": func(r *rig, _ *sequence) error { return r.Check(ctx) },
	}
}

// Calls that wait when an actor dies are served after the recovery. The one under way is
// answered with the failure.
func TestCallsThatWaitOutliveAFailure(t *testing.T) {
	for _, name := range fallible {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := hostedRig(t)
				stall, first := r.work()
				require.NoError(t, r.points.Arm(name))
				var waiting []chan error
				for i := range 5 {
					waiting = append(waiting, later(func() error {
						a, err := r.Admit(context.Background(), messages.AdmitRequest{Tokens: run(1000*i, 3)})
						if err == nil {
							_, err = r.Release(context.Background(),
								[]messages.ReleaseStep{{Sequence: a.Sequence, Discard: true}})
						}
						return err
					}))
				}
				synctest.Wait()
				close(stall.released)
				failed := 0
				for _, answered := range append(waiting, first) {
					if err := <-answered; err != nil {
						assert.ErrorIs(t, err, messages.ErrInternal)
						failed++
					}
				}
				assert.LessOrEqual(t, failed, 1)
				r.verify()
				r.close()
			})
		})
	}
}

// The offloader fails over the message that a wait for the device has ended: what waits
// behind it, the recovery's own wait among it, goes on.
func TestTheOffloaderFailsAtTheEndOfAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hostedRig(t)
		s, err := r.start(run(100, 9))
		require.NoError(t, err)
		stuck := r.device.stick()
		require.NoError(t, r.points.Arm("tree"))
		answered := later(func() error { return r.lookup(context.Background()) })
		synctest.Wait() // the recovery waits for the device
		require.NoError(t, r.points.Arm("offloader"))
		close(stuck.released)
		require.ErrorIs(t, <-answered, messages.ErrInternal)
		stats, err := r.Stats(context.Background())
		require.NoError(t, err)
		assert.EqualValues(t, 2, stats.Restarts)
		r.verify(s)
		require.NoError(t, r.release(s))
		r.close()
	})
}

// Too many failures, and the engine has failed: visibly, and every call that
// waits or comes later is answered.
func TestTooManyFailuresEndTheEngine(t *testing.T) {
	for _, name := range fallible {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := hostedRig(t, actors.WithRestartLimit(2, time.Minute))
				// A log that has failed gets no changes before a reader asks.
				read := func() {
					if name == "events" {
						_, _ = r.Events(context.Background())
					}
				}
				for range 2 {
					require.NoError(t, r.points.Arm(name))
					r.store(run(700, 5))
					read()
					synctest.Wait()
				}
				stall, first := r.work()
				require.NoError(t, r.points.Arm(name))
				var waiting []chan error
				for range 3 {
					waiting = append(waiting, later(func() error {
						_, err := r.start(run(900, 5))
						return err
					}))
				}
				synctest.Wait()
				close(stall.released)
				read()
				if err := <-first; err != nil { // it may have been done before
					assert.ErrorIs(t, err, messages.ErrFailed)
				}
				for _, answered := range waiting {
					err := <-answered
					if err == nil && name == "events" {
						continue // served before the log, which no round waits for, failed
					}
					assert.ErrorIs(t, err, messages.ErrFailed)
					assert.ErrorContains(t, err, name)
				}
				synctest.Wait()
				r.everyCall(func(call string, err error) {
					assert.ErrorIs(t, err, messages.ErrFailed, call)
					assert.ErrorContains(t, err, name, "%s tells the cause", call)
				})
				r.awaitKernels()
				_, err := r.Close(context.Background())
				assert.NoError(t, err)
				r.ended()
			})
		})
	}
}

// The actor library gives an actor up at its eleventh panic, without a word. Here
// every one is like the first: it costs one call.
func TestTheEleventhPanicIsLikeTheFirst(t *testing.T) {
	for _, name := range fallible {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := hostedRig(t, actors.WithRestartLimit(1000, time.Hour))
				told := r.restarts()
				s, err := r.start(run(100, 9))
				require.NoError(t, err)
				const panics = 25
				for i := range panics {
					require.NoError(t, r.points.Arm(name))
					require.NoError(t, r.decode(r.writer, s, messages.Token(i)), "panic %d", i+1)
					require.NoError(t, enginetest.Repeat(func() error { return r.Check(context.Background()) }))
					if _, err := r.Events(context.Background()); err != nil { // a reader is told, and reads again
						require.ErrorIs(t, err, messages.ErrInternal)
						require.Equal(t, "events", name)
					}
				}
				synctest.Wait() // an actor on a goroutine of its own may have failed after the last call
				stats, err := r.Stats(context.Background())
				require.NoError(t, err)
				assert.EqualValues(t, panics, stats.Restarts)
				assert.Len(t, *told, panics)
				r.verify(s)
				require.NoError(t, r.release(s))
				r.close()
			})
		})
	}
}

// Unless told otherwise an engine takes five panics in ten seconds.
func TestTheDefaultLimitOfPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hostedRig(t)
		for range 2 {
			for range 5 {
				require.NoError(t, r.points.Arm("tree"))
				r.store(run(700, 5))
			}
			time.Sleep(10 * time.Second)
		}
		for range 6 {
			require.NoError(t, r.points.Arm("tree"))
			_ = r.lookup(context.Background())
		}
		require.ErrorIs(t, r.lookup(context.Background()), messages.ErrFailed)
		r.awaitKernels()
		_, err := r.Close(context.Background())
		assert.NoError(t, err)
		r.ended()
	})
}

// Failures that lie further back are forgiven.
func TestFailuresAreForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hostedRig(t, actors.WithRestartLimit(1, time.Minute))
		for range 5 {
			require.NoError(t, r.points.Arm("tree"))
			r.store(run(700, 5))
			time.Sleep(time.Minute)
		}
		r.verify()
		r.close()
	})
}

func TestInjectKnowsTheActors(t *testing.T) {
	r := newRig(t, setup{})
	assert.ErrorIs(t, r.points.Arm("pool:w9h9"), messages.ErrBadRequest)
	r.close()
}

// A host's actor that stops takes the engine with it: what is still called is
// answered, and Close gives the memory back.
func TestAnEngineEndsWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := newSystem()
		spawned := make(chan *rig, 1)
		parent := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); ok {
				spawned <- newRig(t, setup{parent: ctx}, actors.WithName("engine"))
			}
		}))
		r := <-spawned
		assert.Contains(t, r.PID().Id, parent.Id+"/engine")
		r.store(run(0, 9))
		require.NoError(t, system.Root.StopFuture(parent).Wait())
		err := r.lookup(context.Background())
		require.ErrorIs(t, err, messages.ErrClosed)
		r.awaitKernels()
		_, _ = r.Close(context.Background())
		r.ended()
		shutdown(system)
	})
}

// A host that is an actor gets back what could not be served.
func TestAnActorGetsBackWhatIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hostedRig(t, actors.WithRestartLimit(0, time.Minute))
		answers := make(chan string, 10)
		request := &messages.Lookup{Prefix: messages.Prefix{Tokens: run(0, 9)}}
		pid := r.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			switch m := ctx.Message().(type) {
			case *actor.Started:
				ctx.Request(r.PID(), request)
			case *messages.Lookup:
				answers <- fmt.Sprint("served ", m.Found.MatchedTokens)
				if err := r.points.Arm("tree"); err != nil {
					answers <- err.Error()
				}
				ctx.Request(r.PID(), request)
			case *messages.Aborted:
				assert.Same(t, request, m.Request)
				answers <- "aborted"
			}
		}))
		assert.Equal(t, "served 8", <-answers)
		assert.Equal(t, "aborted", <-answers)
		require.NoError(t, r.system.Root.StopFuture(pid).Wait())
		r.awaitKernels()
		_, err := r.Close(context.Background())
		assert.NoError(t, err)
		r.ended()
	})
}

// A coordinator that is armed to fail otherwise while it is about to fail serves the answer that
// it has in hand, or fails over it: a host arms its engine's actors on goroutines of its own.
func TestCoordinatorArmedAsItFires(t *testing.T) {
	r := hostedRig(t, actors.WithRestartLimit(1<<20, time.Minute))
	done := make(chan struct{})
	armed := later(func() error {
		for {
			select {
			case <-done:
				return nil
			default:
			}
			if err := errors.Join(r.points.Arm("coordinator"), r.points.ArmWithin("coordinator",
				1<<20)); err != nil {
				return err
			}
		}
	})
	for range 500 {
		require.NoError(t, enginetest.Repeat(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_, err := r.Stats(ctx)
			return err
		}))
	}
	close(done)
	require.NoError(t, <-armed)
	r.close()
}
