package encoderdecoder_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// A prefix without decoder tokens is about the input, one with them about the
// prompt behind it.
func TestLookup(t *testing.T) {
	r := newRig(t, setup{pages: pages(20, 20)})
	defer r.end()
	r.store(ask(run(100, 6), run(0, 9)))
	for _, c := range []struct {
		prefix messages.Prefix
		want   int
	}{
		{messages.Prefix{Encoder: run(100, 6)}, 6},
		{messages.Prefix{Encoder: run(100, 5)}, 0},
		{messages.Prefix{Encoder: run(100, 6), Tokens: run(0, 9)}, 8},
		{messages.Prefix{Encoder: run(100, 6), Tokens: run(50, 9)}, 0},
		{messages.Prefix{Encoder: run(101, 6), Tokens: run(0, 9)}, 0},
		{messages.Prefix{Encoder: run(100, 6), Namespace: messages.Namespace{Salt: "x"}}, 0},
	} {
		f, err := r.Lookup(context.Background(), c.prefix)
		require.NoError(t, err)
		assert.Equal(t, messages.Found{MatchedTokens: c.want, PrimaryTokens: c.want}, f, "%+v", c.prefix)
	}
	_, err := r.Lookup(context.Background(), messages.Prefix{Tokens: run(0, 9)})
	assert.ErrorIs(t, err, messages.ErrBadRequest)
	_, err = r.Lookup(context.Background(), messages.Prefix{})
	assert.ErrorIs(t, err, messages.ErrBadRequest)
}

func TestPinsOfEitherSide(t *testing.T) {
	r := newRig(t, setup{pages: pages(6, 4)})
	defer r.end()
	ctx := context.Background()
	r.store(ask(run(100, 7), run(0, 8)))
	input, err := r.Pin(ctx, messages.Prefix{Encoder: run(100, 7)})
	require.NoError(t, err)
	assert.Equal(t, 7, input.Tokens)
	prompt, err := r.Pin(ctx, messages.Prefix{Encoder: run(100, 7), Tokens: run(0, 8)})
	require.NoError(t, err)
	assert.Equal(t, 8, prompt.Tokens)
	assert.NotEqual(t, input.Pin, prompt.Pin)
	r.assertPool(0, 2, 0, 4)
	r.assertCross(2, 0, 2)

	_, err = r.admit(ask(run(200, 12), run(0, 4)))
	require.ErrorIs(t, err, messages.ErrOutOfPages)
	_, err = r.admit(ask(run(200, 8), run(0, 20)))
	require.ErrorIs(t, err, messages.ErrOutOfPages)
	require.NoError(t, r.Unpin(ctx, input.Pin))
	require.NoError(t, r.Unpin(ctx, prompt.Pin))
	r.assertPool(0, 0, 2, 4)
	r.assertCross(0, 2, 2)
	for _, pin := range []messages.PinID{input.Pin, prompt.Pin, 99, 1<<63 | 99} {
		assert.ErrorIs(t, r.Unpin(ctx, pin), messages.ErrUnknownPin)
	}
	_, err = r.Pin(ctx, messages.Prefix{Tokens: run(0, 4)})
	assert.ErrorIs(t, err, messages.ErrBadRequest)
	r.verify()
}

func TestPrefetchOfAnInput(t *testing.T) {
	r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 20}, {Primary: 3, Secondary: 6}}})
	defer r.end()
	ctx := context.Background()
	r.store(ask(run(100, 10), run(0, 4)))
	r.store(ask(run(200, 10), run(0, 4)))
	n, err := r.Prefetch(ctx, messages.Prefix{Encoder: run(100, 10)})
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	assert.Equal(t, messages.Found{MatchedTokens: 10, PrimaryTokens: 10}, r.found(run(100, 10)))
	n, err = r.Prefetch(ctx, messages.Prefix{Encoder: run(100, 10), Tokens: run(0, 4)})
	require.NoError(t, err)
	assert.Zero(t, n)
	_, err = r.Prefetch(ctx, messages.Prefix{Tokens: run(0, 4)})
	assert.ErrorIs(t, err, messages.ErrBadRequest)
	r.verify()
}

func TestInvalidation(t *testing.T) {
	prefix := func(encoder, tokens []messages.Token) messages.Selector {
		return messages.Selector{Prefix: &messages.Prefix{
			Namespace: messages.Namespace{Salt: "x"}, Encoder: encoder, Tokens: tokens,
		}}
	}
	forget := map[string]struct {
		selector       messages.Selector
		blocks         int
		input, decoder int // found afterwards
	}{
		"salt":           {messages.Selector{Salt: "x"}, 4, 0, 0},
		"another salt":   {messages.Selector{Salt: "y"}, 0, 6, 8},
		"session":        {messages.Selector{Session: "s"}, 4, 0, 0},
		"input":          {prefix(run(100, 6), nil), 2, 0, 8},
		"prompt":         {prefix(run(100, 6), run(0, 8)), 1, 6, 4},
		"another prompt": {prefix(run(101, 6), run(0, 8)), 0, 6, 8},
	}
	for name, c := range forget {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{pages: pages(20, 20)})
			defer r.end()
			ns := messages.Namespace{Salt: "x"}
			r.store(messages.AdmitRequest{Namespace: ns, Session: "s", Encoder: run(100, 6),
				Tokens: run(0, 8)})
			n, err := r.Invalidate(context.Background(), c.selector)
			require.NoError(t, err)
			assert.Equal(t, c.blocks, n)
			f, err := r.Lookup(context.Background(), messages.Prefix{Namespace: ns, Encoder: run(100, 6)})
			require.NoError(t, err)
			assert.Equal(t, c.input, f.MatchedTokens)
			f, err = r.Lookup(context.Background(), messages.Prefix{Namespace: ns, Encoder: run(100, 6),
				Tokens: run(0, 9)})
			require.NoError(t, err)
			assert.Equal(t, c.decoder, f.MatchedTokens)
			r.verify()
		})
	}
	r := newRig(t, setup{pages: pages(20, 20)})
	defer r.end()
	for _, s := range []messages.Selector{{}, {Salt: "x", Session: "s"},
		{Prefix: &messages.Prefix{Tokens: run(0, 3)}}} {
		_, err := r.Invalidate(context.Background(), s)
		assert.ErrorIs(t, err, messages.ErrBadRequest)
	}
}

// A reset forgets on both sides what no one holds.
func TestReset(t *testing.T) {
	r := newRig(t, setup{pages: pages(20, 20)})
	defer r.end()
	r.store(ask(run(100, 6), run(0, 8)))
	held := r.start(ask(run(200, 6), run(0, 8)))
	require.NoError(t, r.Reset(context.Background()))
	assert.Zero(t, r.found(run(100, 6)).MatchedTokens)
	assert.Equal(t, 6, r.found(run(200, 6)).MatchedTokens)
	r.assertCross(2, 0, 18)
	r.release(held)
	require.NoError(t, r.Reset(context.Background()))
	r.assertCross(0, 0, 20)
	r.assertPool(0, 0, 0, 20)
}

// Without reuse nothing is shared, on neither side.
func TestReuseDisabled(t *testing.T) {
	r := newRig(t,
		setup{pages: pages(20, 20), change: func(c *windows.Config) { c.EnableBlockReuse = false }})
	defer r.end()
	r.start(ask(run(100, 6), run(0, 8)))
	l := r.start(ask(run(100, 6), run(0, 8)))
	assert.Zero(t, l.admitted.Cross.ReusedTokens)
	assert.Equal(t, messages.ReasonDisabled, l.admitted.MissReason)
	r.assertCross(4, 0, 16)
}
