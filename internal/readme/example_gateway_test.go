package readme

import (
	"context"
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// backend is what a gateway keeps of one engine.
type backend struct {
	name   string
	engine *actors.Engine
	pools  []windows.Pool
	mirror *events.Mirror
}

// follow brings the mirror up to date. A gateway in another process is sent the
// batches and snapshots; they are plain data, which encoding/json carries.
func (b *backend) follow(ctx context.Context) error {
	batch, err := b.engine.Events(ctx)
	if err != nil {
		return err
	}
	if err := b.mirror.Follow(batch); !errors.Is(err, events.ErrStale) {
		return err
	}
	// Events were lost, or an actor has failed: start anew. What happened until
	// then is in the snapshot, and the next Events go on behind it.
	if batch, err = b.engine.Snapshot(ctx); err != nil {
		return err
	}
	return b.mirror.Follow(batch)
}

// route picks the backend that has most of a prompt; the first of equals.
func route(backends []*backend, prompt messages.Prefix, tokensPerBlock int) (*backend, int, error) {
	names, err := events.Names(prompt, tokensPerBlock)
	if err != nil {
		return nil, 0, err
	}
	names = names[:(len(prompt.Tokens)-1)/tokensPerBlock] // the last token is always computed
	best, most := backends[0], 0
	for _, b := range backends {
		if n := b.mirror.Match(b.pools, names); n > most {
			best, most = b, n
		}
	}
	return best, most * tokensPerBlock, nil
}

func Example_gateway() {
	ctx := context.Background()
	system := quietSystem()
	defer system.Shutdown()
	backends := []*backend{newBackend(system, "a"), newBackend(system, "b")}
	counting := make([]messages.Token, 12)
	for i := range counting {
		counting[i] = messages.Token(i)
	}
	serve(ctx, backends[0], messages.Prefix{Tokens: counting[:6]})
	serve(ctx, backends[1], messages.Prefix{Tokens: counting})
	serve(ctx, backends[1], messages.Prefix{Tokens: counting[4:]}) // more events than the buffer keeps

	tenant := messages.Prefix{Tokens: counting, Namespace: messages.Namespace{Salt: "tenant"}}
	for _, prompt := range []messages.Prefix{{Tokens: counting[:7]}, {Tokens: counting}, tenant} {
		for _, b := range backends {
			check(b.follow(ctx))
		}
		to, tokens, err := route(backends, prompt, 4)
		check(err)
		fmt.Println(len(prompt.Tokens), "tokens to", to.name, "which has", tokens, "of them")
	}
	for _, b := range backends {
		_, err := b.engine.Close(ctx)
		check(err)
	}
	// Output:
	// 7 tokens to a which has 4 of them
	// 12 tokens to b which has 8 of them
	// 12 tokens to a which has 0 of them
}

// newBackend starts an engine that keeps the last two events for its reader.
func newBackend(system *actor.ActorSystem, name string) *backend {
	device, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
	check(err)
	model := windows.Model{Layers: 2, KVHeads: []int{8}, HeadDim: 16, DType: windows.Float16, MaxSeqLen: 4096}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = 4
	cache.EventBufferMaxSize = 2 // some thousands, really; 0, the default, is no events
	pools, err := windows.Pools(model, cache)
	check(err)
	engine, err := actors.Spawn(system.Root, actors.Config{Model: model, Cache: cache, Device: device}, actors.WithName(name))
	check(err)
	return &backend{name: name, engine: engine, pools: pools, mirror: events.NewMirror()}
}

// serve computes a prompt and lets it go.
func serve(ctx context.Context, b *backend, prompt messages.Prefix) {
	in, err := b.engine.Admit(ctx, messages.AdmitRequest{Namespace: prompt.Namespace, Tokens: prompt.Tokens})
	check(err)
	_, err = b.engine.Commit(ctx, []messages.CommitStep{{Sequence: in.Sequence, Computed: len(prompt.Tokens)}})
	check(err)
	_, err = b.engine.Release(ctx, []messages.ReleaseStep{{Sequence: in.Sequence}})
	check(err)
}
