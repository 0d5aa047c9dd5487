package actors_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// panicNow makes the host's actor of these tests panic.
type panicNow struct{}

// restartingHost is a host's actor that starts an engine when it starts, with no
// page counts: the engine takes its share of the memory that is free.
type restartingHost struct {
	config  actors.Config
	engines chan *actors.Engine
}

func (h *restartingHost) Receive(ctx actor.Context) {
	switch ctx.Message().(type) {
	case *actor.Started:
		e, err := actors.Spawn(ctx, h.config, actors.WithName("engine"))
		if err != nil {
			panic(err)
		}
		h.engines <- e
	case *panicNow:
		panic("a bug of the host")
	}
}

// startRestartingHost starts the host on a device.
func startRestartingHost(
	t *testing.T, system *actor.ActorSystem, device gpu.Device,
) (*restartingHost, *actor.PID) {
	t.Helper()
	h := &restartingHost{config: (&setup{}).config(device), engines: make(chan *actors.Engine, 1)}
	h.config.Pages = nil
	return h, system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return h }))
}

// A host's actor that is restarted spawns its engine again, which finds all the
// memory free: the first one has given it back, though kernels still used it, and
// though nothing has called Close.
func TestARestartedHostFindsTheMemoryFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
		require.NoError(t, err)
		compute, err := device.NewStream("compute")
		require.NoError(t, err)
		system := newSystem()
		host, pid := startRestartingHost(t, system, device)
		first := <-host.engines
		pages := first.Pools()[0].PrimaryPages
		var old messages.Admitted
		for range 4 {
			old, err = first.Admit(context.Background(), messages.AdmitRequest{Tokens: run(0, 9)})
			require.NoError(t, err)
			kernel, err := device.Launch(compute, gpu.Kernel{Label: "slow", Nanos: 1e6})
			require.NoError(t, err)
			_, err = first.Commit(context.Background(),
				[]messages.CommitStep{{Sequence: old.Sequence, Computed: 9, After: kernel}})
			require.NoError(t, err)

			system.Root.Send(pid, &panicNow{})
			next := <-host.engines
			assert.Equal(t, pages, next.Pools()[0].PrimaryPages)
			_, err = next.TablesOf(context.Background(), old.Sequence)
			assert.ErrorIs(t, err, messages.ErrUnknownSequence, "an id of the engine before")
			_, err = first.Stats(context.Background())
			assert.ErrorIs(t, err, messages.ErrClosed)
			leaked, err := first.Close(context.Background())
			assert.NoError(t, err)
			assert.Equal(t, 3, leaked)
			first = next
		}
		require.NoError(t, system.Root.StopFuture(pid).Wait())
		_, err = first.Close(context.Background())
		require.NoError(t, err)
		memory, err := device.Memory()
		require.NoError(t, err)
		assert.Equal(t, memory.Total, memory.Free)
		require.NoError(t, device.Close())
		shutdown(system)
	})
}

// Streams are given back: an engine may be started as often as one likes.
func TestStreamsAreGivenBack(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	system := newSystem()
	for range 400 { // a device has some thousand streams
		e, err := actors.Spawn(system.Root, (&setup{}).config(device))
		require.NoError(t, err)
		_, err = e.Close(context.Background())
		require.NoError(t, err)
	}
	require.NoError(t, device.Close())
	shutdown(system)
}

// What comes to an engine that has ended, or that has failed, goes back to the host's
// actor that has sent it, in an Aborted with the record.
func TestRequestsToAnEngineThatHasEnded(t *testing.T) {
	ends := map[string]struct {
		end  func(r *rig)
		want error
	}{
		"closed": {func(r *rig) { r.awaitKernels(); _, _ = r.Close(context.Background()) },
			messages.ErrClosed},
		"failed": {func(r *rig) {
			for range 2 {
				require.NoError(r.t, r.points.Arm("tree"))
				_ = r.lookup(context.Background())
			}
		}, messages.ErrFailed},
	}
	for name, x := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, setup{}, actors.WithRestartLimit(1, time.Minute))
				x.end(r)
				synctest.Wait()
				request := &messages.Admit{Requests: []messages.AdmitRequest{{Tokens: run(0, 5)}}}
				got := make(chan any, 8)
				asker := r.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
					switch m := ctx.Message().(type) {
					case *actor.Started:
						ctx.Watch(r.PID())
						ctx.Request(r.PID(), request)
					case *messages.Aborted, *actor.Terminated, *actor.DeadLetterResponse:
						got <- m
					}
				}))
				synctest.Wait()
				require.Len(t, got, 2)
				for range 2 {
					switch m := (<-got).(type) {
					case *messages.Aborted:
						assert.Same(t, request, m.Request)
						assert.ErrorIs(t, m.Err, x.want)
					case *actor.Terminated:
						assert.Equal(t, r.PID().Id, m.Who.Id)
					default:
						t.Errorf("%T", m)
					}
				}
				require.NoError(t, r.system.Root.StopFuture(asker).Wait())
				r.awaitKernels()
				_, _ = r.Close(context.Background())
				r.ended()
			})
		})
	}
}

// The parent of an engine is stopped in the middle of a round: calls are told that
// the engine is closed, and Close tells what was held.
func TestAParentIsStoppedInARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := newSystem()
		spawned := make(chan *rig, 1)
		parent := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); ok {
				spawned <- newRig(t, setup{
					parent: ctx, pages: []windows.PageCounts{{Primary: 8, Secondary: 8}},
					// A page that was copied ahead needs no copy when it is evicted, and nothing would stall.
					change: func(c *windows.Config) { c.OffloadAhead = false },
				})
			}
		}))
		r := <-spawned
		r.store(run(500, 32))
		var held []*sequence
		for i := range 3 {
			s, err := r.start(run(100*i, 4))
			require.NoError(t, err)
			held = append(held, s)
		}
		synctest.Wait()
		r.awaitKernels()
		stall := r.device.stall()
		first := later(func() error { return r.decode(r.writer, held[0], 1) })
		<-stall.reached
		waiting := later(func() error { return r.lookup(context.Background()) })
		synctest.Wait()
		system.Root.Stop(parent)
		synctest.Wait()
		close(stall.released)
		for _, answered := range []chan error{first, waiting} {
			if err := <-answered; err != nil { // the step may have been done before
				assert.ErrorIs(t, err, messages.ErrClosed)
			}
		}
		synctest.Wait()
		assert.ErrorIs(t, r.lookup(context.Background()), messages.ErrClosed)
		leaked, err := r.Close(context.Background())
		require.NoError(t, err)
		assert.GreaterOrEqual(t, leaked, 3)
		r.ended()
		shutdown(system)
	})
}

// A Close that has given up is followed by one that has more time: the memory is
// given back after all.
func TestACloseGoesOnWhereTheLastGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{
			pages: []windows.PageCounts{{Primary: 4, Secondary: 8}},
			// A page that was copied ahead needs no copy when it is evicted, and nothing would stall.
			change: func(c *windows.Config) { c.OffloadAhead = false },
		})
		r.store(run(0, 16))
		s, err := r.start(run(100, 4))
		require.NoError(t, err)
		r.awaitKernels()
		stall := r.device.stall()
		answered := later(func() error { _, err := r.start(run(200, 12)); return err })
		<-stall.reached
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		before := time.Now()
		_, err = r.Close(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "have not stopped")
		assert.Less(t, time.Since(before), 2*time.Second)
		assert.Zero(t, r.device.given.Load())
		close(stall.released)
		<-answered
		r.awaitKernels()
		leaked, err := r.Close(context.Background())
		require.NoError(t, err)
		assert.Positive(t, leaked)
		again, err := r.Close(context.Background())
		require.NoError(t, err)
		assert.Equal(t, leaked, again)
		_ = s
		r.ended()
	})
}

// The stack of a panic is in what the engine publishes, in its log and in the error
// of the request that was given up.
func TestTheStackOfAPanicIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		r := newRig(t, setup{}, actors.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			actors.WithRestartLimit(1, time.Minute))
		told := r.restarts()
		require.NoError(t, r.points.Arm("tree"))
		var aborted *messages.Panic
		require.ErrorAs(t, r.lookup(context.Background()), &aborted)
		require.Len(t, *told, 1)
		const frame = "(*treeActor).receive"
		assert.Contains(t, (*told)[0].Cause.Stack, frame)
		assert.Equal(t, "tree", (*told)[0].Cause.Actor)
		assert.Contains(t, log.String(), frame)
		assert.Contains(t, log.String(), "an actor panicked")
		assert.Contains(t, log.String(), `msg="kvactor: the engine has started"`)
		assert.Contains(t, log.String(), "wfullh1.pages=8 wfullh1.host_pages=0")
		assert.Contains(t, log.String(), `level=WARN msg="kvactor: the engine has recovered"`)
		assert.Contains(t, log.String(), "lost_sequences=0")

		require.NoError(t, r.points.Arm("tree"))
		err := r.lookup(context.Background())
		require.ErrorIs(t, err, messages.ErrFailed)
		var cause *messages.Panic
		require.ErrorAs(t, err, &cause)
		assert.Contains(t, cause.Stack, frame)
		assert.Contains(t, log.String(), "the engine has failed")
		r.awaitKernels()
		_, err = r.Close(context.Background())
		require.NoError(t, err)
		r.ended()
	})
}

// syncBuffer is a buffer for a log that several goroutines write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// An engine says nothing unless it is told where, whatever happens to it.
func TestAnEngineIsSilent(t *testing.T) {
	if os.Getenv("KVACTOR_SILENT") != "" {
		device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
		require.NoError(t, err)
		var points enginetest.Failpoints
		e, err := actors.Spawn(actors.NewSystem(nil).Root, (&setup{}).config(device),
			enginetest.WithFailpoints(&points), actors.WithRestartLimit(0, time.Minute))
		require.NoError(t, err)
		require.NoError(t, points.Arm("tree"))
		_, err = e.Lookup(context.Background(), messages.Prefix{Tokens: run(0, 5)})
		require.ErrorIs(t, err, messages.ErrFailed)
		_, err = e.Close(context.Background())
		require.NoError(t, err)
		os.Exit(0)
	}
	out, err := subprocess("TestAnEngineIsSilent", "KVACTOR_SILENT=1")
	require.NoError(t, err, "%s", out)
	assert.Empty(t, strings.TrimSpace(out))
}

// subprocess runs one test of this program in a process of its own.
func subprocess(test, env string) (string, error) {
	c := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	c.Env = append(os.Environ(), env)
	out, err := c.CombinedOutput()
	return string(out), err
}

// A panic of the host's function is the host's: it ends the program, with the stack
// of the function, and no actor is restarted for it.
func TestAPanicOfTheHostIsTheHosts(t *testing.T) {
	callbacks := map[string]func(*actors.Engine, *bool){
		"Submit": func(e *actors.Engine, _ *bool) {
			_ = e.Submit(&inspect.ReadStats{}, func(error) { panicInHost() })
		},
		"WithClock": func(e *actors.Engine, clock *bool) {
			*clock = true
			_, _ = e.Stats(context.Background())
		},
	}
	if name := os.Getenv("KVACTOR_CALLBACK"); name != "" {
		device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
		require.NoError(t, err)
		broken := false
		system := actors.NewSystem(nil)
		system.EventStream.Subscribe(func(event any) {
			if _, ok := event.(*messages.Restarted); ok {
				os.Stderr.WriteString("an actor was restarted")
			}
		})
		e, err := actors.Spawn(system.Root, (&setup{}).config(device),
			actors.WithClock(func() time.Duration {
				if broken {
					panicInHost()
				}
				return 0
			}))
		require.NoError(t, err)
		callbacks[name](e, &broken)
		select {}
	}
	for name := range callbacks {
		out, err := subprocess("TestAPanicOfTheHostIsTheHosts", "KVACTOR_CALLBACK="+name)
		require.Error(t, err, name)
		assert.Contains(t, out, "kvactor: the host's function for "+name+" panicked: a bug of the host")
		assert.Contains(t, out, "panicInHost")
		assert.NotContains(t, out, "restarted")
	}
}

func panicInHost() { panic("a bug of the host") }
