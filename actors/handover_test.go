package actors_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// exported writes a sequence to memory and ends the hold.
func exported(t testing.TB, r *rig, id messages.SequenceID) []byte {
	t.Helper()
	var stream bytes.Buffer
	x, err := actors.HandoversOf(r.Engine).Export(context.Background(), id, &stream)
	require.NoError(t, err)
	assert.EqualValues(t, stream.Len(), x.Bytes)
	require.NoError(t, x.Release(context.Background()))
	require.NoError(t, x.Release(context.Background()), "the second does nothing")
	return stream.Bytes()
}

// arrived is the host's view of a sequence that has come.
func arrived(m *actors.Imported) *sequence {
	return &sequence{
		id: m.Sequence, prompt: m.Prompt, computed: m.Computed, ready: m.Ready,
		chains: host.Chains(messages.Prefix{Namespace: m.Namespace, Tokens: m.Tokens, Multimodal: m.Multimodal}),
	}
}

// handed sends a sequence over a connection.
func handed(t testing.TB, from, to *rig, id messages.SequenceID) (*actors.Exported, *actors.Imported) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	type sent struct {
		x   *actors.Exported
		err error
	}
	done := make(chan sent)
	go func() {
		x, err := actors.HandoversOf(from.Engine).Send(context.Background(), id, a)
		done <- sent{x, err}
	}()
	m, err := actors.HandoversOf(to.Engine).Receive(context.Background(), b)
	require.NoError(t, err)
	s := <-done
	require.NoError(t, s.err)
	return s.x, m
}

// stateful is a setup with every kind of pool.
func stateful() setup {
	return setup{
		windows: []int{full, 8, 16},
		pages:   []windows.Counts{{Primary: 24}, {Primary: 24}, {Primary: 24}, {Primary: 8}},
		change: func(c *windows.Config) {
			c.SinkTokenLength = 4
			c.MaxAttentionWindow = append(c.MaxAttentionWindow, full)
		},
		model: func(m *windows.Model) {
			m.KVHeads = []int{1, 1, 1, 0}
			m.States = []windows.State{{Layers: []int{m.Layers}, Bytes: 24}}
			m.Layers++
		},
	}
}

// limited is a setup with full attention and two windows, one of them with sinks.
func limited(pages int) setup {
	return setup{
		windows: []int{full, 8, 16}, pages: slices.Repeat([]windows.Counts{{Primary: pages, Secondary: 4}}, 3),
		change: func(c *windows.Config) { c.SinkTokenLength = 4 },
	}
}

// A sequence goes on at another engine where it was, with the right bytes in every pool,
// and the receiver takes pages for the windows and no more.
func TestHandover(t *testing.T) {
	from, to := newRig(t, limited(24)), newRig(t, limited(16))
	s, err := from.start(run(0, 33))
	require.NoError(t, err)
	require.NoError(t, from.decode(from.writer, s, 900))
	stream := exported(t, from, s.id)
	require.NoError(t, from.release(s))
	from.verify()

	m, err := actors.HandoversOf(to.Engine).Import(context.Background(), bytes.NewReader(stream))
	require.NoError(t, err)
	assert.Equal(t, append(run(0, 33), 900), m.Tokens)
	assert.Equal(t, []int{33, 33}, []int{m.Prompt, m.Computed})
	assert.EqualValues(t, len(stream), m.Bytes)
	got := arrived(m)
	to.verify(got)
	for i := range 20 {
		require.NoError(t, to.decode(to.writer, got, messages.Token(901+i)))
	}
	to.verify(got)
	require.NoError(t, to.release(got))
	to.verify()
	stats, err := to.Stats(context.Background())
	require.NoError(t, err)
	assert.Zero(t, stats.Sequences)
	from.close()
	to.close()
}

// A receiver shares what it has, and over a connection only the rest is sent.
func TestHandoverOfWhatIsThere(t *testing.T) {
	from, to := newRig(t, limited(24)), newRig(t, limited(24))
	to.store(run(0, 24))
	s, err := from.start(run(0, 33))
	require.NoError(t, err)
	x, m := handed(t, from, to, s.id)
	assert.Equal(t, 6+2+2, m.SharedPages, "six blocks of full attention, two sinks, two blocks of the larger window")
	assert.Equal(t, x.Pages, m.Pages)
	first := arrived(m)
	to.verify(first)

	stream := exported(t, from, s.id)
	again, err := actors.HandoversOf(to.Engine).Import(context.Background(), bytes.NewReader(stream))
	require.NoError(t, err)
	assert.Equal(t, 3, again.Pages, "the partial block of each pool")
	second := arrived(again)
	to.verify(first, second)
	require.NoError(t, to.decode(to.writer, first, 7))
	require.NoError(t, to.decode(to.writer, second, 8))
	to.verify(first, second)
	for _, s := range []*sequence{first, second} {
		require.NoError(t, to.release(s))
	}
	require.NoError(t, from.release(s))
	from.verify()
	to.verify()
	from.close()
	to.close()
}

// The importer reads not a byte beyond the stream: a host's own words may follow.
func TestImportStopsAtTheEnd(t *testing.T) {
	from, to := newRig(t, limited(24)), newRig(t, limited(24))
	s, err := from.start(run(0, 9))
	require.NoError(t, err)
	r := io.MultiReader(bytes.NewReader(exported(t, from, s.id)), bytes.NewReader([]byte("behind")))
	m, err := actors.HandoversOf(to.Engine).Import(context.Background(), r)
	require.NoError(t, err)
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "behind", string(rest))
	require.NoError(t, to.release(arrived(m)))
	require.NoError(t, from.release(s))
	from.close()
	to.close()
}
