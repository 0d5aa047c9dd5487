package consumers

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache/kvblock"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents/engineadapter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kvactor/kvactor/events/publish/wire"
	"github.com/kvactor/kvactor/messages"
)

// llmd is llm-d's indexer, subscribed to an endpoint.
type llmd struct {
	t     *testing.T
	index *kvcache.Indexer
}

func subscribeLLMD(t *testing.T, endpoint string) *llmd {
	tokens, err := kvblock.NewChunkedTokenDatabase(
		&kvblock.TokenProcessorConfig{BlockSize: blockTokens})
	require.NoError(t, err)
	config, err := kvcache.NewDefaultConfig()
	require.NoError(t, err)
	index, err := kvcache.NewKVCacheIndexer(t.Context(), config, tokens)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	pool := kvevents.NewPool(kvevents.DefaultConfig(), index.KVBlockIndex(), tokens,
		engineadapter.NewVLLMAdapter())
	pool.Start(ctx)
	manager := kvevents.NewSubscriberManager(pool)
	require.NoError(t, manager.EnsureSubscriber(ctx, "pod", endpoint, "kv@", true))
	t.Cleanup(func() { manager.Shutdown(ctx); cancel(); pool.Shutdown(context.Background()) })
	return &llmd{t, index}
}

// tiers are those of the leading blocks of a prompt that the pod holds. llm-d keeps
// salts apart as items of the first block, and adapters as models.
func (l *llmd) tiers(p prompt) (tiers []string) {
	var extra []*kvblock.BlockExtraFeatures
	if p.ns.Salt != "" {
		extra = make([]*kvblock.BlockExtraFeatures, len(p.tokens)/blockTokens)
		extra[0] = &kvblock.BlockExtraFeatures{MMHashes: []kvblock.MMHash{{Hash: p.ns.Salt}}}
	}
	name := model
	if p.ns.HasLoRA {
		name = p.ns.LoRA
	}
	tokens := make([]uint32, len(p.tokens))
	for i, tok := range p.tokens {
		tokens[i] = uint32(tok)
	}
	keys, err := l.index.ComputeBlockKeysFromTokens(l.t.Context(), tokens, name, extra)
	require.NoError(l.t, err)
	found, err := l.index.KVBlockIndex().Lookup(l.t.Context(), keys, sets.New[string]())
	require.NoError(l.t, err)
	for _, k := range keys {
		if len(found[k]) == 0 {
			break
		}
		var of []string
		for _, e := range found[k] {
			of = append(of, e.DeviceTier)
		}
		slices.Sort(of)
		if len(of) > 1 {
			of = []string{fmt.Sprint(of)}
		}
		tiers = append(tiers, of...)
	}
	return tiers
}

func snapshots(o *wire.Options) { o.Config.SnapshotOnSubscribe = true }

// After each step llm-d says of each prompt how many of its blocks the engine has, and
// in which tier.
func TestLLMDFollows(t *testing.T) {
	endpoint := freeEndpoint(t)
	h := newHost(t, endpoint, snapshots)
	defer h.close()
	reader := subscribeLLMD(t, endpoint)
	seen := map[string]int{}
	for range 150 {
		h.step()
		h.follow("llm-d", reader.tiers)
		for _, p := range h.prompts {
			for _, tier := range h.published(p) {
				seen[tier]++
			}
		}
	}
	assert.Greater(t, seen["gpu"], 100)
	assert.Greater(t, seen["cpu"], 100)
	t.Run("late", func(t *testing.T) {
		late := subscribeLLMD(t, endpoint)
		h.follow("llm-d, which came late,", late.tiers)
		for range 20 {
			h.step()
			h.follow("llm-d, which came late,", late.tiers)
		}
	})
}

// Without the salt no one finds a salted prompt.
func TestLLMDKeepsSaltsApart(t *testing.T) {
	endpoint := freeEndpoint(t)
	h := newHost(t, endpoint, snapshots)
	defer h.close()
	tokens := make([]messages.Token, 16)
	s, err := h.engine.Admit(t.Context(),
		messages.AdmitRequest{Namespace: messages.Namespace{Salt: "tenant"}, Tokens: tokens})
	require.NoError(t, err)
	require.NoError(t, s.Commit(t.Context(), 16, messages.Ticket{}))
	require.NoError(t, h.p.Poll(t.Context()))
	reader := subscribeLLMD(t, endpoint)
	h.prompts = []prompt{{messages.Namespace{Salt: "tenant"}, tokens}}
	h.follow("llm-d", reader.tiers)
	assert.Len(t, reader.tiers(h.prompts[0]), 4)
	assert.Empty(t, reader.tiers(prompt{tokens: tokens}))
	assert.Empty(t, reader.tiers(prompt{messages.Namespace{Salt: "other"}, tokens}))
}

// After a restart llm-d forgets what the engine had and follows the new one.
func TestLLMDFollowsOverARestart(t *testing.T) {
	endpoint := freeEndpoint(t)
	h := newHost(t, endpoint, snapshots)
	reader := subscribeLLMD(t, endpoint)
	for range 10 {
		h.step()
		h.follow("llm-d", reader.tiers)
	}
	before := h.prompts
	h.close()
	h = newHost(t, endpoint, snapshots)
	defer h.close()
	h.prompts = before // of which nothing is left
	h.follow("llm-d after a restart", reader.tiers)
	h.step()
	h.follow("llm-d after a restart", reader.tiers)
}
