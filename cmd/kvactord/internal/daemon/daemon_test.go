package daemon

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// What one client has written, another one finds, byte for byte, in its own mapping.
func TestClientsShareBlocks(t *testing.T) {
	d := serve(t, nil)
	writer, reader := d.open(opening()), d.open(opening())
	tokens := tokensFrom(1000, 10*blockTokens)
	require.Zero(t, reader.match(prompt(tokens)).Tokens, "nothing is stored yet")

	writer.store(prompt(tokens), tokens)
	m := reader.match(prompt(append(tokens, 1)))
	require.EqualValues(t, len(tokens), m.Tokens)
	reader.holds(m, tokens)
	window := wire.UnpackPages(m.Pages[0])
	require.EqualValues(t, 64, reader.Opened.Pools[0].Window)
	assert.EqualValues(t, -1, window[0], "the window has passed the first block")
	assert.NotEqualValues(t, -1, window[len(window)-1])

	// The last token is always computed, so of exactly these blocks the last is not matched.
	n := reader.match(prompt(tokens))
	assert.EqualValues(t, len(tokens)-blockTokens, n.Tokens)
	out := reader.step(&wire.Step{Releases: []uint64{m.Handle, n.Handle, m.Handle}})
	assert.Nil(t, out.Releases[0].Error)
	assert.Nil(t, out.Releases[1].Error)
	assert.Equal(t, codeHandle, code(out.Releases[2].Error), "released twice")

	r := reader.reserve(&wire.Reserve{Prompt: prompt(tokens)})
	assert.Zero(t, r.Handle, "all is stored")
	assert.EqualValues(t, len(tokens), r.Tokens)
}

// A longer prompt gets pages for its new blocks only, in several parts, and for an answer.
func TestWritesInParts(t *testing.T) {
	d := serve(t, nil)
	c := d.open(opening())
	tokens := tokensFrom(5000, 6*blockTokens)
	c.store(prompt(tokens[:2*blockTokens]), tokens[:2*blockTokens])
	r := c.reserve(&wire.Reserve{Prompt: prompt(tokens[:4*blockTokens])})
	require.EqualValues(t, 2*blockTokens, r.Tokens)
	for p := range r.Pages {
		pages := wire.UnpackPages(r.Pages[p])
		assert.Equal(t, []int32{-1, -1}, pages[:2])
		assert.GreaterOrEqual(t, pages[2], int32(0))
		assert.GreaterOrEqual(t, pages[3], int32(0))
	}
	early := c.step(
		&wire.Step{Extends: []*wire.Extend{{Handle: r.Handle,
			Tokens: wire.PackTokens(tokens[4*blockTokens:])}}})
	assert.Equal(t, "bad_request", code(early.Extends[0].Error), "not all is written")
	c.fill(r, tokens)
	for _, n := range []int{3, 4} {
		out := c.step(&wire.Step{
			Written: []*wire.Written{{Handle: r.Handle, Tokens: uint32(n * blockTokens)}},
			Matches: []*wire.Match{{Prompt: prompt(tokens)}},
		})
		require.Nil(t, out.Written[0].Error)
		require.EqualValues(t, n*blockTokens, out.Matches[0].Tokens)
		c.holds(out.Matches[0], tokens)
		c.step(&wire.Step{Releases: []uint64{out.Matches[0].Handle}})
	}
	x := c.step(
		&wire.Step{Extends: []*wire.Extend{{Handle: r.Handle,
			Tokens: wire.PackTokens(tokens[4*blockTokens:])}}}).Extends[0]
	require.Nil(t, x.Error)
	for p := range x.Pages {
		pages := wire.UnpackPages(x.Pages[p])
		require.Len(t, pages, 2)
		for b, page := range pages {
			copy(c.page(p, page), contents(p, b+4, tokens, len(c.page(p, page))))
		}
	}
	c.step(&wire.Step{Written: []*wire.Written{{Handle: r.Handle, Tokens: uint32(len(tokens))}},
		Releases: []uint64{r.Handle}})
	m := c.match(prompt(append(tokens, 7)))
	require.EqualValues(t, len(tokens), m.Tokens)
	c.holds(m, tokens)
}

// What a client has not said to be written is never found, however its session ends.
func TestHalfWrittenIsNeverFound(t *testing.T) {
	d := serve(t, nil)
	c, other := d.open(opening()), d.open(opening())
	tokens := tokensFrom(9000, 8*blockTokens)
	before := other.used()
	r := c.reserve(&wire.Reserve{Prompt: prompt(tokens)})
	c.fill(r, tokens)
	c.step(&wire.Step{Written: []*wire.Written{{Handle: r.Handle, Tokens: 3 * blockTokens}}})
	c.match(prompt(tokens)) // a claim that is never released
	require.NoError(t, c.Close())
	eventually(t, "everything is given back", func() bool { return other.used() == before })
	m := other.match(prompt(append(tokens, 1)))
	require.EqualValues(t, 3*blockTokens, m.Tokens)
	other.holds(m, tokens)
}

// A client that has only the window's pages writes these, as a whole; shorter prompts do not match
// there.
func TestWritesOfATail(t *testing.T) {
	d := serve(t, nil)
	c := d.open(opening())
	tokens := tokensFrom(9000, 8*blockTokens)
	reserve := &wire.Reserve{Prompt: prompt(tokens), Tail: true}
	r := c.reserve(reserve)
	assert.Zero(t, r.Tokens)
	assert.Equal(t, []int32{-1, -1, -1, -1}, wire.UnpackPages(r.Pages[0])[:4],
		"the window has passed them")
	assert.NotContains(t, wire.UnpackPages(r.Pages[1]), int32(-1))
	c.step(&wire.Step{Releases: []uint64{r.Handle}})
	assert.Zero(t, c.match(prompt(append(tokens, 1))).Tokens, "released without a written")

	r = c.reserve(reserve)
	c.fill(r, tokens)
	part := c.step(
		&wire.Step{Written: []*wire.Written{{Handle: r.Handle, Tokens: blockTokens}}}).Written[0]
	assert.Equal(t, "bad_request", code(part.Error))
	out := c.step(&wire.Step{Written: []*wire.Written{{Handle: r.Handle, Tokens: uint32(len(tokens))}},
		Releases: []uint64{r.Handle}})
	require.Nil(t, out.Written[0].Error)
	m := c.match(prompt(append(tokens, 1)))
	require.EqualValues(t, len(tokens), m.Tokens)
	c.holds(m, tokens)
	short := c.match(prompt(tokens[:6*blockTokens]))
	assert.Zero(t, short.Tokens)
	assert.Equal(t, "window_hole", short.Reason)
	assert.Zero(t, c.reserve(reserve).Handle, "all is stored")
	require.NoError(t, d.d.engines.latest().engine.Check(t.Context()))
}

// No prompt matches what has another salt or another adapter.
func TestNamespacesShareNothing(t *testing.T) {
	d := serve(t, nil)
	c := d.open(opening())
	tokens := tokensFrom(100, 4*blockTokens)
	more := append(tokens, 1)
	c.store(salted(prompt(tokens), "gold"), tokens)
	adapter := "lora"
	for _, p := range []*wire.Prompt{prompt(more), salted(prompt(more), "silver"),
		{Tokens: wire.PackTokens(more), Salt: "gold", Adapter: &adapter}} {
		m := c.match(p)
		assert.Zero(t, m.Tokens)
		assert.Zero(t, m.Handle)
		assert.Empty(t, m.Pages)
	}
	assert.EqualValues(t, len(tokens), c.match(salted(prompt(more), "gold")).Tokens)
	assert.NotContains(t, d.logged(), "gold")
}

// The socket is the user's alone.
func TestTheSocketIsPrivate(t *testing.T) {
	d := serve(t, nil)
	info, err := os.Stat(d.socket)
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, info.Mode().Perm())
	_, err = Open(d.d.config)
	require.ErrorContains(t, err, "another daemon")
	d.stop()
	_, err = os.Stat(d.socket)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
