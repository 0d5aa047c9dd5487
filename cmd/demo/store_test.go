package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asDemo in the environment makes the test binary the program, with these arguments.
const asDemo = "KVACTOR_AS_DEMO"

// modelAnswer is what is compared of an answer of demo model run, and how much of it
// was computed before.
type modelAnswer struct {
	Greedy       []int            `json:"greedy"`
	Error        *json.RawMessage `json:"error"`
	CachedTokens int              `json:"cached_tokens"`
}

func modelPrompts() (lines []string) {
	for i := range 6 {
		var tokens []string
		for n := range 24 + 4*i {
			tokens = append(tokens, fmt.Sprint(1+(n*n+7*(i%2)*n)%90))
		}
		lines = append(lines, `{"tokens":[`+strings.Join(tokens, ",")+`],"new":8}`)
	}
	return lines
}

func answers(t *testing.T, out string) (list []modelAnswer) {
	t.Helper()
	for line := range strings.Lines(out) {
		var a modelAnswer
		require.NoError(t, json.Unmarshal([]byte(line), &a))
		require.Nil(t, a.Error)
		list = append(list, a)
	}
	return list
}

func storeArgs(folder string, more ...string) []string {
	return append([]string{"model", "run", fixtureFolder, "--tokens-per-block", "4", "--chunk", "8"}, append(more, "--store", "file://"+folder)...)
}

// A second process on a store begins with the hit rate of a warm cache.
func TestAStoreOutlivesTheProcess(t *testing.T) {
	folder := t.TempDir()
	in := strings.Join(modelPrompts()[:1], "\n") + "\n"
	var cached []int
	for range 2 {
		status, out, errs := command(t, in, storeArgs(folder)...)
		require.Zero(t, status, errs)
		cached = append(cached, answers(t, out)[0].CachedTokens)
	}
	assert.Equal(t, []int{0, 23}, cached, "of 24 tokens the last is computed")
}

func TestStoreMistakes(t *testing.T) {
	for _, url := range []string{"nowhere://x", "file:///x?no_such=1", "valkey://127.0.0.1:1"} {
		status, _, errs := command(t, "", "model", "run", fixtureFolder, "--store", url)
		assert.Equal(t, statusUsage, status, url)
		assert.Contains(t, errs, "--store", url)
	}
}

// Processes that share a store are killed, one after the other, while they answer. What
// they have written is right to the bit: every answer is that of a process without a
// cache.
func TestKilledProcesses(t *testing.T) {
	kills := 100
	if testing.Short() {
		kills = 4
	}
	prompts := modelPrompts()
	status, out, errs := command(t, strings.Join(prompts, "\n")+"\n", "model", "run", fixtureFolder, "--no-reuse")
	require.Zero(t, status, errs)
	want := answers(t, out)
	require.Len(t, want, len(prompts))

	folder, rnd, warm := t.TempDir(), rand.New(rand.NewPCG(1, 2)), 0
	for range kills {
		warm += runAndKill(t, folder, prompts, want, rnd)
	}
	assert.Positive(t, warm, "nothing was ever found in the store")
}

// runAndKill starts a process, asks it some prompts and kills it while it answers
// another. It returns how many tokens were cached at the first.
func runAndKill(t *testing.T, folder string, prompts []string, want []modelAnswer, rnd *rand.Rand) (cached int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), asDemo+"="+strings.Join(storeArgs(folder), "\n"))
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	defer func() { _ = c.Wait() }()
	defer func() { _ = c.Process.Kill() }()

	lines := bufio.NewScanner(out)
	for i := range 1 + rnd.IntN(3) {
		n := rnd.IntN(len(prompts))
		fmt.Fprintln(in, prompts[n])
		require.True(t, lines.Scan(), "the process has ended by itself")
		var got modelAnswer
		require.NoError(t, json.Unmarshal(lines.Bytes(), &got))
		require.Nil(t, got.Error)
		assert.Equal(t, want[n].Greedy, got.Greedy, "prompt %d, %d tokens from the cache", n, got.CachedTokens)
		if i == 0 {
			cached = got.CachedTokens
		}
	}
	fmt.Fprintln(in, prompts[rnd.IntN(len(prompts))])
	return cached
}
