package encoderdecoder_test

import (
	"bytes"
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// handed sends a sequence to another rig over a connection.
func handed(from, to *rig, l *hostSequence) (*actors.Imported, error) {
	a, b := net.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := actors.HandoversOf(from.Engine).Send(context.Background(), l.id, a)
		sent <- err
	}()
	m, err := actors.HandoversOf(to.Engine).Receive(context.Background(), b)
	_ = b.Close()
	failed := <-sent
	_ = a.Close()
	if err == nil {
		require.NoError(from.t, failed)
	} else {
		require.Error(from.t, failed)
	}
	return m, err
}

// arrived notes a sequence that has come, which must be what it was.
func (r *rig) arrived(l *hostSequence, m *actors.Imported) *hostSequence {
	require.Equal(r.t, []any{l.request.Encoder, l.request.EncoderItems, l.request.EncoderRetention},
		[]any{m.Encoder, m.EncoderItems, m.EncoderRetention})
	require.Equal(r.t, l.request.Namespace, m.Namespace)
	got := &hostSequence{
		id: m.Sequence, request: l.request, chains: append(l.chains[:0:0], l.chains...), cross: l.cross,
		computed: m.Computed, ready: m.Ready, written: true,
	}
	got.admitted.Cross = &messages.CrossAdmitted{ReusedTokens: len(m.Encoder),
		Table: m.Tables[r.last][0], Ready: m.Ready}
	r.running = append(r.running, got)
	return got
}

// A sequence goes on at another engine with its input, whose pages are shared with what is
// there, and stored for others.
func TestHandover(t *testing.T) {
	s := setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 20}, {Primary: 20},
		{Primary: 20}}}
	from, to := newRig(t, s), newRig(t, s)
	defer from.end()
	defer to.end()
	request := ask(run(100, 6), run(0, 9))
	request.EncoderItems = []messages.MultimodalItem{{Hash: [32]byte{1}, Start: 4, Length: 2},
		{Hash: [32]byte{2}, Start: 0, Length: 3}}
	request.EncoderRetention = &messages.Retention{
		Ranges: []messages.RetentionRange{{End: messages.EndOfPrompt, Priority: 80}},
	}
	l := from.start(request)
	m, err := handed(from, to, l)
	require.NoError(t, err)
	// The key has the items by their starts.
	l.request.EncoderItems = []messages.MultimodalItem{request.EncoderItems[1],
		request.EncoderItems[0]}
	assert.Zero(t, m.SharedPages)
	got := to.arrived(l, m)
	to.verify()
	again, err := handed(from, to, l)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 2 + 2 + 2}, []int{again.Pages, again.SharedPages},
		"the partial blocks come, the rest is there")
	second := to.arrived(l, again)
	for i := range 6 {
		require.NoError(t, to.decode(got, messages.Token(i)))
		require.NoError(t, to.decode(second, messages.Token(10+i)))
	}
	to.verify()
	found, err := to.Lookup(context.Background(), messages.Prefix{Encoder: request.Encoder,
		EncoderItems: request.EncoderItems})
	require.NoError(t, err)
	assert.Equal(t, 6, found.MatchedTokens, "what has come is stored")
	from.verify()
}

// An input that the receiver does not take is refused by name, and leaves nothing.
func TestRefusedHandover(t *testing.T) {
	s := setup{pages: pages(20, 20)}
	from, to := newRig(t, s), newRig(t, setup{pages: pages(20, 1)})
	defer from.end()
	defer to.end()
	l := from.start(ask(run(100, 6), run(0, 9)))
	before := to.picture()
	_, err := handed(from, to, l)
	require.ErrorIs(t, err, messages.ErrOutOfPages)
	require.ErrorContains(t, err, "pool cross_h2 needs 2 pages")
	assert.Equal(t, before, to.picture())

	var stream bytes.Buffer
	x, err := actors.HandoversOf(from.Engine).Export(context.Background(), l.id, &stream)
	require.NoError(t, err)
	require.NoError(t, x.Release(context.Background()))
	for n := 0; n < stream.Len(); n += 1 + n/50 {
		_, err := actors.HandoversOf(to.Engine).Import(context.Background(),
			bytes.NewReader(stream.Bytes()[:n]))
		require.Error(t, err)
	}
	assert.Equal(t, before, to.picture())
}

// TestRandomHandovers hands random sequences over, between engines with too few pages.
func TestRandomHandovers(t *testing.T) { rapid.Check(t, randomHandovers) }

func randomHandovers(rt *rapid.T) {
	i := rapid.IntRange(1, len(rooms)-1).Draw(rt, "room")
	var ends [2]*randomHosts
	for k := range ends {
		ends[k] = &randomHosts{rt: rt, known: map[string]int{}, lossy: true}
		s := rooms[i]
		s.now = &ends[k].now
		ends[k].rig = newRig(rt, s)
		defer ends[k].end()
	}
	end := func() *randomHosts { return ends[rapid.IntRange(0, 1).Draw(rt, "end")] }
	rt.Repeat(map[string]func(*rapid.T){
		"":        func(*rapid.T) { ends[0].verify(); ends[1].verify() },
		"admit":   func(*rapid.T) { end().admitOne() },
		"compute": func(*rapid.T) { end().computeOne() },
		"decode":  func(*rapid.T) { end().decodeOne() },
		"release": func(*rapid.T) { end().releaseOne() },
		"forget":  func(*rapid.T) { end().invalidate() },
		"hand": func(*rapid.T) {
			k := rapid.IntRange(0, 1).Draw(rt, "from")
			l := ends[k].one(whole)
			if l == nil {
				return
			}
			m, err := handed(ends[k].rig, ends[1-k].rig, l)
			if err != nil {
				require.ErrorIs(rt, err, messages.ErrOutOfPages)
				return
			}
			ends[1-k].arrived(l, m)
		},
	})
}

// A key is read as the input that it was made of, and no other string is read at all.
func TestParseEncoderKey(t *testing.T) {
	items := []messages.MultimodalItem{{Hash: [32]byte{1}, Start: 0, Length: 1},
		{Hash: [32]byte{2}, Start: 2, Length: 3}}
	for _, want := range [][]messages.MultimodalItem{nil, items[:1], items} {
		key := coordinator.EncoderKey(run(7, 5), want)
		tokens, got, ok := coordinator.ParseEncoderKey(key)
		assert.True(t, ok)
		assert.Equal(t, run(7, 5), tokens)
		assert.Equal(t, want, got)
		for n := range len(key) {
			_, fewer, ok := coordinator.ParseEncoderKey(key[:n])
			whole := n >= 8+4*5 && (n-8-4*5)%48 == 0 // the key of the same tokens and fewer items
			assert.Equal(t, whole, ok, "%d of %d bytes", n, len(key))
			assert.Less(t, len(fewer), max(1, len(want)))
		}
	}
	swapped := coordinator.EncoderKey(run(7, 5), nil) + coordinator.EncoderKey(nil, items[1:])[8:] +
		coordinator.EncoderKey(nil, items[:1])[8:]
	far := coordinator.EncoderKey(run(7, 5), []messages.MultimodalItem{{Start: 1 << 40, Length: 1}})
	many := append([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"), make([]byte, 64)...)
	for _, key := range []string{swapped, far, string(many)} {
		_, _, ok := coordinator.ParseEncoderKey(key)
		assert.False(t, ok)
	}
}
