package consumers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/events/publish"
	"github.com/kvactor/kvactor/events/publish/wire"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

// blockTokens is the size of a block: the default of AIBrix is 16 bytes, which are 4
// tokens.
const blockTokens = 4

// model is what readers are told that the engine serves.
const model = "m"

// prompt is a prompt of a namespace.
type prompt struct {
	ns     messages.Namespace
	tokens []messages.Token
}

// host is an engine with few pages, so that most prompts are evicted soon, and its
// publisher.
type host struct {
	t       *testing.T
	engine  *kvactor.Engine
	p       *wire.Publisher
	random  *rand.Rand
	prompts []prompt // the latest ones
	all     []prompt
	weights string // the epoch
}

// shape is a model and the pages of its pools.
type shape struct {
	name   string
	model  kvactor.Model
	window []int
	pages  []kvactor.PageCounts
}

// attention is a model of two layers of attention.
var attention = kvactor.Model{Layers: 2, KVHeads: []int{1, 1}, HeadDim: 8, DType: kvactor.Float16,
	MaxSeqLen: 256}

// windowed has a layer with a window and one of full attention.
var windowed = shape{"windows", attention, []int{8, 256},
	[]kvactor.PageCounts{{Primary: 30, Secondary: 12}, {Primary: 40, Secondary: 20}}}

// shapes are the kinds of models whose prefixes need more than full attention has.
func shapes() []shape {
	recurrent := attention
	recurrent.Layers, recurrent.KVHeads = 3, []int{1, 1, 0}
	recurrent.States = []kvactor.State{{Layers: []int{2}, Bytes: 256}}
	small := []kvactor.PageCounts{{Primary: 24, Secondary: 4}, {Primary: 40, Secondary: 20},
		{Primary: 10, Secondary: 4}}
	return []shape{
		windowed,
		{"windows alone", attention, []int{8, 32}, small[:2]},
		{"states", recurrent, []int{256}, small[1:]},
		{"windows and states", recurrent, []int{8, 256, 256}, small},
	}
}

// freeEndpoint is an endpoint on a port that is free now: one engine may follow another
// there.
func freeEndpoint(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return "tcp://" + l.Addr().String()
}

func newHost(t *testing.T, endpoint string, change func(*wire.Options)) *host {
	return newHostOf(t, windowed, endpoint, change)
}

func newHostOf(t *testing.T, m shape, endpoint string, change func(*wire.Options)) *host {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.EventBufferMaxSize, cache.HostCacheSize = blockTokens, 1000, 1<<18
	cache.MaxAttentionWindow = m.window
	engine, err := kvactor.Open(kvactor.Config{Model: m.model, Cache: cache, Pages: m.pages,
		Device: device})
	require.NoError(t, err)
	h := &host{t: t, engine: engine, random: rand.New(rand.NewPCG(3, 4))}
	o := wire.Options{Source: engine, View: publish.Config{Pools: engine.Pools()},
		Config: wire.Default(), Interval: -1}
	o.Config.Enable, o.Config.Endpoint, o.Config.Topic = true, endpoint, "kv@pod@"+model
	change(&o)
	h.p, err = wire.Start(t.Context(), o)
	require.NoError(t, err)
	return h
}

func (h *host) close() {
	ctx := context.WithoutCancel(h.t.Context())
	require.NoError(h.t, h.p.Close(ctx))
	_, err := h.engine.Close(ctx)
	require.NoError(h.t, err)
}

// namespaces are those of the workload.
var namespaces = []messages.Namespace{{}, {}, {Salt: "tenant"}, {LoRA: "adapter", HasLoRA: true}}

// step serves a prompt. Its beginning may have a low priority, so that parents are
// evicted before their children; now and then everything is forgotten.
func (h *host) step() {
	h.t.Helper()
	ctx := h.t.Context()
	switch h.random.IntN(80) {
	case 0, 1:
		require.NoError(h.t, h.engine.Reset(ctx))
	case 2:
		h.weights = fmt.Sprint(h.random.IntN(3))
		require.NoError(h.t, h.engine.SetWeights(ctx, h.weights))
	}
	h.serve(h.drawn())
	require.NoError(h.t, h.p.Poll(ctx))
}

// drawn is a prompt that begins like others.
func (h *host) drawn() prompt {
	p := prompt{namespaces[h.random.IntN(len(namespaces))],
		make([]messages.Token, 9+h.random.IntN(50))}
	for i := range p.tokens {
		p.tokens[i] = messages.Token(1 + h.random.IntN(3)*(i/8))
	}
	return p
}

// serve computes a prompt and returns how many tokens it has reused.
func (h *host) serve(p prompt) (reused int) {
	h.t.Helper()
	ctx := h.t.Context()
	r := kvactor.AdmitRequest{Namespace: p.ns, Tokens: p.tokens}
	if h.random.IntN(3) == 0 {
		r.Retention = &kvactor.Retention{Ranges: []kvactor.RetentionRange{{Start: 0, End: 8,
			Priority: 1}}}
	}
	s, err := h.engine.Admit(ctx, r)
	require.NoError(h.t, err)
	for _, end := range append(s.Admitted().Checkpoints, len(p.tokens)) {
		require.NoError(h.t, s.Commit(ctx, end, kvactor.Ticket{}))
	}
	require.NoError(h.t, s.Release(ctx, kvactor.Ticket{}))
	h.prompts = append(h.prompts, p)
	h.prompts = h.prompts[max(0, len(h.prompts)-20):]
	h.all = append(h.all, p)
	return s.Admitted().ReusedTokens
}

// published are the tiers of the leading published blocks of a prompt.
func (h *host) published(p prompt) (tiers []string) {
	p.ns.Weights = h.weights // who names blocks as the engine does says of which weights they are
	names, err := events.Names(messages.Prefix{Namespace: p.ns, Tokens: p.tokens}, blockTokens)
	require.NoError(h.t, err)
	for _, n := range names {
		t, ok := h.p.Tier(n)
		if !ok {
			break
		}
		tiers = append(tiers, map[messages.Tier]string{messages.Primary: "gpu",
			messages.Secondary: "cpu"}[t])
	}
	return tiers
}

// follow holds that a reader comes to say of each prompt what is published.
func (h *host) follow(what string, answer func(prompt) []string) {
	h.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		difference := ""
		for _, p := range h.prompts {
			if want, got := h.published(p), answer(p); !slices.Equal(want, got) {
				difference = fmt.Sprintf("%s says %v of %v in %+v, published are %v", what, got, p.tokens, p.ns,
					want)
				break
			}
		}
		if difference == "" {
			return
		}
		require.True(h.t, time.Now().Before(deadline), difference)
		time.Sleep(time.Millisecond)
	}
}
