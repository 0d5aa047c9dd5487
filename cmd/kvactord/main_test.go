package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// The tests run the program's own main in processes of its own, and a client that is killed.
const (
	runDaemon = "KVACTORD_TEST_DAEMON"
	runClient = "KVACTORD_TEST_CLIENT"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(runDaemon) != "":
		main()
	case os.Getenv(runClient) != "":
		halfWrite(os.Args[1])
	default:
		os.Exit(m.Run())
	}
}

// process is a program under test.
type process struct {
	*exec.Cmd
	t   *testing.T
	log output
}

// output is what a process says.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts this test's program in another role, and waits for a word of it.
func start(t *testing.T, role, ready string, args ...string) *process {
	p := &process{t: t, Cmd: exec.Command(os.Args[0], args...)}
	p.Env = append(os.Environ(), role+"=1")
	p.Stdout, p.Stderr = io.Discard, &p.log
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	within(t, "the process is ready", func() bool { return strings.Contains(p.log.String(), ready) })
	return p
}

func daemonAt(t *testing.T, socket string, args ...string) *process {
	return start(t, runDaemon, "ready", append([]string{"--socket", socket, "--memory", "8MiB"},
		args...)...)
}

// end ends the process with a signal and returns its exit status.
func (p *process) end(s os.Signal) int {
	require.NoError(p.t, p.Process.Signal(s))
	_ = p.Wait()
	return p.ProcessState.ExitCode()
}

func within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, 20*time.Second, 10*time.Millisecond, what)
}

const block = 16

func dial(t *testing.T, socket string) *wire.Client {
	c, err := open(socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func open(socket string) (*wire.Client, error) {
	return wire.Dial(socket, &wire.Open{
		Name: "test", Fingerprint: "weights", BlockTokens: block, MaxTokens: 1024,
		Groups: []*wire.Group{{LayerBytes: []uint64{4096}}},
	})
}

// secret is the first token of all prompts, and the salt.
const secret = 1918273645

func tokens(n int) []byte {
	var list []int32
	for i := range n {
		list = append(list, secret+int32(i))
	}
	return wire.PackTokens(list)
}

func prompt(n int) *wire.Prompt { return &wire.Prompt{Tokens: tokens(n), Salt: "salt-5f3c9a"} }

// write reserves blocks, writes the number of the block into each page, and says how many
// tokens are written.
func write(c *wire.Client, blocks, written int) error {
	memory, err := c.Opened.Pools[0].Map()
	if err != nil {
		return err
	}
	out, err := c.Step(&wire.Step{Reserves: []*wire.Reserve{{Prompt: prompt(blocks * block)}}})
	if err != nil || out.Reserves[0].Error != nil {
		return err
	}
	bytes := int(c.Opened.Pools[0].PageBytes)
	for b, page := range wire.UnpackPages(out.Reserves[0].Pages[0]) {
		if page < 0 {
			continue // stored already
		}
		for i := range bytes {
			memory[int(page)*bytes+i] = byte(b + 1)
		}
	}
	_, err = c.Step(
		&wire.Step{Written: []*wire.Written{{Handle: out.Reserves[0].Handle,
			Tokens: uint32(written * block)}}})
	return err
}

// halfWrite is a client that is killed while it writes.
func halfWrite(socket string) {
	c, err := open(socket)
	if err == nil {
		err = write(c, 6, 2)
	}
	if err != nil {
		panic(err)
	}
	os.Stderr.WriteString("half written\n")
	time.Sleep(time.Minute)
}

// found is how many blocks a match finds, all with their bytes.
func found(t *testing.T, c *wire.Client, fetch bool) int {
	out, err := c.Step(&wire.Step{Matches: []*wire.Match{{Prompt: prompt(6*block + 1), Fetch: fetch}}})
	require.NoError(t, err)
	m := out.Matches[0]
	require.Nil(t, m.Error)
	if m.Tokens == 0 {
		return 0
	}
	memory, err := c.Opened.Pools[0].Map()
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Munmap(memory)) }()
	bytes := int(c.Opened.Pools[0].PageBytes)
	for b, page := range wire.UnpackPages(m.Pages[0]) {
		for _, x := range memory[int(page)*bytes : int(page+1)*bytes] {
			require.EqualValues(t, b+1, x, "block %d", b)
		}
	}
	_, err = c.Step(&wire.Step{Releases: []uint64{m.Handle}})
	require.NoError(t, err)
	return int(m.Tokens) / block
}

// A client that is killed in the middle of a write gives its pages back, and nothing that it had
// not said to be written is found. Nobody can read tokens and salts in the log.
func TestAClientIsKilled(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	d := daemonAt(t, socket)
	c := dial(t, socket)
	for range 3 {
		killed := start(t, runClient, "half written", socket)
		killed.end(syscall.SIGKILL)
		assert.Equal(t, 2, found(t, c, false))
		within(t, "the pages are given back", func() bool {
			answer, err := c.Do(&wire.Request{Op: &wire.Request_Stats{Stats: &wire.StatsRequest{}}})
			require.NoError(t, err)
			return strings.Contains(answer.GetStats().GetJson(), `"Used":0`)
		})
	}
	assert.Equal(t, 0, d.end(syscall.SIGTERM), d.log.String())
	assert.NotContains(t, d.log.String(), "19182736")
	assert.NotContains(t, d.log.String(), "5f3c9a")
	_, err := os.Stat(socket)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// A daemon that ends, or is killed, finds in its store what it had. The socket that a killed one
// has left is taken over.
func TestAWarmRestart(t *testing.T) {
	dir := t.TempDir()
	socket, store := filepath.Join(dir, "s"), "file://"+filepath.Join(dir, "store")
	d := daemonAt(t, socket, "--store", store)
	require.NoError(t, write(dial(t, socket), 6, 6))
	for i, s := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM} {
		if status := d.end(s); s == syscall.SIGTERM {
			require.Equal(t, 0, status, d.log.String())
		}
		d = daemonAt(t, socket, "--store", store)
		c := dial(t, socket)
		require.Zero(t, found(t, c, false), "memory is empty after restart %d", i)
		within(t, "the store's blocks are found", func() bool { return found(t, c, true) == 6 })
		lookups, err := c.Step(&wire.Step{Lookups: []*wire.Prompt{prompt(6*block + 1)},
			Prefetches: []*wire.Prompt{prompt(6*block + 1)}})
		require.NoError(t, err)
		assert.EqualValues(t, 6*block, lookups.Lookups[0].Tokens)
		assert.EqualValues(t, 6*block, lookups.Prefetches[0].Tokens)
	}
}

// examples are the commands of the examples by language. Where a language has no compiler or
// no library here, its example is left out.
func examples(t *testing.T) map[string][]string {
	dir := t.TempDir()
	build := func(name string, args ...string) []string {
		text, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", text)
		return []string{filepath.Join(dir, name)}
	}
	list := map[string][]string{"Go": build("go", "go", "build", "-o", filepath.Join(dir, "go"),
		"./example")}
	if _, err := exec.LookPath("cc"); err == nil {
		list["C"] = build("c", "cc", "-Wall", "-Wextra", "-Werror", "-o", filepath.Join(dir, "c"),
			"example/c/main.c")
	}
	t.Setenv("PYTHONPATH", "../../python")
	for _, python := range []string{"../../bin/python/bin/python", "python3"} {
		if exec.Command(python, "-c", "import kvactor").Run() == nil {
			list["Python"] = []string{python, "example/python/main.py"}
			break
		}
	}
	return list
}

// The examples of docs/kvactord.md store a prompt, and find it the second time, whoever has
// stored it.
func TestTheExamples(t *testing.T) {
	const (
		first  = "0 of 69 tokens are stored\n"
		second = "64 of 69 tokens are stored\nblock 0 begins with 1\nblock 1 begins with 2\n" +
			"block 2 begins with 3\nblock 3 begins with 4\n"
	)
	list := examples(t)
	for language, command := range list {
		t.Run(language, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			daemonAt(t, socket)
			run := func(command []string, want string) {
				text, err := exec.Command(command[0], append(command[1:], socket)...).CombinedOutput()
				require.NoError(t, err, "%s", text)
				assert.Equal(t, want, string(text))
			}
			run(command, first)
			for _, reader := range list {
				run(reader, second)
			}
		})
	}
	for _, language := range []string{"C", "Python"} {
		if list[language] == nil {
			t.Logf("skipped: the example in %s, for want of a compiler or numpy and protobuf", language)
		}
	}
}

// A command line that is wrong is refused by what is wrong.
func TestWrongCommandLines(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "c.yaml")
	require.NoError(t, os.WriteFile(config, []byte("tokens_per_block: 64\n"), 0o600))
	base := []string{"--socket", filepath.Join(dir, "s")}
	for want, args := range map[string][]string{
		"needed":                {},
		"it is not a size":      {"--memory", "many"},
		"loopback":              {"--memory", "8MiB", "--listen", "0.0.0.0:0"},
		"--policy lru: there":   {"--memory", "8MiB", "--policy", "lru"},
		"sessions set it":       {"--memory", "8MiB", "--config", config},
		"no such file":          {"--memory", "8MiB", "--config", dir + "/none"},
		"gold=0.5":              {"--memory", "8MiB", "--quota", "secret"},
		"--aliases":             {"--memory", "8MiB", "--aliases", "sglang"},
		"--save":                {"--memory", "8MiB", "--save", "never"},
		"--store":               {"--memory", "8MiB", "--store", "nowhere://"},
		"--listen: address":     {"--memory", "8MiB", "--listen", "nowhere"},
		"--metrics: ":           {"--memory", "8MiB", "--metrics", "nowhere"},
		"less than 1 MiB":       {"--memory", "8KiB"},
		"unknown flag":          {"--memroy", "8MiB"},
		"published of one":      {"--memory", "8MiB", "--engines", "2", "--events", "tcp://127.0.0.1:0"},
		"must be less than its": {"--memory", "8MiB", "--staging", "9MiB"},
	} {
		var errs bytes.Buffer
		status := run(context.Background(), append(args, base...), io.Discard, &errs)
		assert.Equal(t, statusUsage, status, "%v", args)
		assert.Contains(t, errs.String(), want)
		assert.NotContains(t, errs.String(), "secret")
		assert.Equal(t, 1, strings.Count(errs.String(), "\n"), errs.String())
	}
}

// An error of a flag names the flag and its value, and no type of Go.
func TestFlagErrors(t *testing.T) {
	for want, args := range map[string][]string{
		`--engines "x": it is not a number`: {"--engines", "x"},
		`--engines "99999999999999999999": it is out of range`: {"--engines",
			"99999999999999999999"},
		`--allow-uid "bob": it is not a number`:                  {"--allow-uid", "bob"},
		`--deadline "soon": it is not a time such as 20s`:        {"--deadline", "soon"},
		`--store-required "maybe": it is neither true nor false`: {"--store-required=maybe"},
		"--engines 0 is not within 1 and 64":                     {"--engines", "0"},
		"--sessions 0 is not at least 1; --handles 0 is not at least 1": {"--sessions", "0", "--handles",
			"0"},
		"--deadline 0s is not above 0": {"--deadline", "0s"},
	} {
		var errs bytes.Buffer
		base := []string{"--socket", filepath.Join(t.TempDir(), "s"), "--memory", "8MiB"}
		assert.Equal(t, statusUsage, run(t.Context(), append(args, base...), io.Discard, &errs), want)
		assert.Equal(t, "kvactord: "+want+"\n", errs.String())
	}
}

// Each flag with a value says what the value is, not its type in Go.
func TestPlaceholders(t *testing.T) {
	command(io.Discard).Flags().VisitAll(func(f *pflag.Flag) {
		name, usage := pflag.UnquoteUsage(f)
		if f.Value.Type() != "bool" {
			assert.NotContains(t, []string{"", "int", "uint", "string", "strings", "duration"}, name, "--%s",
				f.Name)
		}
		assert.NotEmpty(t, usage)
	})
}

func TestVersion(t *testing.T) {
	var out, errs bytes.Buffer
	assert.Zero(t, run(t.Context(), []string{"--version"}, &out, &errs), errs.String())
	assert.Regexp(t, `^kvactor \S+.*\n$`, out.String())
}
