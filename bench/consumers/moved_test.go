package consumers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
)

// plain is a model of full attention alone.
var plain = shape{"full attention", attention, []int{256},
	[]kvactor.PageCounts{{Primary: 6, Secondary: 8}}}

// moved is a prompt of four blocks of which the first has gone to host memory, before the others.
func (h *host) moved() prompt {
	ctx := h.t.Context()
	p := prompt{tokens: make([]kvactor.Token, 4*blockTokens)}
	for i := range p.tokens {
		p.tokens[i] = kvactor.Token(i)
	}
	h.prompts = []prompt{p}
	for _, r := range []kvactor.AdmitRequest{
		{Tokens: p.tokens, Retention: &kvactor.Retention{Ranges: []kvactor.RetentionRange{
			{Start: 0, End: blockTokens, Priority: 40}, {Start: blockTokens, End: 4 * blockTokens,
				Priority: 90},
		}}},
		{Tokens: make([]kvactor.Token, 3*blockTokens)},
	} {
		s, err := h.engine.Admit(ctx, r)
		require.NoError(h.t, err)
		require.NoError(h.t, s.Commit(ctx, len(r.Tokens), kvactor.Ticket{}))
		require.NoError(h.t, s.Release(ctx, kvactor.Ticket{}))
		require.NoError(h.t, h.p.Poll(ctx))
	}
	return p
}

// The events say where each block is, and who keeps blocks by name knows all four. Dynamo 1.6.1
// keeps an index for each tier: that of the device is a tree, which takes no block whose parent is
// not in it ("Failed to find parent block; skipping store operation") and cuts off what is behind
// a block that leaves it. So it knows the block in host memory, and none behind.
func TestDynamoKnowsNothingBehindABlockThatMoved(t *testing.T) {
	d := startDynamo(t)
	endpoint := freeEndpoint(t)
	h := newHostOf(t, plain, endpoint, snapshots)
	defer h.close()
	reader := subscribeLLMD(t, endpoint)
	d.register(endpoint)
	p := h.moved()
	require.Equal(t, []string{"cpu", "gpu", "gpu", "gpu"}, h.published(p))
	h.follow("llm-d", reader.tiers)
	assert.Equal(t, 4*blockTokens, h.matched(prompt{p.ns, append(p.tokens, 9)}), "all are reused")
	require.Eventually(t, func() bool { return d.find(p).CPU == blockTokens }, time.Minute,
		time.Millisecond)
	assert.Equal(t, blockTokens, d.find(p).Longest)
	assert.Zero(t, d.find(p).GPU)
}
