package host

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// recurrent is a pool of two recurrent layers whose states are no whole words.
var recurrent = windows.Pool{Name: "state", Kind: windows.KindState, StateBytes: 13,
	Layers: []int{0, 5}, TokensPerBlock: 4}

// A state is that of its layer, its namespace and all its tokens, and of nothing
// else: any other is found, whichever byte differs.
func TestStatesAreDifferent(t *testing.T) {
	layout := NewLayout(recurrent)
	page := make([]byte, recurrent.PageBytes())
	chains := Chains(messages.Prefix{Tokens: []messages.Token{1, 2, 3, 4, 5}})
	other := Chains(messages.Prefix{Namespace: messages.Namespace{Salt: "s"},
		Tokens: []messages.Token{1, 2, 3, 4, 5}})
	layout.WriteState(page, StateAfter(chains, 5))
	require.NoError(t, layout.VerifyState(page, StateAfter(chains, 5)))
	for _, s := range []State{{}, StateAfter(chains, 4), StateAfter(other, 5)} {
		assert.Error(t, layout.VerifyState(page, s))
	}
	assert.NotEqual(t, page[:13], page[13:], "the layers' states are different")
	for i := range page {
		spoilt := slices.Clone(page)
		spoilt[i] ^= 1
		assert.Errorf(t, layout.VerifyState(spoilt, StateAfter(chains, 5)), "byte %d", i)
	}
	layout.WriteState(page, State{})
	assert.Equal(t, make([]byte, 26), page, "before the first token a state is zero")
	assert.NoError(t, layout.VerifyState(page, StateAfter(chains, 0)))
	assert.ErrorContains(t, layout.VerifyState(page[:25], State{}),
		"page of 25 bytes, pool state has 26")
}
