package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
)

// hangingStore answers no question until it is released or the question's time is over.
type hangingStore struct {
	stores.Memory
	asked, released chan struct{}
}

func (s *hangingStore) Has(ctx context.Context, keys []stores.Key, found []bool) error {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	select {
	case <-s.released:
		return s.Memory.Has(ctx, keys, found)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// openHanging is a scheduler whose store hangs until it is released.
func openHanging(t *testing.T) (*Scheduler, *hangingStore) {
	f := load(t, "llama_gqa")
	store := &hangingStore{asked: make(chan struct{}, 1), released: make(chan struct{})}
	r := open(t, f, runner.Config{
		TokensPerBlock: 4, Chunk: 8, HostPages: 30, Fetch: time.Hour,
		Options: []actors.Option{actors.WithStore(actors.StoreConfig{
			Store: store, Model: "m", Timeout: time.Hour, WaitForCopies: true,
		})},
	})
	s, err := New(r, Config{})
	require.NoError(t, err)
	return s, store
}

// prompt is a prompt of n tokens.
func prompt(n int) []messages.Token {
	tokens := make([]messages.Token, n)
	for i := range tokens {
		tokens[i] = messages.Token(i + n)
	}
	return tokens
}

// submit submits a request for some tokens.
func submit(
	ctx context.Context, t *testing.T, s *Scheduler, prompt []messages.Token, n int,
) *record {
	t.Helper()
	sink := newRecord(1)
	require.NoError(t, s.Submit(ctx, Request{Tokens: prompt, New: n, Sink: sink}))
	return sink
}

// While the store hangs over one prompt, a sequence that runs goes on.
func TestAStoreThatHangsHoldsUpNoOther(t *testing.T) {
	s, store := openHanging(t)
	run(t, s)
	running := submit(t.Context(), t, s, prompt(3), 40) // less than a block: not asked for
	<-running.first
	late := submit(t.Context(), t, s, prompt(10), 2)
	<-store.asked
	running.open.Wait()
	assert.Len(t, running.tokens[0], 40)
	assert.Empty(t, late.tokens[0])
	close(store.released)
	late.open.Wait()
	assert.Len(t, late.tokens[0], 2)
}

// A request that waits for the store ends with its context, and all do when the server gives up.
func TestTheEndOfAFetch(t *testing.T) {
	s, store := openHanging(t)
	ctx, cancel := context.WithCancel(t.Context())
	whole, giveUp := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(whole) }()
	first := submit(ctx, t, s, prompt(9), 2)
	<-store.asked
	cancel()
	first.open.Wait()
	assert.Equal(t, []Reason{Cancelled}, first.reasons)

	second := submit(t.Context(), t, s, prompt(10), 2)
	<-store.asked
	s.Stop() // who is accepted is served
	giveUp()
	second.open.Wait()
	assert.Equal(t, []Reason{Cancelled}, second.reasons)
	require.NoError(t, <-ended)
	assert.Zero(t, s.load)
}
