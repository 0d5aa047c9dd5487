package actors_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// What the engine's own actors send each other is no one else's to send: with a
// sender it comes back refused, without one it is dropped, and the engine goes on.
func TestRecordsOfTheEngineFromOutside(t *testing.T) {
	for _, record := range []any{
		&protocol.Match{}, &protocol.Apply{}, &protocol.Move{}, &protocol.PoolWork{},
		&protocol.OffloadAhead{}, &protocol.Audit{},
		&protocol.Forget{}, &protocol.Locate{}, &protocol.Snapshot{}, &protocol.Contents{},
		&protocol.TopNodes{}, &protocol.SampleHost{}, &protocol.ListLocations{},
		&protocol.ResizeDevice{}, &protocol.ResizePool{}, &protocol.RebuildPool{},
		&protocol.RebuildHost{}, (*protocol.Match)(nil),
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, setup{})
			r.store(run(0, 9))
			r.system.Root.Send(r.PID(), record)
			answers := make(chan any, 1)
			asker := r.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
				switch m := ctx.Message().(type) {
				case *actor.Started:
					ctx.Request(r.PID(), record)
				case *messages.Aborted:
					answers <- m
				}
			}))
			require.NoError(t, r.lookup(context.Background()), "%T", record)
			aborted := (<-answers).(*messages.Aborted)
			assert.ErrorIs(t, aborted.Err, messages.ErrBadRequest)
			assert.Same(t, record, aborted.Request)
			require.NoError(t, r.system.Root.StopFuture(asker).Wait())
			stats, err := r.Stats(context.Background())
			require.NoError(t, err)
			assert.Zero(t, stats.Restarts)
			r.close()
		})
	}
}

// A record from outside is no answer, also while the coordinator waits for one: it was
// counted as the answer of the actor that still had its record.
func TestRecordsFromOutsideAreNoAnswers(t *testing.T) {
	r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 4, Secondary: 8}}})
	var sent atomic.Int32
	// The offloader submits copies while the coordinator waits for its answer.
	r.device.submits = func() {
		for _, record := range []any{&protocol.Match{}, &protocol.Move{}, (*protocol.Match)(nil)} {
			r.system.Root.Send(r.PID(), record)
			sent.Add(1)
		}
	}
	for i := range 4 {
		r.store(run(100*i, 16))
	}
	require.NotZero(t, sent.Load())
	require.NoError(t, r.Check(context.Background()))
	r.verify()
	stats, err := r.Stats(context.Background())
	require.NoError(t, err)
	assert.Zero(t, stats.Restarts)
	r.close()
}

// Submit without done is a mistake that would show as a panic of an actor.
func TestSubmitNeedsSomebodyToTell(t *testing.T) {
	r := newRig(t, setup{})
	assert.ErrorIs(t, r.Submit(&inspect.ReadStats{}, nil), messages.ErrBadRequest)
	stats, err := r.Stats(context.Background())
	require.NoError(t, err)
	assert.Zero(t, stats.Restarts)
	r.close()
}

// The name of an adapter that is said not to be there is refused by whatever
// takes a namespace; else its blocks would have the names of the base model's.
func TestAnAdapterThatIsNotThere(t *testing.T) {
	r := newRig(t, setup{})
	forgotten := messages.Prefix{Namespace: messages.Namespace{LoRA: "x"}, Tokens: run(0, 9)}
	request := messages.AdmitRequest{Namespace: forgotten.Namespace, Tokens: forgotten.Tokens}
	ctx := context.Background()
	for name, call := range map[string]func() error{
		"validate": func() error { return r.Validate(request) },
		"admit":    func() error { _, err := r.Admit(ctx, request); return err },
		"lookup":   func() error { _, err := r.Lookup(ctx, forgotten); return err },
		"pin":      func() error { _, err := r.Pin(ctx, forgotten); return err },
		"prefetch": func() error { _, err := r.Prefetch(ctx, forgotten); return err },
		"invalidate": func() error {
			_, err := r.Invalidate(ctx, messages.Selector{Prefix: &forgotten})
			return err
		},
	} {
		err := call()
		require.ErrorIs(t, err, messages.ErrBadRequest, name)
		assert.EqualError(t, err, `LoRA adapter "x" without HasLoRA`, name)
	}
	r.close()
}
