package encoderdecoder_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// pages gives the decoder's pool and the cross pool so many device pages.
func pages(decoder, cross int) []windows.PageCounts {
	return []windows.PageCounts{{Primary: decoder}, {Primary: cross}}
}

func TestPoolsListTheCrossPoolLast(t *testing.T) {
	r := newRig(t,
		setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 8}, {Primary: 9},
			{Primary: 10, Secondary: 3}}})
	defer r.end()
	infos := r.Pools()
	require.Len(t, infos, 3)
	assert.Equal(t, messages.PoolInfo{
		ID: 2, Name: "cross_h2", Kind: "cross", KVHeads: 2, Layers: []int{0, 1}, DType: "float16",
		HeadDim: 8, ValueDim: 8, KVFactor: 2,
		Layout: "HND", TokensPerBlock: tpb,
		PageBytes: 2 * 2 * 2 * tpb * 8 * 2, PrimaryPages: 10, SecondaryPages: 3,
	}, infos[2])
	assert.Len(t, r.DevicePools(), 3)
	stats, err := r.Stats(context.Background())
	require.NoError(t, err)
	assert.Equal(t, "cross_h2", stats.Pools[2].Name)
	assert.Equal(t, 3, stats.Pools[2].Secondary.Free)
}

// Ten tokens are three pages, the last one partly filled: all are shared.
func TestIdenticalInputsShareEveryPage(t *testing.T) {
	r := newRig(t, setup{pages: pages(12, 8)})
	defer r.end()
	first := r.start(ask(run(100, 10), run(0, 6)))
	assert.Zero(t, first.admitted.Cross.ReusedTokens)
	r.assertCross(3, 0, 5)

	second := r.start(ask(run(100, 10), run(50, 3)))
	assert.Equal(t, 10, second.admitted.Cross.ReusedTokens, "the last token too")
	assert.Equal(t, first.admitted.Cross.Table, second.admitted.Cross.Table)
	assert.Equal(t, messages.PoolReuse{Full: 3, PartialReuse: messages.PartialNone},
		second.admitted.Reuse[1])
	r.assertCross(3, 0, 5)
	r.verify()

	r.release(first)
	r.assertCross(3, 0, 5)
	r.release(second)
	r.assertCross(0, 3, 5)
	third := r.start(ask(run(100, 10), run(0, 6)))
	assert.Equal(t, 10, third.admitted.Cross.ReusedTokens)
	assert.Equal(t, 5, third.admitted.ReusedTokens, "the decoder's blocks match too")
	r.verify()
}

// The same decoder prompt behind another encoder input shares nothing.
func TestAnyDifferenceSharesNothing(t *testing.T) {
	encoder := run(100, 8)
	changed := func(i int) []messages.Token {
		tokens := append([]messages.Token(nil), encoder...)
		tokens[i] = 1
		return tokens
	}
	item := messages.MultimodalItem{Hash: [32]byte{1}, Start: 2, Length: 3}
	moved, other := item, item
	moved.Length, other.Hash = 4, [32]byte{2}
	with := func(items ...messages.MultimodalItem) messages.AdmitRequest {
		request := ask(encoder, run(0, 9))
		request.EncoderItems = items
		return request
	}
	for name, request := range map[string]messages.AdmitRequest{
		"first token":    ask(changed(0), run(0, 9)),
		"last token":     ask(changed(7), run(0, 9)),
		"shorter":        ask(encoder[:7], run(0, 9)),
		"a block less":   ask(encoder[:4], run(0, 9)),
		"longer by zero": ask(append(run(100, 8), 0), run(0, 9)),
		"salt":           {Encoder: encoder, Tokens: run(0, 9), Namespace: messages.Namespace{Salt: "x"}},
		"LoRA": {Encoder: encoder, Tokens: run(0, 9),
			Namespace: messages.Namespace{HasLoRA: true}},
		"an item":     with(item),
		"its length":  with(moved),
		"its content": with(other),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{pages: pages(16, 16)})
			defer r.end()
			r.start(ask(encoder, run(0, 9)))
			if name == "its length" || name == "its content" {
				r.start(with(item))
			}
			l := r.start(request)
			assert.Zero(t, l.admitted.Cross.ReusedTokens)
			assert.Zero(t, l.admitted.ReusedTokens)
			assert.Equal(t, messages.ReasonCold, l.admitted.MissReason)
			again := r.start(request)
			assert.Equal(t, len(request.Encoder), again.admitted.Cross.ReusedTokens,
				"but it shares with itself")
			assert.Equal(t, 8, again.admitted.ReusedTokens)
			r.verify()
		})
	}
}

// An input whose length is no multiple of a block is padded; the padding is no token.
func TestPaddingIsNoToken(t *testing.T) {
	r := newRig(t, setup{pages: pages(16, 16)})
	defer r.end()
	r.start(ask(run(100, 5), run(0, 5)))
	l := r.start(ask(append(run(100, 5), 0, 0, 0), run(0, 5)))
	assert.Zero(t, l.admitted.Cross.ReusedTokens)
	r.verify()
	blocks, err := r.Contents(context.Background())
	require.NoError(t, err)
	lengths := map[int]int{}
	for _, b := range blocks {
		if b.Pages[r.last] != protocol.Nowhere {
			lengths[len(b.Tokens)]++
			assert.Equal(t, protocol.Nowhere, b.Pages[0])
		}
	}
	assert.Equal(t, map[int]int{4: 3, 1: 1}, lengths)
}

func TestItemsInAnyOrderAreTheSame(t *testing.T) {
	r := newRig(t, setup{pages: pages(16, 16)})
	defer r.end()
	a, b := messages.MultimodalItem{Hash: [32]byte{1}, Start: 5, Length: 2},
		messages.MultimodalItem{Hash: [32]byte{2}, Start: 0, Length: 5}
	request := ask(run(100, 8), run(0, 5))
	request.EncoderItems = []messages.MultimodalItem{a, b}
	r.start(request)
	request.EncoderItems = []messages.MultimodalItem{b, a}
	assert.Equal(t, 8, r.start(request).admitted.Cross.ReusedTokens)
	assert.Equal(t, a, []messages.MultimodalItem{b, a}[1], "the host's slice is as it was")
}

// What no one has computed is not shared, and not kept if no one ever does.
func TestOnlyComputedInputsAreShared(t *testing.T) {
	r := newRig(t, setup{pages: pages(16, 8)})
	defer r.end()
	first, err := r.admit(ask(run(100, 8), run(0, 6)))
	require.NoError(t, err)
	second, err := r.admit(ask(run(100, 8), run(0, 6)))
	require.NoError(t, err)
	assert.Zero(t, second.admitted.Cross.ReusedTokens)
	assert.NotEqual(t, first.admitted.Cross.Table, second.admitted.Cross.Table)
	r.assertCross(4, 0, 4)
	r.release(first)
	r.assertCross(2, 0, 6)

	// A commit that computes nothing says nothing of the cross KV.
	results, err := r.Commit(context.Background(),
		[]messages.CommitStep{{Sequence: second.id, Computed: 0}})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	third, err := r.admit(ask(run(100, 8), run(0, 6)))
	require.NoError(t, err)
	assert.Zero(t, third.admitted.Cross.ReusedTokens)

	r.compute(second, 4) // a part of the prompt is enough
	fourth, err := r.admit(ask(run(100, 8), run(0, 6)))
	require.NoError(t, err)
	assert.Equal(t, 8, fourth.admitted.Cross.ReusedTokens)
	r.compute(third, 6)
	r.assertCross(4, 0, 4)
	r.release(third)
	r.assertCross(2, 0, 6) // the duplicate is not kept
	r.verify()
}

// The cross pool does not grow while tokens are generated.
func TestGenerationTakesNoCrossPages(t *testing.T) {
	r := newRig(t,
		setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 20}, {Primary: 20},
			{Primary: 3}}})
	defer r.end()
	l := r.start(ask(run(100, 11), run(0, 6)))
	for i := range 20 {
		require.NoError(t, r.decode(l, messages.Token(60+i)))
	}
	r.assertCross(3, 0, 0)
	require.NoError(t, r.RewindOne(context.Background(), l.id, 2))
	l.chains = l.chains[:len(l.chains)-2]
	l.computed = min(l.computed, len(l.chains))
	require.NoError(t, r.decode(l, 3))
	r.verify()
}

func TestForksShareTheCrossPages(t *testing.T) {
	r := newRig(t, setup{pages: pages(20, 4)})
	defer r.end()
	l := r.start(ask(run(100, 13), run(0, 6)))
	forks := r.fork(l, 3)
	r.assertCross(4, 0, 0)
	r.verify()
	r.release(l)
	for i, f := range forks {
		require.NoError(t, r.decode(f, messages.Token(70+i)))
		r.verify()
	}
	grand := r.fork(forks[0], 1)[0]
	for _, f := range forks {
		r.release(f)
		r.assertCross(4, 0, 0)
	}
	r.release(grand)
	r.assertCross(0, 4, 0)
	_, err := r.ForkOne(context.Background(), l.id, 1)
	assert.ErrorIs(t, err, messages.ErrUnknownSequence)
}

func TestForkOfAPromptThatIsNotComputed(t *testing.T) {
	r := newRig(t, setup{pages: pages(20, 4)})
	defer r.end()
	l, err := r.admit(ask(run(100, 4), run(0, 6)))
	require.NoError(t, err)
	_, err = r.ForkOne(context.Background(), l.id, 1)
	assert.ErrorIs(t, err, messages.ErrBadRequest)
	require.NoError(t, r.Check(context.Background()))
}

// All beams attend to the same cross pages.
func TestBeamsHaveOneCrossTable(t *testing.T) {
	r := newRig(t, setup{pages: pages(20, 4)})
	defer r.end()
	request := ask(run(100, 6), run(0, 4))
	request.BeamWidth = 3
	a, err := r.Admit(context.Background(), request)
	require.NoError(t, err)
	assert.Len(t, a.Tables[0], 3)
	assert.Len(t, a.Tables[1], 1)
	r.assertCross(2, 0, 2)
	_, err = r.Release(context.Background(), []messages.ReleaseStep{{Sequence: a.Sequence}})
	require.NoError(t, err)
	r.assertCross(0, 0, 4)
}
