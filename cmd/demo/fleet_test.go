package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fleetLine is what is looked at of a line of demo fleet --json.
type fleetLine struct {
	Name      string   `json:"name"`
	Trace     string   `json:"trace"`
	Requests  int      `json:"requests"`
	Answered  int      `json:"answered"`
	HitRate   float64  `json:"hit_rate"`
	Killed    int      `json:"killed_engine"`
	Verified  int64    `json:"verified_pages"`
	Wrong     int64    `json:"wrong_pages"`
	StoreRead int64    `json:"store_read_bytes"`
	Problems  []string `json:"problems"`
}

func fleetLines(t *testing.T, out string) (list []fleetLine) {
	t.Helper()
	for line := range strings.Lines(out) {
		var l fleetLine
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		assert.Equal(t, l.Requests, l.Answered)
		assert.Zero(t, l.Wrong)
		assert.NotNil(t, l.Problems)
		assert.Empty(t, l.Problems)
		list = append(list, l)
	}
	return list
}

// A fleet prints an object for each variant, without and with an engine killed. Without a
// trace it makes conversations up.
func TestAFleetPrintsObjects(t *testing.T) {
	status, out, errs := command(t, "", "fleet", "--engines", "3", "--limit", "30", "--json")
	require.Zero(t, status, errs)
	assert.Contains(t, errs, "both, kill: ")
	list := fleetLines(t, out)
	require.Len(t, list, 8)
	for i, l := range list {
		assert.Equal(t, variants[i%4].name, l.Name)
		assert.Equal(t, "generated", l.Trace)
		assert.Equal(t, i >= 4, l.Killed >= 0)
		assert.Equal(t, variants[i%4].store, l.StoreRead > 0 || l.Name == "both", l.Name)
	}
	assert.Greater(t, list[1].HitRate, list[0].HitRate)
	assert.Greater(t, list[3].HitRate, list[0].HitRate)
}

// The same in tables, over a trace and a folder.
func TestAFleetPrintsTables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat(lines, 1)), 0o600))
	status, out, errs := command(t, "", "fleet", path, "--engines", "2", "--store",
		"file://"+t.TempDir())
	require.Zero(t, status, errs)
	assert.Contains(t, out,
		"3 requests of trace.jsonl through 2 engines;\nblocks of 16 tokens; each pool")
	assert.Contains(t, out, "one of the 2 is killed after 1 requests")
	for line := range strings.Lines(out) {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 80+1, "a terminal has 80 columns: %s", line)
	}
	assert.Contains(t, out, "0 of them wrong")
	assert.Contains(t, out, "all right, and the router knew all of them")
}

func TestFleetMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		"--engines 0":       {"--engines", "0"},
		"--limit -1":        {"--limit", "-1"},
		"--device-tokens 0": {"--device-tokens", "0"},
		"--store-gbit 0":    {"--store-gbit", "0"},
		"--save x":          {"--save", "x"},
		"--model x":         {"--model", "x"},
		"--only x":          {"--only", "routing,x"},
		"--kill":            {"--engines", "1"},
		"--store":           {"--store", "nowhere://x", "--only", "store"},
		"over the limit":    {"--device-tokens", strconv.Itoa(1 << 40)},
	} {
		status, _, errs := command(t, "", append([]string{"fleet", "--limit", "5"}, args...)...)
		assert.NotZero(t, status, want)
		assert.Contains(t, errs, want)
	}
}
