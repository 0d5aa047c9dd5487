package wire

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/events/publish"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is an engine of one pool of full attention, with few pages and a workload.
type host struct {
	t      *testing.T
	engine *kvactor.Engine
	p      *Publisher
	random *rand.Rand
}

func newHost(t *testing.T, change func(*Options)) *host {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.EventBufferMaxSize, cache.HostCacheSize = 4, 1000, 1<<16
	engine, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{Layers: 1, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16,
			MaxSeqLen: 256},
		Cache: cache, Pages: []kvactor.PageCounts{{Primary: 24, Secondary: 12}}, Device: device,
	})
	require.NoError(t, err)
	h := &host{t: t, engine: engine, random: rand.New(rand.NewPCG(1, 2))}
	o := Options{Source: engine, View: publish.Config{Pools: engine.Pools()}, Config: Default(),
		Interval: -1}
	o.Config.Endpoint = "tcp://127.0.0.1:0"
	o.Config.ReplayEndpoint = "tcp://127.0.0.1:0"
	change(&o)
	h.p, err = Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, h.p.Close(ctx))
		_, err := engine.Close(ctx)
		require.NoError(t, err)
	})
	return h
}

// serve runs a prompt of one of a few beginnings, and publishes what has changed.
func (h *host) serve(ns messages.Namespace) []messages.Token {
	tokens := h.run(ns)
	require.NoError(h.t, h.p.Poll(h.t.Context()))
	return tokens
}

// run runs a prompt of one of a few beginnings.
func (h *host) run(ns messages.Namespace) []messages.Token {
	tokens := make([]messages.Token, 8+h.random.IntN(40))
	for i := range tokens {
		tokens[i] = messages.Token(h.random.IntN(4) * (i / 8))
	}
	s, err := h.engine.Admit(h.t.Context(), kvactor.AdmitRequest{Namespace: ns, Tokens: tokens})
	require.NoError(h.t, err)
	require.NoError(h.t, s.Commit(h.t.Context(), len(tokens), kvactor.Ticket{}))
	require.NoError(h.t, s.Release(h.t.Context(), kvactor.Ticket{}))
	return tokens
}

// matched is how many blocks of a prompt the engine would reuse, and the publisher
// has published.
func (h *host) matched(ns messages.Namespace, tokens []messages.Token) (engine, published int) {
	names, err := events.Names(messages.Prefix{Namespace: ns, Tokens: tokens}, 4)
	require.NoError(h.t, err)
	found, err := h.engine.Lookup(h.t.Context(), messages.Prefix{Namespace: ns,
		Tokens: append(tokens, 9)})
	require.NoError(h.t, err)
	return found.MatchedTokens / 4, h.p.Match(names)
}

// mirror follows what people are told over HTTP.
type mirror map[string]string // tier of each block

func (m mirror) follow(t require.TestingT, text []byte) toldBatch {
	var b toldBatch
	require.NoError(t, json.Unmarshal(text, &b))
	for _, e := range b.Events {
		parent := e.Parent
		for _, name := range e.Blocks {
			switch e.Type {
			case "stored":
				require.NotContains(t, m, name)
				if parent != "" {
					require.Contains(t, m, parent)
				}
				m[name], parent = e.Tier, name
			case "removed":
				require.Equal(t, e.Tier, m[name])
				delete(m, name)
			case "moved":
				require.Equal(t, e.OldTier, m[name])
				m[name] = e.Tier
			}
		}
		if e.Type == "cleared" {
			clear(m)
		}
	}
	return b
}
