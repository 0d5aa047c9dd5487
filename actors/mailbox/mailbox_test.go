package mailbox_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/actors/mailbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is a message with a slot, as the engine's are.
type request struct {
	slot   slot
	id     int
	served int
	err    error
}

func (r *request) Abort(err error) {
	if r.slot.Done() {
		return
	}
	r.err = err
	r.slot.Finish()
}

// wait waits for the answer; the tests' answers always come.
func (r *request) wait(tb testing.TB) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(tb, r.slot.Wait(ctx), "request %d was answered by no one", r.id)
	return r.err
}

// newSystem makes a silent actor system whose dead letters leave no goroutine.
func newSystem(tb testing.TB) *actor.ActorSystem {
	tb.Helper()
	system := actor.NewActorSystem(
		actor.WithLoggerFactory(
			func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
		actor.WithDeadLetterThrottleInterval(time.Millisecond),
	)
	tb.Cleanup(system.Shutdown)
	return system
}

// spawn starts an actor.
func spawn(
	tb testing.TB, system *actor.ActorSystem, receive func(actor.Context),
	options ...actor.PropsOption,
) *actor.PID {
	tb.Helper()
	pid := system.Root.Spawn(actor.PropsFromFunc(receive, options...))
	require.NotNil(tb, pid)
	return pid
}

// newWorker makes a worker that ends with the test.
func newWorker(tb testing.TB) *mailbox.Worker {
	w := mailbox.NewWorker()
	tb.Cleanup(w.Close)
	return w
}

// record collects ints from any goroutine.
type record struct {
	mu  sync.Mutex
	ids []int
}

func (r *record) add(id int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, id)
}

func (r *record) all() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]int{}, r.ids...)
}

func counted(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i
	}
	return ids
}

// goroutine identifies the calling goroutine by the head of its stack.
func goroutine() string {
	head := make([]byte, 24)
	return string(head[:runtime.Stack(head, false)])
}

func TestAnIdleActorRunsOnItsSender(t *testing.T) {
	system := newSystem(t)
	var where string
	pid := spawn(t, system, func(c actor.Context) {
		if _, ok := c.Message().(int); ok {
			where = goroutine()
		}
	}, mailbox.Inline(newWorker(t))...)
	system.Root.Send(pid, 1)
	assert.Equal(t, goroutine(), where)
}

func TestABusyActorIsNotNested(t *testing.T) {
	system := newSystem(t)
	worker := newWorker(t)
	var trace []string
	var ping *actor.PID
	pong := spawn(t, system, func(c actor.Context) {
		if n, ok := c.Message().(int); ok {
			trace = append(trace, "pong in")
			c.Send(ping, n+1)
			trace = append(trace, "pong out")
		}
	}, mailbox.Inline(worker)...)
	ping = spawn(t, system, func(c actor.Context) {
		if n, ok := c.Message().(int); ok {
			trace = append(trace, "ping in")
			if n == 0 {
				c.Send(pong, n)
			}
			trace = append(trace, "ping out")
		}
	}, mailbox.Inline(worker)...)
	system.Root.Send(ping, 0)
	assert.Equal(t, []string{"ping in", "pong in", "pong out", "ping out", "ping in", "ping out"},
		trace)
}

func TestTheWorkerTakesOverAfterTheBudget(t *testing.T) {
	for _, budget := range []int{1, 3, mailbox.DefaultBudget} {
		system := newSystem(t)
		const messages = 500
		var got []int
		var where []string
		done := make(chan struct{})
		pid := spawn(t, system, func(c actor.Context) {
			n, ok := c.Message().(int)
			if !ok {
				return
			}
			if n == 0 { // everything else arrives while this one is in hand
				for i := 1; i < messages; i++ {
					c.Send(c.Self(), i)
				}
			}
			got, where = append(got, n), append(where, goroutine())
			if n == messages-1 {
				close(done)
			}
		}, mailbox.Inline(newWorker(t), mailbox.Budget(budget))...)
		system.Root.Send(pid, 0)
		<-done
		assert.Equal(t, counted(messages), got)
		for i, w := range where {
			if i < budget {
				assert.Equal(t, goroutine(), w, "message %d of budget %d", i, budget)
			} else {
				assert.NotEqual(t, goroutine(), w, "message %d of budget %d", i, budget)
			}
		}
	}
}

func TestQueuedActorsRunOnTheWorkerOnly(t *testing.T) {
	system := newSystem(t)
	done := make(chan string, 1)
	pid := spawn(t, system, func(c actor.Context) {
		if _, ok := c.Message().(int); ok {
			done <- goroutine()
		}
	}, mailbox.Queued(newWorker(t), mailbox.Budget(8))...)
	system.Root.Send(pid, 1)
	assert.NotEqual(t, goroutine(), <-done)
}

func TestOrderOfEachSenderIsKept(t *testing.T) {
	for _, kind := range []string{"inline", "worker"} {
		t.Run(kind, func(t *testing.T) {
			const senders, each = 8, 400
			system := newSystem(t)
			next := make([]int, senders)
			var left sync.WaitGroup
			left.Add(senders * each)
			pid := spawn(t, system, func(c actor.Context) {
				if x, ok := c.Message().([2]int); ok {
					assert.Equal(t, next[x[0]], x[1], "sender %d", x[0])
					next[x[0]] = x[1] + 1
					left.Done()
				}
			}, optionsOf(t, kind)...)
			for s := range senders {
				go func() {
					for i := range each {
						system.Root.Send(pid, [2]int{s, i})
					}
				}()
			}
			left.Wait()
		})
	}
}

func TestManyCallersAreAllAnswered(t *testing.T) {
	for _, kind := range []string{"inline", "worker"} {
		t.Run(kind, func(t *testing.T) {
			const callers, each = 64, 50
			system := newSystem(t)
			served := 0
			counter := spawn(t, system, func(c actor.Context) {
				if r, ok := c.Message().(*request); ok {
					served++
					r.served++
					r.slot.Finish()
				}
			}, optionsOf(t, kind)...)
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					r := &request{}
					for range each {
						call(t, system, counter, r)
					}
					assert.Equal(t, each, r.served)
				})
			}
			all.Wait()
			assert.Equal(t, callers*each, served)
		})
	}
}

func TestNilIsRefusedAtItsSender(t *testing.T) {
	system := newSystem(t)
	pid := spawn(t, system, answer, mailbox.Inline(newWorker(t))...)
	assert.PanicsWithValue(t, "mailbox: a nil message was sent", func() { system.Root.Send(pid, nil) })
	assert.PanicsWithValue(t, "mailbox: an envelope without a message was sent", func() {
		system.Root.RequestWithCustomSender(pid, nil, pid)
	})
	r := &request{}
	system.Root.Send(pid, r)
	require.NoError(t, r.wait(t))
}

func TestMessagesBeforeTheStartWait(t *testing.T) {
	system := newSystem(t)
	options := mailbox.Inline(newWorker(t))
	var got []any
	early := actor.WithOnInit(func(c actor.Context) {
		// The name is known from here on, the mailbox's handlers are not.
		system.Root.Send(c.Self(), "early")
		assert.Equal(t, 1, mailbox.Of(system, c.Self()).UserMessageCount())
	})
	pid := spawn(t, system, func(c actor.Context) { got = append(got, c.Message()) },
		append(options, early)...)
	system.Root.Send(pid, "late")
	require.Len(t, got, 3)
	assert.IsType(t, &actor.Started{}, got[0])
	assert.Equal(t, []any{"early", "late"}, got[1:])
}

func TestOfFindsOurMailboxesOnly(t *testing.T) {
	system := newSystem(t)
	ours := spawn(t, system, answer, mailbox.Inline(newWorker(t))...)
	theirs := spawn(t, system, answer)
	require.NotNil(t, mailbox.Of(system, ours))
	assert.Nil(t, mailbox.Of(system, theirs))
	assert.Nil(t, mailbox.Of(system, actor.NewPID("nonhost", "absent")))

	r := &request{}
	mailbox.Of(system, ours).PostUserMessage(r)
	require.NoError(t, r.wait(t))
}

func TestAWarmRequestAllocatesNothing(t *testing.T) {
	system := newSystem(t)
	options := mailbox.Inline(newWorker(t))
	coordinator := spawnRound(t, system, options...)
	r := &request{}
	call(t, system, coordinator, r)
	assert.Zero(t, testing.AllocsPerRun(200, func() { call(t, system, coordinator, r) }))
}

func TestWorksInASynctestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := newSystem(t)
		worker := mailbox.NewWorker()
		defer worker.Close()
		var got record
		pid := spawn(t, system, func(c actor.Context) {
			if n, ok := c.Message().(int); ok {
				time.Sleep(time.Hour)
				got.add(n)
			}
		}, mailbox.Queued(worker)...)
		for i := range 5 {
			system.Root.Send(pid, i)
		}
		time.Sleep(150 * time.Minute)
		synctest.Wait()
		assert.Equal(t, []int{0, 1}, got.all())
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		assert.Equal(t, counted(5), got.all())
		time.Sleep(2 * time.Second)
	})
}

func TestAClosedWorkerStillRunsWhatComes(t *testing.T) {
	worker := mailbox.NewWorker()
	var got record
	for i := range 100 {
		worker.Schedule(func() { got.add(i) })
	}
	worker.Close()
	assert.Equal(t, counted(100), got.all())
	worker.Close()

	late := make(chan struct{})
	worker.Schedule(func() { close(late) })
	<-late
}
