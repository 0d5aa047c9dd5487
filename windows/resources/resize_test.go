package resources

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// TestResizeKeepsContents: an engine begins small, a trial pass shows how much is
// left, and the pools take it. What was cached is found, and the sequence that ran
// goes on.
func TestResizeKeepsContents(t *testing.T) {
	plan, err := collect(t,
		added{"kv_cache", 0, PagedKV{NumKVHeads: 2, HeadDim: 16, DType: windows.BFloat16}},
		added{"kv_cache", 1, PagedKV{NumKVHeads: 2, HeadDim: 16, DType: windows.BFloat16, Window: 64}},
	).Plan(options(false))
	require.NoError(t, err)
	const memory = 16 << 20
	device, err := sim.New(sim.Config{MemoryBytes: memory, Poison: sim.PoisonOff})
	require.NoError(t, err)
	system := actor.NewActorSystem(actor.WithLoggerFactory(
		func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }))
	defer system.Shutdown()
	engine, err := actors.Spawn(system.Root, actors.Config{Model: plan.Model, Cache: plan.Cache,
		Device: device, Pages: []windows.PageCounts{{Primary: 8}, {Primary: 8}}})
	require.NoError(t, err)
	prompt := make([]messages.Token, 100)
	for i := range prompt {
		prompt[i] = messages.Token(i)
	}
	ctx := context.Background()
	admitted, err := engine.Admit(ctx, messages.AdmitRequest{Tokens: prompt})
	require.NoError(t, err)
	_, err = engine.Commit(ctx,
		[]messages.CommitStep{{Sequence: admitted.Sequence, Computed: len(prompt)}})
	require.NoError(t, err)

	free, err := device.Memory()
	require.NoError(t, err)
	resized, err := plan.Resize(ctx, engine, Measured{Free: free.Free, NonPaged: 1 << 20,
		Forward: 3 << 20, Fraction: 0.5})
	require.NoError(t, err)
	bytes := int64(0)
	for _, p := range resized.Pools {
		bytes += int64(p.PrimaryPages) * p.PageBytes
	}
	assert.InDelta(t, (memory-4<<20)/2, bytes, 8192, "but for less than a page of each pool")
	for _, moved := range resized.Moved {
		assert.Empty(t, moved)
	}
	assert.Equal(t, resized.Pools, engine.Pools())

	found, err := engine.Lookup(ctx, messages.Prefix{Tokens: prompt})
	require.NoError(t, err)
	assert.Equal(t, 96, found.MatchedTokens, "the whole blocks of a prompt that still runs")
	steps, err := engine.Append(ctx,
		[]messages.AppendStep{{Sequence: admitted.Sequence, Tokens: []messages.Token{7}}})
	require.NoError(t, err)
	require.NoError(t, steps[0].Err)

	// Less than before: the sequence still goes on.
	_, err = plan.Resize(ctx, engine, Measured{Forward: bytes - 1<<20, Fraction: 1})
	require.NoError(t, err)
	require.NoError(t, engine.Check(ctx))
	_, err = plan.Resize(ctx, engine, Measured{Forward: bytes})
	assert.ErrorIs(t, err, messages.ErrBadRequest, "nothing would be left")
	held, err := engine.Close(ctx)
	require.NoError(t, err)
	assert.Positive(t, held)
	require.NoError(t, device.Close())
}
