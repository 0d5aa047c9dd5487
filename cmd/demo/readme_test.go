package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The conversation of docs/script.md is testdata/readme.jsonl and what the engine
// answers to it: requests and remarks at the margin, answers indented.
func TestScriptConversation(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "script.md"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "```json\n")
	require.True(t, found, "the page has a block of json")
	shown, _, found := strings.Cut(rest, "```\n")
	require.True(t, found)
	var requests, answers []string
	for line := range strings.Lines(shown) {
		if answer, indented := strings.CutPrefix(line, "  "); indented {
			answers = append(answers, answer)
		} else {
			requests = append(requests, line)
		}
	}
	path := filepath.Join("testdata", "readme.jsonl")
	script, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(script), strings.Join(requests, ""))

	status, out, errs := command(t, "", "script", path)
	require.Zero(t, status, errs)
	assert.Equal(t, out, strings.Join(answers, ""))
}
