package mailbox_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/mailbox"
)

var errBad = errors.New("bad item")

// hold is for a test that fills an actor's queue: the actor stops at the message
// "hold" until the test sends it on.
type hold struct{ entered, released chan struct{} }

func newHold() hold { return hold{make(chan struct{}), make(chan struct{})} }

// receiver serves requests and can be held; the request with id 13 panics.
func (h hold) receiver(after func(*request)) func(actor.Context) {
	return func(c actor.Context) {
		switch x := c.Message().(type) {
		case string:
			close(h.entered)
			<-h.released
		case *request:
			if x.id == 13 {
				panic(errBad)
			}
			if after != nil {
				after(x)
			}
			x.slot.Finish()
		}
	}
}

// filled holds the actor and queues n requests behind it.
func (h hold) filled(system *actor.ActorSystem, pid *actor.PID, n int) []*request {
	go system.Root.Send(pid, "hold")
	<-h.entered
	requests := make([]*request, n)
	for i := range requests {
		requests[i] = &request{id: i}
		system.Root.Send(pid, requests[i])
	}
	return requests
}

func TestAPanicCostsOneMessage(t *testing.T) {
	for _, kind := range []string{"inline", "worker"} {
		for _, directive := range []actor.Directive{actor.RestartDirective, actor.ResumeDirective} {
			t.Run(kind+" "+directive.String(), func(t *testing.T) {
				system := newSystem(t)
				h := newHold()
				var order record
				var made atomic.Int32
				decide := actor.NewOneForOneStrategy(10, time.Second,
					func(any) actor.Directive { return directive })
				props := actor.PropsFromProducer(func() actor.Actor {
					made.Add(1)
					return actor.ReceiveFunc(h.receiver(func(r *request) { order.add(r.id) }))
				}, optionsOf(t, kind)...).Configure(actor.WithGuardian(decide))
				pid := system.Root.Spawn(props)
				requests := h.filled(system, pid, 30)
				close(h.released)
				for i, r := range requests {
					if err := r.wait(t); i == 13 {
						require.ErrorIs(t, err, mailbox.ErrPanicked)
						assert.ErrorContains(t, err, "bad item")
					} else {
						require.NoError(t, err)
					}
				}
				want := counted(30)
				assert.Equal(t, append(want[:13], want[14:]...), order.all())
				if directive == actor.RestartDirective {
					assert.EqualValues(t, 2, made.Load())
				} else {
					assert.EqualValues(t, 1, made.Load())
				}
			})
		}
	}
}

func TestASuspendedActorReceivesNothingUntilItIsResumed(t *testing.T) {
	system := newSystem(t)
	var undecided *actor.PID
	// A supervisor that decides nothing leaves its child suspended.
	postpone := &supervisor{func(_ actor.Supervisor, child *actor.PID) { undecided = child }}
	h := newHold()
	pid := system.Root.Spawn(actor.PropsFromFunc(h.receiver(nil), mailbox.Inline(newWorker(t))...).
		Configure(actor.WithGuardian(postpone)))
	system.Root.Send(pid, &request{id: 13})
	require.NotNil(t, undecided)

	requests := []*request{{id: 0}, {id: 1}, {id: 2}}
	for _, r := range requests {
		system.Root.Send(pid, r)
	}
	m := mailbox.Of(system, pid)
	assert.Equal(t, 3, m.UserMessageCount())
	for _, r := range requests {
		assert.False(t, r.slot.Done())
	}
	process, _ := system.ProcessRegistry.Get(pid)
	process.SendSystemMessage(pid, &actor.ResumeMailbox{})
	for _, r := range requests {
		assert.NoError(t, r.wait(t))
	}
	assert.Zero(t, m.UserMessageCount())
}

// supervisor is a strategy made of one function.
type supervisor struct {
	decide func(s actor.Supervisor, child *actor.PID)
}

func (v *supervisor) HandleFailure(
	_ *actor.ActorSystem, s actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, _, _ any,
) {
	v.decide(s, child)
}

func TestStoppingAbortsTheQueue(t *testing.T) {
	for _, kind := range []string{"inline", "worker"} {
		t.Run(kind, func(t *testing.T) {
			system := newSystem(t)
			defer mailbox.AbortDeadLetters(system)()
			h := newHold()
			pid := spawn(t, system, h.receiver(nil), optionsOf(t, kind)...)
			m := mailbox.Of(system, pid)
			requests := h.filled(system, pid, 100)
			stopped := system.Root.StopFuture(pid)
			for range 10 { // between the stop and the end
				r := &request{}
				m.PostUserMessage(r)
				requests = append(requests, r)
			}
			close(h.released)
			require.NoError(t, stopped.Wait())
			for _, r := range requests {
				require.ErrorIs(t, r.wait(t), mailbox.ErrStopped)
			}

			late := &request{}
			system.Root.Send(pid, late)
			require.ErrorIs(t, late.wait(t), mailbox.ErrStopped)
			direct := &request{}
			m.PostUserMessage(direct)
			require.ErrorIs(t, direct.wait(t), mailbox.ErrStopped)
		})
	}
}

func TestPoisonServesWhatCameBefore(t *testing.T) {
	system := newSystem(t)
	h := newHold()
	pid := spawn(t, system, h.receiver(nil), mailbox.Inline(newWorker(t))...)
	before := h.filled(system, pid, 10)
	stopped := system.Root.PoisonFuture(pid)
	after := &request{}
	system.Root.Send(pid, after)
	close(h.released)
	require.NoError(t, stopped.Wait())
	for _, r := range before {
		require.NoError(t, r.wait(t))
	}
	require.ErrorIs(t, after.wait(t), mailbox.ErrStopped)
}

func TestTheEleventhPanicStopsAndStillAnswers(t *testing.T) {
	system := newSystem(t)
	defer mailbox.AbortDeadLetters(system)()
	pid := spawn(t, system, newHold().receiver(nil), mailbox.Inline(newWorker(t))...)
	for i := range 15 {
		r := &request{id: 13}
		system.Root.Send(pid, r)
		if i <= 10 {
			require.ErrorIs(t, r.wait(t), mailbox.ErrPanicked, "panic %d", i+1)
		} else {
			require.ErrorIs(t, r.wait(t), mailbox.ErrStopped, "panic %d", i+1)
		}
	}
}

func TestAStoppedActorWithChildrenServesUntilTheyAreGone(t *testing.T) {
	system := newSystem(t)
	defer mailbox.AbortDeadLetters(system)()
	worker := newWorker(t)
	h := newHold()
	var child *actor.PID
	parent := spawn(t, system, func(c actor.Context) {
		switch x := c.Message().(type) {
		case *actor.Started:
			child = c.Spawn(actor.PropsFromFunc(h.receiver(nil), mailbox.Inline(worker)...))
		case *request:
			x.slot.Finish()
		}
	}, mailbox.Inline(worker)...)
	go system.Root.Send(child, "hold")
	<-h.entered
	stopped := system.Root.StopFuture(parent)
	r := &request{}
	system.Root.Send(parent, r)
	require.NoError(t, r.wait(t))
	close(h.released)
	require.NoError(t, stopped.Wait())
	late := &request{}
	system.Root.Send(parent, late)
	require.ErrorIs(t, late.wait(t), mailbox.ErrStopped)
}

func TestANameUsedAgainIsAnotherActor(t *testing.T) {
	system := newSystem(t)
	worker := newWorker(t)
	var second *actor.PID
	props := actor.PropsFromFunc(answer, mailbox.Inline(worker)...)
	first, err := system.Root.SpawnNamed(actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(*actor.Stopped); ok {
			var err error
			second, err = system.Root.SpawnNamed(props, "pool")
			assert.NoError(t, err)
		}
	}, mailbox.Inline(worker)...), "pool")
	require.NoError(t, err)
	old := mailbox.Of(system, first)
	system.Root.Stop(first)
	require.NotNil(t, second)

	r := &request{}
	old.PostUserMessage(r)
	require.ErrorIs(t, r.wait(t), mailbox.ErrStopped)
	served := &request{}
	system.Root.Send(second, served)
	require.NoError(t, served.wait(t))
}

func TestOnAbortGetsMessagesWithoutAMethod(t *testing.T) {
	system := newSystem(t)
	type aborted struct {
		message any
		err     error
	}
	var got []aborted
	pid := spawn(t, system, func(c actor.Context) {
		if x, ok := c.Message().(int); ok {
			panic(x)
		}
	}, mailbox.Inline(newWorker(t),
		mailbox.OnAbort(func(m any, _ *actor.PID, err error) { got = append(got, aborted{m, err}) }))...)
	m := mailbox.Of(system, pid)
	system.Root.Send(pid, 7)
	system.Root.RequestWithCustomSender(pid, 8, pid)
	system.Root.Stop(pid)
	m.PostUserMessage(9)
	m.PostUserMessage(&actor.PoisonPill{})
	require.Len(t, got, 3)
	assert.Equal(t, 7, got[0].message)
	require.ErrorIs(t, got[0].err, mailbox.ErrPanicked)
	assert.Equal(t, 8, got[1].message)
	assert.Equal(t, aborted{9, mailbox.ErrStopped}, got[2])
}

func TestADeadLetterIsAbortedUntilUnsubscribed(t *testing.T) {
	system := newSystem(t)
	unsubscribe := mailbox.AbortDeadLetters(system)
	absent := actor.NewPID("nonhost", "absent")
	r := &request{}
	system.Root.Send(absent, r)
	require.ErrorIs(t, r.wait(t), mailbox.ErrStopped)
	system.Root.Send(absent, "no one waits for this")

	unsubscribe()
	deaf := &request{}
	system.Root.Send(absent, deaf)
	assert.False(t, deaf.slot.Done())
}

func TestALostGoroutineDoesNotStopTheActor(t *testing.T) {
	system := newSystem(t)
	h := newHold()
	pid := spawn(t, system, func(c actor.Context) {
		if r, ok := c.Message().(*request); ok && r.id == 2 {
			runtime.Goexit()
		}
		h.receiver(nil)(c)
	}, mailbox.Inline(newWorker(t))...)
	requests := h.filled(system, pid, 5)
	close(h.released)
	for i, r := range requests {
		if err := r.wait(t); i == 2 {
			require.ErrorIs(t, err, mailbox.ErrPanicked)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestAPanicOfTheSupervisorLeavesTheQueue(t *testing.T) {
	system := newSystem(t)
	faulty := &supervisor{func(s actor.Supervisor, child *actor.PID) {
		s.ResumeChildren(child)
		panic("supervisor")
	}}
	pid := system.Root.Spawn(actor.PropsFromFunc(newHold().receiver(nil),
		mailbox.Inline(newWorker(t))...).
		Configure(actor.WithGuardian(faulty)))
	r := &request{id: 13}
	assert.PanicsWithValue(t, "supervisor", func() { system.Root.Send(pid, r) })
	require.ErrorIs(t, r.wait(t), mailbox.ErrPanicked)
	next := &request{id: 1}
	system.Root.Send(pid, next)
	require.NoError(t, next.wait(t))
}

// The supervisor, and the message that the actor panicked on, are given the stack.
func TestAPanicHasItsStack(t *testing.T) {
	system := newSystem(t)
	reasons := make(chan any, 1)
	var child *actor.PID
	strategy := actor.NewOneForOneStrategy(1, time.Second, func(reason any) actor.Directive {
		reasons <- reason
		return actor.ResumeDirective
	})
	worker := newWorker(t)
	spawn(t, system, func(c actor.Context) {
		if _, ok := c.Message().(*actor.Started); ok {
			child = c.Spawn(actor.PropsFromFunc(func(c actor.Context) {
				if _, ok := c.Message().(*request); ok {
					panicHere()
				}
			}, mailbox.Inline(worker)...))
		}
	}, append(mailbox.Inline(worker), actor.WithSupervisor(strategy))...)
	r := &request{}
	system.Root.Send(child, r)
	err := r.wait(t)
	require.ErrorIs(t, err, mailbox.ErrPanicked)
	for _, reason := range []any{<-reasons, err} {
		var p *mailbox.Panic
		require.ErrorAs(t, reason.(error), &p)
		assert.Equal(t, "here", p.Reason)
		assert.Contains(t, string(p.Stack), "panicHere")
	}
}

func panicHere() { panic("here") }

// OnAbort is told who has sent a message that is not received.
func TestOnAbortKnowsTheSender(t *testing.T) {
	system := newSystem(t)
	senders := make(chan *actor.PID, 1)
	pid := spawn(t, system, func(c actor.Context) {
		if _, ok := c.Message().(string); ok {
			panic("no")
		}
	}, mailbox.Inline(newWorker(t),
		mailbox.OnAbort(func(_ any, sender *actor.PID, _ error) { senders <- sender }))...)
	sender := spawn(t, system, func(c actor.Context) {
		if _, ok := c.Message().(*actor.Started); ok {
			c.Request(pid, "a question")
		}
	})
	assert.Equal(t, sender.Id, (<-senders).Id)
}
