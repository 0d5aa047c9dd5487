package actors_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// A router that names a prompt's blocks and looks them up in a mirror finds what
// a lookup in the engine finds: exactly without partial reuse, else no more.
func TestAMirrorMatchesLikeTheEngine(t *testing.T) {
	for _, partial := range []bool{false, true} {
		var config windows.Config
		r := newRig(t, setup{
			windows: []int{10, full}, pages: []windows.PageCounts{{Primary: 14, Secondary: 4},
				{Primary: 20, Secondary: 6}},
			change: func(c *windows.Config) {
				c.EnablePartialReuse, c.EventBufferMaxSize, c.SinkTokenLength = partial, 1000, 3
				config = *c
			},
		})
		pools, err := windows.Pools(modelOf(2), config)
		require.NoError(t, err)
		mirror := events.NewMirror()
		ctx := context.Background()
		random := rand.New(rand.NewPCG(7, 7))
		found := 0
		for range 400 {
			p := randomPrefix(random)
			batch, err := r.Events(ctx)
			require.NoError(t, err)
			require.NoError(t, mirror.Follow(sent(t, batch)))
			names, err := events.Names(p, config.TokensPerBlock)
			require.NoError(t, err)
			lookup, err := r.Lookup(ctx, p)
			require.NoError(t, err)
			matched := mirror.Match(pools,
				names[:(len(p.Tokens)-1)/config.TokensPerBlock]) * config.TokensPerBlock
			if partial {
				require.LessOrEqual(t, matched, lookup.MatchedTokens)
			} else {
				require.Equal(t, lookup.MatchedTokens, matched)
			}
			found += matched
			r.serve(p)
		}
		assert.Greater(t, found, 400)
		r.close()
	}
}

// sent is a batch that another process has got as JSON.
func sent(t *testing.T, batch kvevents.EventBatch) (got kvevents.EventBatch) {
	text, err := json.Marshal(batch)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &got))
	// What JSON leaves out is of no use to a mirror.
	for i := range batch.Events {
		batch.Events[i].Namespace = nil
		for j := range batch.Events[i].Blocks {
			batch.Events[i].Blocks[j].Covers = nil
		}
	}
	require.Equal(t, batch, got)
	return got
}

// randomPrefix is one of a few prompts of four namespaces, some under an image.
func randomPrefix(random *rand.Rand) messages.Prefix {
	p := messages.Prefix{Tokens: run(random.IntN(3), 6+random.IntN(20))}
	for i := range p.Tokens {
		p.Tokens[i] %= 40
	}
	p.Namespace = []messages.Namespace{{}, {}, {Salt: "s"}, {LoRA: "x", HasLoRA: true}}[random.IntN(4)]
	if random.IntN(4) == 0 {
		p.Multimodal = []messages.MultimodalItem{{Hash: [32]byte{1}, Start: 1 + random.IntN(2),
			Length: 4}}
	}
	return p
}

// serve computes a prompt and releases it.
func (r *rig) serve(p messages.Prefix) {
	r.t.Helper()
	request := messages.AdmitRequest{Namespace: p.Namespace, Tokens: p.Tokens,
		Multimodal: p.Multimodal}
	in, err := r.Admit(context.Background(), request)
	require.NoError(r.t, err)
	s := admitted(request, &in)
	require.NoError(r.t, r.compute(r.writer, s, len(p.Tokens)))
	require.NoError(r.t, r.release(s))
}
