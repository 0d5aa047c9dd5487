package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// measured has every metric of every row, at its bound, or 1.
func measured() map[string][]float64 {
	values := map[string][]float64{}
	for _, r := range rows {
		v := 1.0
		if r.bound != noBound {
			v = r.bound / r.scale
		}
		values[r.benchmark+" "+r.metric] = []float64{v}
	}
	return values
}

// A bound holds at its value, and a median above it is said in the row.
func TestTable(t *testing.T) {
	values := measured()
	all, short, held := table(values)
	require.True(t, held)
	assert.NotContains(t, all, "above the bound")
	assert.Equal(t, len(rows), strings.Count(all, "\n| ")-1)
	assert.Less(t, len(short), len(all))
	r := rows[2]                                                // an admission beside the cores
	values[r.benchmark+" "+r.metric] = []float64{1.5, 1.1, 1.4} // the median is 1.4, the bound 1.3
	all, _, held = table(values)
	assert.False(t, held)
	assert.Contains(t, all, "| ≤ 1.3 × | 1.4 ×, above the bound |")
}

// Both pages have the marks, and keep what is around them.
func TestReplace(t *testing.T) {
	for _, file := range []string{"../../README.md", "../README.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		now, err := replace(string(text), "a table\n")
		require.NoError(t, err, file)
		assert.Contains(t, now, begin+"\na table\n\n"+end)
		again, err := replace(now, "a table\n")
		require.NoError(t, err)
		assert.Equal(t, now, again)
		before, _, _ := strings.Cut(string(text), begin)
		assert.True(t, strings.HasPrefix(now, before))
	}
	_, err := replace("no marks", "a table")
	assert.Error(t, err)
}

// The benchmarks of the rows are there.
func TestRowsNameBenchmarks(t *testing.T) {
	files, err := filepath.Glob("../*_test.go")
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(text)
	}
	for _, name := range benchmarks() {
		function, _, _ := strings.Cut(name, "/")
		assert.Contains(t, all.String(), "func Benchmark"+function+"(")
	}
}
