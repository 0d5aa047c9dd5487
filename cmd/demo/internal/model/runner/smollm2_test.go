package runner_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/token"
	"github.com/kvactor/kvactor/messages"
)

// golden is what llama.cpp and transformers say of SmolLM2.
type golden struct {
	Tokenizer struct {
		Cases []struct {
			Text   string
			Tokens []messages.Token
		}
	}
	Chat struct {
		Cases []struct {
			Prompt   string
			Tokens   []messages.Token
			Greedy   []messages.Token
			FirstTop struct {
				Tokens []messages.Token
				Logits []float64
			} `json:"first_top"`
		}
	}
}

// smolLM2 loads the model if it is there.
func smolLM2(t testing.TB) (*model.Model, *token.Tokenizer, token.Form, golden) {
	t.Helper()
	path, err := model.SmolLM2.Find()
	if err != nil {
		t.Skipf("%v; demo model get smollm2 tells how to obtain it", err)
	}
	if testing.Short() {
		t.Skip("SmolLM2 takes half a minute")
	}
	require.NoError(t, model.SmolLM2.Verify(path))
	m, source, err := model.Load(path)
	require.NoError(t, err)
	words, err := token.FromGGUF(source.Meta)
	require.NoError(t, err)
	template, _ := source.Meta["tokenizer.chat_template"].(string)
	form, err := token.FormOf(template)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join("..", "testdata", "smollm2_135m_q4_1", "golden.json"))
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(text, &g))
	return m, words, form, g
}

// A real model: its tokens, its chats, and the same chats again from the cache.
func TestSmolLM2(t *testing.T) {
	m, words, form, g := smolLM2(t)
	for _, c := range g.Tokenizer.Cases {
		got, err := words.Encode(c.Text)
		require.NoError(t, err)
		assert.Equal(t, c.Tokens, got, "%q", c.Text)
	}
	r, err := runner.Open(m, runner.Config{TokensPerBlock: 16, Chunk: 32, HostPages: 64, MaxLen: 512})
	require.NoError(t, err)
	for range 2 {
		for i, c := range g.Chat.Cases {
			tokens, err := words.Encode(form.Write([]token.Message{{Role: "user", Text: c.Prompt}}))
			require.NoError(t, err)
			require.Equal(t, c.Tokens, tokens)
			s, err := r.Admit(t.Context(), runner.Request{Tokens: tokens})
			require.NoError(t, err)
			require.NoError(t, r.Prefill(t.Context(), s))
			for k, id := range c.FirstTop.Tokens {
				assert.InDelta(t, c.FirstTop.Logits[k], float64(s.Logits[0][id]), 5e-4, "%s, token %d",
					c.Prompt, id)
			}
			var got []messages.Token
			for range c.Greedy {
				got = append(got, s.Next())
				require.NoError(t, r.Extend(t.Context(), s, s.Next()))
			}
			assert.Equal(t, c.Greedy, got, c.Prompt)
			assert.True(t, i == 0 || s.Reused >= 20, "the system message is shared")
			require.NoError(t, r.Release(t.Context(), s))
		}
	}
	require.NoError(t, r.Close())
}
