// Command gateway routes prompts to the engine that has most of them. It follows the
// events of two engines with mirrors.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/gpu/sim"
)

const blockTokens = 4

// backend is what a gateway keeps of one engine.
type backend struct {
	name   string
	engine *kvactor.Engine
	reader kvactor.ReaderID
	mirror *events.Mirror
}

func main() {
	ctx := context.Background()
	backends := []*backend{newBackend(ctx, "a"), newBackend(ctx, "b")}
	counting := make([]kvactor.Token, 12)
	for i := range counting {
		counting[i] = kvactor.Token(i)
	}
	serve(ctx, backends[0], kvactor.Prefix{Tokens: counting[:6]})
	serve(ctx, backends[1], kvactor.Prefix{Tokens: counting})
	serve(ctx, backends[1], kvactor.Prefix{Tokens: counting[4:]}) // more events than the buffer keeps

	tenant := kvactor.Prefix{Tokens: counting, Namespace: kvactor.Namespace{Salt: "tenant"}}
	for _, prompt := range []kvactor.Prefix{{Tokens: counting[:7]}, {Tokens: counting}, tenant} {
		for _, b := range backends {
			check(b.follow(ctx))
		}
		to, tokens, err := route(backends, prompt)
		check(err)
		fmt.Println(len(prompt.Tokens), "tokens to", to.name, "which has", tokens, "of them")
	}
	for _, b := range backends {
		_, err := b.engine.Close(ctx)
		check(err)
	}
}

// follow brings the mirror up to date. A gateway in another process is sent the batches
// as JSON.
func (b *backend) follow(ctx context.Context) error {
	batch, err := b.engine.Events(ctx, b.reader)
	if err != nil {
		return err
	}
	if err := b.mirror.Follow(batch); !errors.Is(err, events.ErrStale) {
		return err
	}
	// Events were lost, or an actor has failed: start again from a snapshot. The next
	// Events go on after it.
	if batch, err = b.engine.Snapshot(ctx, b.reader); err != nil {
		return err
	}
	return b.mirror.Follow(batch)
}

// route returns the backend that has most of a prompt, the first of equals, and how many
// tokens it has.
func route(backends []*backend, prompt kvactor.Prefix) (*backend, int, error) {
	names, err := events.Names(prompt, blockTokens)
	if err != nil {
		return nil, 0, err
	}
	names = names[:(len(prompt.Tokens)-1)/blockTokens] // the last token is always computed
	best, most := backends[0], 0
	for _, b := range backends {
		if n := b.mirror.Match(b.engine.Pools(), names); n > most {
			best, most = b, n
		}
	}
	return best, most * blockTokens, nil
}

// newBackend opens an engine that keeps two events for each reader.
func newBackend(ctx context.Context, name string) *backend {
	device, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
	check(err)
	model := kvactor.Model{
		Layers: 2, KVHeads: []int{8}, HeadDim: 16, DType: kvactor.Float16, MaxSeqLen: 4096,
	}
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = blockTokens
	cache.EventBufferMaxSize = 2 // really some thousands; 0, the default, is no events
	engine, err := kvactor.Open(kvactor.Config{Model: model, Cache: cache, Device: device})
	check(err)
	reader, err := engine.OpenReader(ctx)
	check(err)
	return &backend{name: name, engine: engine, reader: reader, mirror: events.NewMirror()}
}

// serve computes a prompt and releases it.
func serve(ctx context.Context, b *backend, prompt kvactor.Prefix) {
	s, err := b.engine.Admit(ctx, kvactor.AdmitRequest{
		Namespace: prompt.Namespace, Tokens: prompt.Tokens,
	})
	check(err)
	check(s.Commit(ctx, len(prompt.Tokens), kvactor.Ticket{}))
	check(s.Release(ctx, kvactor.Ticket{}))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
