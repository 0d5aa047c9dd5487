package coordinator

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// remembered is what a thrash has to remember, without its limits: when each prefix came last.
type remembered struct {
	at      map[string]int64
	noted   int64
	horizon int64
}

// ends are where prefixes with a signature end.
func ends(blocks, blockTokens int) (list []int) {
	for n := 1; n < blocks; n += 1 + n/4 {
		list = append(list, n*blockTokens)
	}
	if blocks > 0 {
		list = append(list, blocks*blockTokens)
	}
	return list
}

func (r *remembered) note(tokens []messages.Token, blockTokens int) {
	begin := 0
	for _, end := range ends(len(tokens)/blockTokens, blockTokens) {
		name := fmt.Sprint(tokens[:end])
		if at, known := r.at[name]; !known || r.noted-at > r.horizon {
			r.noted += int64(end - begin)
		}
		r.at[name], begin = r.noted, end
	}
}

func (r *remembered) known(tokens []messages.Token, blockTokens int) (known int) {
	for _, end := range ends(len(tokens)/blockTokens, blockTokens) {
		if at, is := r.at[fmt.Sprint(tokens[:end])]; !is || r.noted-at > r.horizon {
			break
		}
		known = end
	}
	return known
}

// What a thrash remembers is what a list of all prefixes has within the horizon, but for a few
// of the oldest, also where prompts differ in one token.
func TestThrashRemembersPrefixes(t *testing.T) {
	const blockTokens, pages = 16, 512
	c := &Config{
		Pools:          []windows.Pool{{TokensPerBlock: blockTokens}},
		Counts:         []windows.PageCounts{{Primary: pages - 100, Secondary: 100}},
		TokensPerBlock: blockTokens, Reuse: true,
	}
	h := newThrash(c)
	want := remembered{at: map[string]int64{}, horizon: 2 * pages * blockTokens}
	r := rand.New(rand.NewPCG(1, 2))
	prompt := func() []messages.Token {
		tokens := make([]messages.Token, r.IntN(700))
		if len(tokens) > 20 {
			tokens[20] = messages.Token(r.IntN(60))
		}
		return tokens
	}
	found, lost := 0, 0
	for range 5000 {
		tokens := prompt()
		exact, got := want.known(tokens, blockTokens), h.known(&messages.Namespace{}, tokens)
		require.LessOrEqual(t, got, exact, "of %d", len(tokens))
		found, lost = found+got, lost+exact-got
		require.Zero(t, h.known(&messages.Namespace{Salt: "other"}, tokens))
		tokens = prompt()
		want.note(tokens, blockTokens)
		h.note(&messages.Namespace{}, tokens)
	}
	assert.Positive(t, found)
	assert.Less(t, lost, found/20)
	tokens := prompt()
	assert.Zero(t, testing.AllocsPerRun(10, func() { h.note(&messages.Namespace{}, tokens) }))
	h.forget()
	assert.Zero(t, h.known(&messages.Namespace{}, prompt()))
}

// BenchmarkThrash is what a request of 80,000 tokens costs when it ends.
func BenchmarkThrash(b *testing.B) {
	h := newThrash(&Config{
		Pools: []windows.Pool{{TokensPerBlock: 16}}, Counts: []windows.PageCounts{{Primary: 1 << 20}},
		TokensPerBlock: 16, Reuse: true,
	})
	tokens := make([]messages.Token, 80_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		tokens[0] = messages.Token(i)
		h.note(&messages.Namespace{}, tokens)
	}
}

// A thrash follows the pools when they grow: its horizon is twice what they hold now.
func TestThrashOfPoolsThatGrow(t *testing.T) {
	c := &Config{
		Pools: []windows.Pool{{TokensPerBlock: 4}}, Counts: []windows.PageCounts{{Primary: 16}},
		TokensPerBlock: 4, Reuse: true,
	}
	h := newThrash(c)
	prompt := func(k int) (tokens []messages.Token) {
		for i := range 256 {
			tokens = append(tokens, messages.Token(1000*k+i))
		}
		return tokens
	}
	known := func() (n int) {
		for k := range 12 {
			h.note(&messages.Namespace{}, prompt(k))
		}
		for k := range 12 {
			n += h.known(&messages.Namespace{}, prompt(k))
		}
		return n
	}
	assert.Less(t, known(), 1000)
	c.Counts[0].Primary = 512
	h.resize(c)
	assert.Equal(t, 12*256, known())
}

// Where a model has states, a thrash knows the ends of prefixes that had a checkpoint, to the
// block, and no others.
func TestThrashRemembersStates(t *testing.T) {
	c := &Config{
		Pools: []windows.Pool{{TokensPerBlock: 4}}, Counts: []windows.PageCounts{{Primary: 64}},
		TokensPerBlock: 4, Reuse: true,
	}
	h, space := newThrash(c), &messages.Namespace{}
	prompt := make([]messages.Token, 40)
	for i := range prompt {
		prompt[i] = messages.Token(i)
	}
	known := func(most int) [2]int {
		short, long := h.knownStates(space, prompt, most)
		return [2]int{short, long}
	}
	h.note(space, prompt)
	assert.Equal(t, [2]int{0, 0}, known(40), "blocks are no states")
	h.noteState(space, prompt[:12])
	h.noteState(space, prompt[:30]) // ends in a block: known to its begin
	assert.Equal(t, [2]int{28, 28}, known(40))
	assert.Equal(t, [2]int{12, 28}, known(27))
	assert.Equal(t, [2]int{0, 28}, known(8))
	other := append([]messages.Token{7}, prompt...)
	_, long := h.knownStates(space, other, 40)
	assert.Zero(t, long)
	h.forget()
	assert.Equal(t, [2]int{0, 0}, known(40))
}

// Without attention a thrash remembers as many checkpoints as its table has room for.
func TestThrashOfStatesAlone(t *testing.T) {
	pools := []windows.Pool{{Name: "state", Kind: windows.KindState, StateBytes: 32, Checkpoints: true,
		Layers: []int{0}, TokensPerBlock: 4}}
	h := newThrash(&Config{Pools: pools, Counts: []windows.PageCounts{{Primary: 64}},
		TokensPerBlock: 4, Reuse: true})
	prompt := func(k int) (tokens []messages.Token) {
		for i := range 400 {
			tokens = append(tokens, messages.Token(1000*k+i))
		}
		return tokens
	}
	for k := range 20 {
		h.note(&messages.Namespace{}, prompt(k)[:8])
		h.noteState(&messages.Namespace{}, prompt(k))
	}
	known := 0
	for k := range 20 {
		_, long := h.knownStates(&messages.Namespace{}, prompt(k), 400)
		known += long
	}
	assert.Greater(t, known, 18*400)
}
