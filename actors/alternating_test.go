package actors_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// alternation is a workload: conversations that take turns on a model with recurrent layers, each
// turn with more blocks, in pools where they do not fit together.
type alternation struct {
	chats, blocks, growth, turns int
	policy                       string
	attention, states            windows.PageCounts
}

// TestAlternating: what the others leave of the attention of one conversation is reused, as far as
// there are pages for states. Where it was cut the next turn makes a checkpoint, and those that
// have their attention stay longer than others.
func TestAlternating(t *testing.T) {
	for _, c := range []struct {
		policy        string
		chats         int
		states, host  int // pages for each conversation
		least, atMost float64
	}{
		{windows.PriorityLRU, 2, 12, 0, 0.6, 1}, {windows.PriorityLRU, 2, 12, 4, 0.6, 1},
		{windows.PriorityLRU, 2, 4, 0, 0.6, 1}, {windows.PriorityLRU, 2, 2, 4, 0.3, 1},
		{windows.PriorityLRU, 3, 12, 0, 0.4, 1}, {windows.PriorityLRU, 3, 4, 4, 0.4, 1},
		{windows.Forecast, 2, 12, 0, 0.6, 1}, {windows.Forecast, 2, 2, 4, 0.6, 1},
		{windows.Forecast, 3, 12, 4, 0.6, 1}, {windows.Forecast, 3, 2, 0, 0.4, 1},
		{windows.Forecast, 8, 12, 0, 0.6, 1}, {windows.Forecast, 8, 2, 1, 0.4, 1},
	} {
		name := fmt.Sprintf("%s, %d conversations, %d states, %d on the host", c.policy, c.chats,
			c.states, c.host)
		t.Run(name, func(t *testing.T) {
			a := alternation{
				chats: c.chats, blocks: 12, growth: 1, turns: 12, policy: c.policy,
				attention: windows.PageCounts{Primary: 13*c.chats + 4, Secondary: c.chats * c.host},
				states:    windows.PageCounts{Primary: c.states * c.chats, Secondary: min(1, c.host) * c.chats},
			}
			turns := a.serve(t)
			left, reused := 0, 0
			for _, turn := range turns[len(turns)/2:] {
				left, reused = left+turn.AttentionTokens, reused+turn.ReusedTokens
			}
			t.Logf("%d of %d tokens", reused, left)
			assert.GreaterOrEqual(t, float64(reused), c.least*float64(left))
		})
	}
}

// TestTwoLongChats has the numbers of a report: each turn found 80 to 144 tokens of its prompt in
// the attention pool, no state for them, and reused nothing.
func TestTwoLongChats(t *testing.T) {
	a := alternation{
		chats: 2, blocks: 44, growth: 8, turns: 7, policy: windows.PriorityLRU,
		attention: windows.PageCounts{Primary: 120}, states: windows.PageCounts{Primary: 24},
	}
	turns := a.serve(t)
	for _, turn := range turns[len(turns)-3:] {
		assert.Equal(t, messages.ReasonNoState, turn.MissReason)
		assert.GreaterOrEqual(t, 2*turn.ReusedTokens, turn.AttentionTokens)
	}
}

// serve serves the turns, one after the other.
func (a *alternation) serve(t *testing.T) (turns []messages.Admitted) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 30, Poison: sim.PoisonOff})
	require.NoError(t, err)
	s := setup{
		windows: []int{full, full}, pages: []windows.PageCounts{a.attention, a.states},
		model: func(m *windows.Model) {
			m.KVHeads, m.States = []int{1, 0}, []windows.State{{Layers: []int{1}, Bytes: 64}}
			m.MaxSeqLen = 1 << 12
		},
		change: func(c *windows.Config) {
			c.EvictionPolicy, c.MaxAttentionWindow = a.policy, []int{1 << 12}
		},
	}
	system := newSystem()
	e, err := actors.Spawn(system.Root, s.config(device))
	require.NoError(t, err)
	defer func() {
		require.NoError(t, e.Check(t.Context()))
		_, err := e.Close(t.Context())
		require.NoError(t, err)
		shutdown(system)
		require.NoError(t, device.Close())
	}()
	for turn := range a.turns {
		for chat := range a.chats {
			prompt := run(10_000*chat, 4*(a.blocks+turn*a.growth))
			turns = append(turns, serveTurn(t, e, append(prompt, messages.Token(10_000*chat+9000+turn))))
		}
	}
	return turns
}
