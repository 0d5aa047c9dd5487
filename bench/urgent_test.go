package bench

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/windows"
)

// A prompt that needs two pages back from host memory is ready after at most a
// slice of what a prompt before it brings, which is six of them.
func TestAnUrgentOnboardOvertakes(t *testing.T) {
	const (
		block = 16
		page  = 256 << 10 // 4 layers, 8 heads of 128 elements, K and V
		long  = 6 * offloader.DefaultSliceBytes / page
	)
	model := windows.Model{Layers: 4, KVHeads: []int{8}, HeadDim: 128, DType: windows.Float16,
		MaxSeqLen: 2 * long * block}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = block
	device := must(sim.New(sim.Config{MemoryBytes: 1 << 30, Poison: sim.PoisonOff}))
	system := actor.NewActorSystem(actor.WithLoggerFactory(
		func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	defer system.Shutdown()
	engine := must(actors.Spawn(system.Root, actors.Config{
		Model: model, Cache: cache, Device: device,
		Pages: []windows.PageCounts{{Primary: long + 32, Secondary: 2 * long}},
	}, actors.WithClock(device.Now)))
	require.EqualValues(t, page, engine.Pools()[0].PageBytes)
	ctx := context.Background()
	admit := func(first, blocks int) messages.Admitted {
		tokens := make([]messages.Token, blocks*block+1)
		for i := range tokens {
			tokens[i] = messages.Token(first + i)
		}
		return must(engine.Admit(ctx, messages.AdmitRequest{Tokens: tokens}))
	}
	store := func(a messages.Admitted, blocks int) {
		must(engine.Commit(ctx,
			[]messages.CommitStep{{Sequence: a.Sequence, Computed: blocks*block + 1}}))
		must(engine.Release(ctx, []messages.ReleaseStep{{Sequence: a.Sequence}}))
	}
	ready := func(a messages.Admitted) time.Duration {
		for _, ticket := range a.Ready {
			accept(device.Sync(ctx, ticket))
		}
		return device.Now()
	}
	store(admit(0, long), long)
	store(admit(1<<20, 2), 2)
	filler := admit(1<<21, long+31) // everything else is in host memory now; of this nothing is stored
	must(engine.Release(ctx, []messages.ReleaseStep{{Sequence: filler.Sequence, Discard: true}}))
	device.Drain()

	began := device.Now()
	much := admit(0, long)
	little := admit(1<<20, 2)
	require.Equal(t, long*block, much.ReusedTokens)
	require.Equal(t, 2*block, little.ReusedTokens)
	urgent := ready(little) - began
	all := ready(much) - began
	t.Logf("two pages were ready after %v, %d after %v", urgent, long, all)
	assert.Less(t, urgent, all/3)
	must(engine.Release(ctx, []messages.ReleaseStep{{Sequence: much.Sequence},
		{Sequence: little.Sequence}}))
	device.Drain()
	must(engine.Close(ctx))
	accept(device.Close())
}
