package mailbox_test

import (
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/mailbox"
)

// selective takes requests itself, but those with an odd id; request 13 panics.
type selective struct {
	direct, received record
	started          int
}

func (s *selective) ReceiveDirect(message any) bool {
	r, ok := message.(*request)
	if !ok || r.id%2 == 1 && r.id != 13 {
		return false
	}
	if r.id == 13 {
		panic(errBad)
	}
	s.direct.add(r.id)
	r.slot.Finish()
	return true
}

func (s *selective) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		s.started++
	case *request:
		s.received.add(m.id)
		m.slot.Finish()
	}
}

func TestDirectTakesItsMessagesBeforeTheLibrary(t *testing.T) {
	system := newSystem(t)
	s := &selective{}
	props := actor.PropsFromProducer(func() actor.Actor { return s }, mailbox.Inline(newWorker(t), mailbox.Direct(s))...)
	pid := system.Root.Spawn(props)
	for i := range 5 {
		r := &request{id: i}
		system.Root.Send(pid, r)
		require.NoError(t, r.wait(t))
	}
	assert.Equal(t, []int{0, 2, 4}, s.direct.all())
	assert.Equal(t, []int{1, 3}, s.received.all())

	// What has a sender has an envelope, which ReceiveDirect is given as it is and leaves.
	r := &request{id: 6}
	system.Root.RequestWithCustomSender(pid, r, pid)
	require.NoError(t, r.wait(t))
	assert.Equal(t, []int{1, 3, 6}, s.received.all())
	assert.Equal(t, 1, s.started)
}

func TestAPanicInReceiveDirectCostsOneMessage(t *testing.T) {
	system := newSystem(t)
	s := &selective{}
	props := actor.PropsFromProducer(func() actor.Actor { return s }, mailbox.Inline(newWorker(t), mailbox.Direct(s))...)
	pid := system.Root.Spawn(props)
	bad, good := &request{id: 13}, &request{id: 14}
	system.Root.Send(pid, bad)
	system.Root.Send(pid, good)
	require.ErrorIs(t, bad.wait(t), mailbox.ErrPanicked)
	require.NoError(t, good.wait(t))
	assert.Equal(t, []int{14}, s.direct.all())
	assert.Equal(t, 2, s.started)
}

func TestAStoppedActorReceivesNothingDirectly(t *testing.T) {
	system := newSystem(t)
	s := &selective{}
	props := actor.PropsFromProducer(func() actor.Actor { return s }, mailbox.Inline(newWorker(t), mailbox.Direct(s))...)
	pid := system.Root.Spawn(props)
	m := mailbox.Of(system, pid)
	require.NoError(t, system.Root.StopFuture(pid).Wait())
	r := &request{id: 2}
	m.PostUserMessage(r)
	require.ErrorIs(t, r.wait(t), mailbox.ErrStopped)
	assert.Empty(t, s.direct.all())
}
