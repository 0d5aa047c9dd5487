package mailbox_test

import (
	"fmt"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/actors/mailbox"
)

// conversation runs four actors that send to each other under the scheduler
// and returns who received what, in order.
func conversation(tb testing.TB, s *mailbox.Scheduler) []string {
	system := newSystem(tb)
	var trace []string
	pids := make([]*actor.PID, 4)
	for i := range pids {
		pids[i] = spawn(tb, system, func(c actor.Context) {
			n, ok := c.Message().(int)
			if !ok {
				return
			}
			trace = append(trace, fmt.Sprintf("%d:%d", i, n))
			if n > 0 {
				c.Send(pids[(i+n)%4], n-1)
				c.Send(pids[(i+2*n)%4], n-1)
			}
		}, mailbox.Queued(s)...)
	}
	s.Drain()
	for _, pid := range pids {
		system.Root.Send(pid, 4)
	}
	assert.Empty(tb, trace, "nothing runs before the first step")
	s.Drain()
	return trace
}

func TestASeedIsAnOrder(t *testing.T) {
	orders := map[string]bool{}
	for seed := range uint64(8) {
		first := conversation(t, mailbox.NewScheduler(seed))
		assert.Equal(t, first, conversation(t, mailbox.NewScheduler(seed)), "seed %d", seed)
		assert.Len(t, first, 4*31, "four times 1+2+4+8+16 messages")
		orders[fmt.Sprint(first)] = true
	}
	assert.Greater(t, len(orders), 6, "different seeds give different orders")
}

func TestAStepIsOneMessage(t *testing.T) {
	system := newSystem(t)
	s := mailbox.NewScheduler(1)
	got := 0
	pid := spawn(t, system, func(c actor.Context) {
		if _, ok := c.Message().(int); ok {
			got++
		}
	}, mailbox.Queued(s)...)
	require.True(t, s.Step(), "the actor's start")
	require.False(t, s.Step())
	for i := range 3 {
		system.Root.Send(pid, i)
	}
	assert.Equal(t, 1, s.Runnable(), "one actor, however many messages")
	assert.Equal(t, 3, mailbox.Of(system, pid).UserMessageCount())
	for i := range 3 {
		require.True(t, s.Step())
		assert.Equal(t, i+1, got)
	}
	assert.False(t, s.Step())
}

func TestUntilStopsAtTheAnswer(t *testing.T) {
	system := newSystem(t)
	s := mailbox.NewScheduler(7)
	pid := spawn(t, system, answer, mailbox.Queued(s)...)
	first, second := &request{}, &request{}
	system.Root.Send(pid, first)
	system.Root.Send(pid, second)
	require.True(t, s.Until(first.slot.Done))
	assert.False(t, second.slot.Done())
	assert.False(t, s.Until(func() bool { return false }))
	assert.True(t, second.slot.Done())
}

func TestStopAndRestartUnderTheScheduler(t *testing.T) {
	system := newSystem(t)
	s := mailbox.NewScheduler(3)
	pid := spawn(t, system, newHold().receiver(nil), mailbox.Queued(s)...)
	good, bad, last := &request{id: 1}, &request{id: 13}, &request{id: 2}
	for _, r := range []*request{good, bad, last} {
		system.Root.Send(pid, r)
	}
	s.Drain()
	require.NoError(t, good.wait(t))
	require.ErrorIs(t, bad.wait(t), mailbox.ErrPanicked)
	require.NoError(t, last.wait(t))

	dropped := &request{id: 3}
	system.Root.Send(pid, dropped)
	system.Root.Stop(pid)
	s.Drain()
	require.ErrorIs(t, dropped.wait(t), mailbox.ErrStopped)
}

// Whatever the order: each sender's messages arrive in order, none is lost,
// and every request is answered, although some panic and the actor is stopped.
func TestEveryInterleavingAnswersEveryRequest(t *testing.T) {
	system := newSystem(t)
	defer mailbox.AbortDeadLetters(system)()
	rapid.Check(t, func(t *rapid.T) {
		s := mailbox.NewChoosingScheduler(
			func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "next") })
		server := system.Root.Spawn(actor.PropsFromFunc(newHold().receiver(nil), mailbox.Queued(s)...))
		relays := make([]*actor.PID, 3)
		for i := range relays {
			relays[i] = system.Root.Spawn(actor.PropsFromFunc(forward(server), mailbox.Queued(s)...))
		}
		requests := make([]*request, rapid.IntRange(1, 12).Draw(t, "requests"))
		stop := rapid.IntRange(0, len(requests)).Draw(t, "stop before")
		for i := range requests {
			if i == stop {
				system.Root.Stop(server)
			}
			requests[i] = &request{id: rapid.SampledFrom([]int{1, 13}).Draw(t, "id")}
			system.Root.Send(relays[rapid.IntRange(0, 2).Draw(t, "relay")], requests[i])
			if rapid.Bool().Draw(t, "step") {
				s.Step()
			}
		}
		s.Drain()
		for i, r := range requests {
			require.True(t, r.slot.Done(), "request %d", i)
			if r.err == nil {
				require.Equal(t, 1, r.id)
			}
		}
		system.Root.Stop(server)
		for _, pid := range relays {
			system.Root.Stop(pid)
		}
		s.Drain()
	})
}
