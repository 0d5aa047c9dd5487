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

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/internal/storeurl"
	"github.com/kvactor/kvactor/offloader/stores"
)

// asDemo in the environment makes the test binary the program, with these arguments.
const asDemo = "KVACTOR_AS_DEMO"

// modelAnswer is what is compared of an answer of demo model run, and how much of it
// was computed before.
type modelAnswer struct {
	Greedy       []int            `json:"greedy"`
	Logits       [][]json.Number  `json:"logits"` // as they are written, which says their bits
	Error        *json.RawMessage `json:"error"`
	CachedTokens int              `json:"cached_tokens"`
}

func modelPrompts() (lines []string) {
	for i := range 6 {
		var tokens []string
		for n := range 24 + 4*i {
			tokens = append(tokens, fmt.Sprint(1+(n*n+7*(i%2)*n)%90))
		}
		lines = append(lines, `{"tokens":[`+strings.Join(tokens, ",")+`],"new":8,"logits":true}`)
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

// same asserts that an answer has the same tokens as one without a cache, and the same logits
// to the bit, of which it has those of the last positions: a wrong byte of any page that was
// read would change them.
func same(t *testing.T, want, got modelAnswer, prompt int) {
	t.Helper()
	about := fmt.Sprintf("prompt %d, %d tokens from the cache", prompt, got.CachedTokens)
	assert.Equal(t, want.Greedy, got.Greedy, about)
	require.GreaterOrEqual(t, len(got.Logits), len(got.Greedy), about)
	require.LessOrEqual(t, len(got.Logits), len(want.Logits), about)
	assert.Equal(t, want.Logits[len(want.Logits)-len(got.Logits):], got.Logits, about)
}

func storeArgs(folder string, more ...string) []string {
	return append([]string{"model", "run", fixtureFolder, "--tokens-per-block", "4", "--chunk", "8"},
		append(more, "--store", "file://"+folder)...)
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

// tableRow gives the cells of the first row of a name behind a title.
func tableRow(t *testing.T, out, title, name string) (cells []string) {
	t.Helper()
	_, table, found := strings.Cut(out, "\n"+title+"\n")
	require.True(t, found, title)
	for line := range strings.Lines(table) {
		parts := strings.FieldsFunc(strings.TrimSpace(line), func(r rune) bool {
			return r == '|' || r == '│'
		})
		if len(parts) > 1 && strings.TrimSpace(parts[0]) == name {
			for _, cell := range parts[1:] {
				cells = append(cells, strings.TrimSpace(cell))
			}
			return cells
		}
	}
	require.Fail(t, "no row", "%s in %s", name, title)
	return nil
}

// share reads a percentage of a table.
func share(t *testing.T, cell string) (percent float64) {
	t.Helper()
	_, err := fmt.Sscanf(cell, "%f %%", &percent)
	require.NoError(t, err, cell)
	return percent
}

// The second run of the conversations reuses from the first prompt on, with the simulated
// model and with the real one, and its tables say so.
func TestConversationsBeginWarm(t *testing.T) {
	urls := map[string]string{"file": "file://" + t.TempDir()}
	if !testing.Short() {
		urls["valkey"] = "valkey://" + miniredis.RunT(t).Addr()
	}
	for name, url := range urls {
		t.Run(name, func(t *testing.T) {
			var first, total, least []float64
			for range 2 {
				status, out, errs := command(t, "", "converse", "--conversations", "4", "--hosts", "2",
					"--pages", "600", "--host-pages", "600", "--chats", "1", "--store", url)
				require.Zero(t, status, errs+out)
				assert.Contains(t, out, "reads of the store take real time")
				assert.Contains(t, out, "3 of 3 answers have the same tokens with and without reuse")
				first = append(first,
					share(t, tableRow(t, out, "the store, beyond the process", "of these reused")[1]))
				total = append(total, share(t, tableRow(t, out, "requests and tokens", "of these reused")[1]))
				least = append(least,
					share(t, tableRow(t, out, "a real model, its attention over the engine's pages",
						"least reuse of a prompt")[0]))
			}
			assert.Less(t, first[0], first[1])
			assert.Greater(t, first[1], 90.0, "of a prompt all whole blocks are there")
			assert.Greater(t, total[1], total[0])
			assert.Zero(t, least[0])
			assert.Greater(t, least[1], 50.0)
		})
	}
}

func TestStoreMistakes(t *testing.T) {
	for _, url := range []string{"nowhere://x", "file:///x?no_such=1", "file://x/y",
		"valkey://h?no_such=1"} {
		for _, args := range [][]string{{"model", "run", fixtureFolder}, {"converse", "--chats", "0"}} {
			status, _, errs := command(t, "", append(args, "--store", url)...)
			assert.Equal(t, statusUsage, status, url)
			assert.Contains(t, errs, "--store", url)
		}
	}
	down := []string{"model", "run", fixtureFolder, "--store", "valkey://127.0.0.1:1",
		"--store-required"}
	status, _, errs := command(t, "", down...)
	assert.Equal(t, statusUsage, status)
	assert.Contains(t, errs, "--store")
	status, _, errs = command(t, "", "converse", "--host-pages", "0", "--store", "file://"+t.TempDir())
	assert.Equal(t, statusUsage, status)
	assert.Contains(t, errs, "--host-pages")
}

// A store that is down at the start is used when it has come.
func TestAStoreThatComesAfterTheStart(t *testing.T) {
	server := miniredis.NewMiniRedis()
	require.NoError(t, server.Start())
	address := server.Addr()
	server.Close()

	flag := storeFlag{storeurl.Flag{URL: "valkey://" + address}, t.Output()}
	config, err := flag.open(t.Context(), "m")
	require.NoError(t, err)
	defer config.Store.Close()
	keys, found := []stores.Key{{1}}, []bool{true}
	assert.Error(t, config.Store.Has(t.Context(), keys, found))
	require.NoError(t, server.StartAddr(address))
	defer server.Close()
	require.NoError(t, config.Store.Put(t.Context(), []stores.Object{{Key: keys[0], Body: []byte{1}}}))
	require.NoError(t, config.Store.Has(t.Context(), keys, found))
	assert.Equal(t, []bool{true}, found)

	// The commands start without it, say so, and answer.
	in := modelPrompts()[0] + "\n"
	status, out, errs := command(t, in, "model", "run", fixtureFolder, "--store",
		"valkey://127.0.0.1:1")
	require.Zero(t, status, errs)
	assert.Contains(t, errs, "starting without it")
	assert.Len(t, answers(t, out), 1)
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
	status, out, errs := command(t, strings.Join(prompts, "\n")+"\n", "model", "run", fixtureFolder,
		"--no-reuse")
	require.Zero(t, status, errs)
	want := answers(t, out)
	require.Len(t, want, len(prompts))

	folder, rnd := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	for range kills {
		runAndKill(t, folder, prompts, want, rnd)
	}
	// What the killed processes wrote depends on the speed of the machine. A process that
	// ends by itself has written all, and the one behind it finds it.
	for range 2 {
		status, out, errs = command(t, strings.Join(prompts, "\n")+"\n", storeArgs(folder)...)
		require.Zero(t, status, errs)
	}
	got := answers(t, out)
	require.Len(t, got, len(want))
	for i := range want {
		same(t, want[i], got[i], i)
	}
	assert.Positive(t, got[0].CachedTokens, "nothing was found in the store")
}

// runAndKill starts a process, asks it some prompts and kills it while it answers
// another.
func runAndKill(t *testing.T, folder string, prompts []string, want []modelAnswer, rnd *rand.Rand) {
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
	lines.Buffer(nil, 16<<20)
	for range 1 + rnd.IntN(3) {
		n := rnd.IntN(len(prompts))
		fmt.Fprintln(in, prompts[n])
		require.True(t, lines.Scan(), "the process has ended by itself")
		var got modelAnswer
		require.NoError(t, json.Unmarshal(lines.Bytes(), &got))
		require.Nil(t, got.Error)
		same(t, want[n], got, n)
	}
	fmt.Fprintln(in, prompts[rnd.IntN(len(prompts))])
}
