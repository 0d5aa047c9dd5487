package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// chatFolder is a fixture's model with a vocabulary of ASCII characters. What it
// says means nothing.
func chatFolder(t *testing.T, fixture string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"fixture.json", "weights.safetensors"} {
		text, err := os.ReadFile(filepath.Join(fixture, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	vocabulary := map[string]int{"Ġ": ' '}
	for c := '!'; c <= '~'; c++ {
		vocabulary[string(c)] = int(c)
	}
	for c := range rune(' ') {
		vocabulary[string(256+c)] = int(c) // as byte-level vocabularies write them
	}
	text, err := json.Marshal(
		map[string]any{"model": map[string]any{"type": "BPE", "vocab": vocabulary},
			"pre_tokenizer": map[string]any{"type": "ByteLevel"}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "tokenizer.json"), text, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "tokenizer_config.json"),
		[]byte(`{"chat_template":"[INST]"}`), 0o600))
	return folder
}

// The second prompt finds what the first one and its answer left.
func TestChat(t *testing.T) {
	for _, fixture := range []string{fixtureFolder, recurrentFolder} {
		status, out, errs := command(t, "Hello there, who are you?\n\nAnd now?\n", "chat", "--model",
			chatFolder(t, fixture), "--tokens", "6", "--compare")
		require.Zero(t, status, errs)
		assert.NotEmpty(t, out)
		assert.Contains(t, errs, "[0 of 40 prompt tokens cached; first token after ")
		assert.Regexp(t, `\[[34]\d of \d\d prompt tokens cached`, errs)
		assert.Contains(t, errs, "; without the cache the first token takes ")
	}
}

// Without a model file the built-in model answers, and remembers.
func TestChatWithTheBuiltinModel(t *testing.T) {
	t.Setenv("KVACTOR_MODELS", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	status, out, errs := command(t, "My name is Anna.\nWhat is my name?\n", "chat")
	require.Zero(t, status, errs)
	assert.Contains(t, out, "Your name is Anna.")
	assert.Contains(t, errs, "kvactor-tiny")
}

func TestChatMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		"tokenizer.json": {"chat", "--model", fixtureFolder},
		"encoder–decoder": {"chat", "--model",
			filepath.Join(filepath.Dir(fixtureFolder), "t5_cross")},
		"no such file":                          {"chat", "--model", "none"},
		"unknown command \"hello\"":             {"chat", "hello"},
		"--tokens \"many\": it is not a number": {"chat", "--tokens", "many"},
	} {
		status, out, errs := command(t, "", args...)
		assert.Equal(t, 2, status, want)
		assert.Empty(t, out)
		assert.Contains(t, errs, want)
	}
}
