package oracle_test

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"math"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// system is shared: one costs milliseconds.
var system = sync.OnceValue(func() *actor.ActorSystem {
	return actor.NewActorSystem(
		actor.WithLoggerFactory(
			func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }),
		actor.WithDeadLetterThrottleInterval(time.Millisecond))
})

// rig is an engine that closes its device with itself.
type rig struct {
	*actors.Engine
	device *sim.Device
	memory *stores.Memory
}

func (r rig) Fetch(ctx context.Context, p messages.Prefix) (blocks, localTokens int, err error) {
	f, err := actors.StoreOf(r.Engine).Fetch(ctx, p)
	return f.Blocks, f.LocalTokens, err
}

func (r rig) Flush(ctx context.Context, id messages.SequenceID) (int, error) {
	return actors.StoreOf(r.Engine).Flush(ctx, id)
}

func (r rig) LookupStored(ctx context.Context, p messages.Prefix) (messages.Found, error) {
	return actors.StoreOf(r.Engine).Lookup(ctx, p)
}

func (r rig) FailStore(down bool) {
	r.memory.Fail(0)
	if down {
		r.memory.Fail(math.MaxInt)
	}
}

func (r rig) Close(ctx context.Context) (int, error) {
	leaked, err := r.Engine.Close(ctx)
	_ = r.device.Close()
	return leaked, err
}

// memories are the engines' stores, by those of the oracles.
type memories map[*oracle.Store]*stores.Memory

// open makes oracle and engine of one configuration.
func (m memories) open(t require.TestingT, c oracle.Config) (a, b Engine) {
	model, cache := Geometry(c)
	cache.OffloadAhead = false // the oracle does not know of it; no answer depends on it
	var pages []windows.PageCounts
	memory := int64(0)
	for _, p := range c.Pools {
		pages = append(pages, windows.PageCounts{Primary: p.Primary, Secondary: p.Secondary})
		memory += p.PageBytes * int64(p.Primary)
	}
	device, err := sim.New(sim.Config{MemoryBytes: memory})
	require.NoError(t, err)
	options := []actors.Option{actors.WithClock(c.Clock)}
	r := rig{device: device}
	if c.Store != nil {
		if r.memory = m[c.Store.Store]; r.memory == nil {
			r.memory = &stores.Memory{}
			m[c.Store.Store] = r.memory
		}
		r.memory.Fail(0)
		options = append(options, actors.WithStore(actors.StoreConfig{
			Store: r.memory, Model: "m", Save: savePolicies[c.Store.Save], MinPriority: c.Store.MinPriority,
			WaitForCopies: true, BreakerFailures: -1,
		}))
	}
	r.Engine, err = actors.Spawn(system().Root, actors.Config{Model: model, Cache: cache, Pages: pages,
		Device: device}, options...)
	require.NoError(t, err)
	return NewModel(c), r
}

var savePolicies = map[oracle.SavePolicy]actors.SavePolicy{
	oracle.SaveOnReuse: actors.SaveOnReuse, oracle.SaveOnCommit: actors.SaveOnCommit,
	oracle.SaveHostEvict: actors.SaveHostEvict,
}

// TestMain draws the same cases each time, so that a failure is one of the
// change at hand; KVACTOR_SEED=0 draws others.
func TestMain(m *testing.M) {
	flag.Parse()
	seed := os.Getenv("KVACTOR_SEED")
	if seed == "" {
		seed = "20261120"
	}
	if err := flag.Set("rapid.seed", seed); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestEngineAgreesWithOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := memories{}
		Compare(t, func(c oracle.Config) (a, b Engine) { return m.open(t, c) })
	})
}
