package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/paper"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/windows"
)

// rounds writes a trace of nine prompts of three blocks that come again and again, a second
// apart, and gives its path.
func rounds(t *testing.T, requests int) string {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	var lines strings.Builder
	for i := range requests {
		fmt.Fprintf(&lines, `{"timestamp":%d,"input_length":48,"output_length":4,"hash_ids":[%d,%d,%d]}`+
			"\n", 1000*i, 3*(i%9), 3*(i%9)+1, 3*(i%9)+2)
	}
	require.NoError(t, os.WriteFile(path, []byte(lines.String()), 0o600))
	return path
}

// replayLines runs `demo replay --json` and reads its lines.
func replayLines(t *testing.T, args ...string) (list []replay.Result) {
	t.Helper()
	status, out, errs := command(t, "", append([]string{"replay", "--json"}, args...)...)
	require.Zero(t, status, errs)
	for line := range strings.Lines(out) {
		var r replay.Result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		list = append(list, r)
	}
	return list
}

// TestReplayOnAllCores: replays at the same time have the results that they have alone, in
// the order of the flags.
func TestReplayOnAllCores(t *testing.T) {
	path := rounds(t, 60)
	policies := append(windows.EvictionPolicies(), paper.Optimal)
	args := []string{path, "--atomic", "--timed", "--policy", strings.Join(policies, ","), "--pages",
		"12,20"}
	together := replayLines(t, append(args, "--jobs", "4")...)
	require.Len(t, together, 2*(2*len(policies)-1))
	for i, r := range replayLines(t, append(args, "--jobs", "1")...) {
		assert.Equal(t, r.Policy, together[i].Policy)
		assert.Equal(t, r.Mode, together[i].Mode)
		assert.Equal(t, r.Pages, together[i].Pages)
		assert.Equal(t, r.Hits, together[i].Hits, "%s %s with %d pages", r.Mode, r.Policy, r.Pages)
		assert.Equal(t, 60, r.Requests)
		assert.LessOrEqual(t, r.Hits, int64(3*51))
	}
	assert.Equal(t, []string{"atomic", "timed"}, []string{together[0].Mode, together[1].Mode})
}

// TestReplayTellsOfOverlap: the table says why timed replays differ.
func TestReplayTellsOfOverlap(t *testing.T) {
	path := rounds(t, 20)
	args := []string{"replay", path, "--atomic", "--timed", "--pages", "40"}
	status, out, errs := command(t, "", args...)
	require.Zero(t, status, errs)
	assert.Contains(t, out, "timed: requests overlap")
	assert.Contains(t, errs, "replay: 40 of 40 requests, 2 of 2 replays done")
	status, out, _ = command(t, "", "replay", path, "--atomic", "--policy", "arc,gdsf_depth",
		"--pages", "40")
	require.Zero(t, status)
	assert.NotContains(t, out, "overlap")
}

// TestReplayStopsAtAnError: an error of one replay ends the others.
func TestReplayStopsAtAnError(t *testing.T) {
	status, _, errs := command(t, "", "replay", rounds(t, 20), "--policy",
		"none,priority_lru,forecast", "--pages", "40", "--jobs", "2")
	assert.Equal(t, 1, status)
	assert.Contains(t, errs, `"none" is not known`)
}

// TestReplayWithoutKernels: only atomic replays can do without bytes.
func TestReplayWithoutKernels(t *testing.T) {
	path := rounds(t, 20)
	status, _, errs := command(t, "", "replay", path, "--kernels=false")
	assert.NotZero(t, status)
	assert.Contains(t, errs, "--kernels=false goes with --atomic only")
	lines := replayLines(t, path, "--atomic", "--kernels=false", "--pages", "40")
	require.Len(t, lines, 1)
	assert.Zero(t, lines[0].Verified)
	assert.Positive(t, lines[0].Hits)
}

// The table of docs/traces.md is what its command prints.
func TestTraceOfTheDocuments(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "traces.md"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "```text\n")
	require.True(t, found)
	table, _, _ := strings.Cut(rest, "```\n")
	trace := filepath.Join("testdata", "trace.jsonl")
	status, out, errs := command(t, "", "replay", trace, "--atomic", "--policy",
		"priority_lru,forecast,optimal", "--pages", "40,60")
	require.Zero(t, status, errs)
	assert.Equal(t, table, strings.TrimPrefix(out, "\n"))
	lines, err := os.ReadFile(trace)
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(lines), "\n")
	assert.Contains(t, string(page), first)
}
