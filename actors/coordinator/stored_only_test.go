package coordinator_test

import (
	gotesting "testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// storedOnly admits what is stored of a prompt of which an item covers some tokens.
func (w *world) storedOnly(n int, item messages.MultimodalItem) messages.Admitted {
	m := &messages.Admit{Requests: []messages.AdmitRequest{{
		Tokens: run(0, n), Multimodal: []messages.MultimodalItem{item}, StoredOnly: true,
	}}}
	w.Do(m)
	require.NoError(w.t, m.Results[0].Err)
	return m.Results[0]
}

// storePrompt computes a prompt and releases it.
func (w *world) storePrompt(tokens []messages.Token) {
	_, s := w.admit(tokens)
	w.prefill(s)
	w.Do(&messages.Release{Steps: []messages.ReleaseStep{{Sequence: s.id}}})
	delete(w.running, s.id)
}

// The tree forgets the symbols of items behind what is stored.
func TestSymbolsBehindWhatIsStored(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 32}}})
	w.storePrompt(run(0, 8))
	for k := range 10 {
		a := w.storedOnly(20, messages.MultimodalItem{Start: 12, Length: 6, Hash: [32]byte{byte(k)}})
		require.Equal(t, 8, a.ReusedTokens)
		require.Zero(t, w.Cores.Tree.Symbols())
		w.Do(&messages.Release{Steps: []messages.ReleaseStep{{Sequence: a.Sequence}}})
	}
}

// What a host appends of an item's tokens, behind what was stored of its prompt, is not found
// without the item.
func TestTokensOfAnItemBehindWhatIsStored(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 32}}})
	w.storePrompt(run(0, 8))
	a := w.storedOnly(20, messages.MultimodalItem{Start: 12, Length: 6})
	m := &messages.Append{Steps: []messages.AppendStep{{Sequence: a.Sequence, Tokens: run(8, 12),
		Computed: 20}}}
	w.Do(m)
	require.NoError(t, m.Results[0].Err)
	w.Do(&messages.Release{Steps: []messages.ReleaseStep{{Sequence: a.Sequence}}})
	l := &messages.Lookup{Prefix: messages.Prefix{Tokens: run(0, 20)}}
	w.Do(l)
	assert.Equal(t, 8, l.Found.MatchedTokens)
}

// An admission of what is stored waits for pages to bring it in. When it is forgotten, it needs
// none.
func TestWhatWaitsIsForgotten(t *gotesting.T) {
	for name, request := range map[string]any{
		"reset": &messages.Reset{},
		"invalidation": &messages.Invalidate{
			Selector: messages.Selector{Prefix: &messages.Prefix{Tokens: run(0, 4)}}},
	} {
		t.Run(name, func(t *gotesting.T) {
			w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 4, Secondary: 8}}, waiting: 4})
			w.storePrompt(run(0, 16))
			_, b := w.admit(run(500, 16)) // evicts all to host memory
			w.prefill(b)
			m := &messages.Admit{Requests: []messages.AdmitRequest{{Tokens: run(0, 20), StoredOnly: true}}}
			w.Do(m)
			require.Equal(t, 1, w.stats().Waiting)
			w.Do(request)
			require.Zero(t, w.stats().Waiting)
			require.NoError(t, m.Results[0].Err)
			require.Zero(t, m.Results[0].Sequence)
		})
	}
}
