package chats

import (
	"context"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/builtin"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/token"
	"github.com/kvactor/kvactor/messages"
)

func play(t *testing.T, list []Chat, c runner.Config, limits scheduler.Config) [][]Reply {
	t.Helper()
	m, source, err := builtin.Load()
	require.NoError(t, err)
	text, err := fs.ReadFile(source.Files, "tokenizer.json")
	require.NoError(t, err)
	words, err := token.FromJSON(text)
	require.NoError(t, err)
	form, err := token.FormOf("<|im_start|>")
	require.NoError(t, err)
	c.TokensPerBlock, c.Chunk, c.MaxLen = 8, 32, 512
	r, err := runner.Open(m, c)
	require.NoError(t, err)
	s, err := scheduler.New(r, limits)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.WithoutCancel(t.Context())) }()
	turns := 0
	p := Player{Scheduler: s, Words: words, Form: form, Clients: 1}
	p.Progress = func() { turns++ }
	replies, err := p.Play(t.Context(), list)
	require.NoError(t, err)
	s.Stop()
	require.NoError(t, <-ended)
	require.NoError(t, r.Close())
	assert.Equal(t, len(list)*len(list[0].Turns), turns)
	return replies
}

func TestPlay(t *testing.T) {
	list := Draw(Plan{Chats: 4, Groups: 1, People: 2, Turns: 2, Seed: 3})
	assert.Equal(t, list, Draw(Plan{Chats: 4, Groups: 1, People: 2, Turns: 2, Seed: 3}))
	with := play(t, list, runner.Config{Pages: 60, HostPages: 60}, scheduler.Config{Draft: 3})
	without := play(t, list, runner.Config{NoReuse: true}, scheduler.Config{})
	same, all := Same(with, without)
	assert.Equal(t, []int{8, 8}, []int{same, all})
	right := 0
	for i := range with {
		for j, r := range with[i] {
			assert.Zero(t, without[i][j].Reused)
			assert.Equal(t, r.Prompt, without[i][j].Prompt)
			assert.Positive(t, r.First)
			if i+j > 0 {
				assert.Positive(t, r.Reused)
			}
			if r.Right {
				right++
			}
		}
	}
	assert.Positive(t, right)
}

func TestSame(t *testing.T) {
	a := [][]Reply{{{Tokens: []messages.Token{1}}, {Tokens: []messages.Token{2}}}, {{}}}
	same, all := Same(a, [][]Reply{{{Tokens: []messages.Token{1}}, {Tokens: []messages.Token{3}}}})
	assert.Equal(t, []int{1, 3}, []int{same, all})
}

// A context that ends, ends the chats.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := (&Player{Clients: 2}).Play(ctx, make([]Chat, 3))
	require.ErrorIs(t, err, context.Canceled)
}
