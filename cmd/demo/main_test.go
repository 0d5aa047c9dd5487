package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "fleet" && os.Args[2] == "engine" {
		// a process of demo fleet
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == "handover" && os.Args[2] == "decode" {
		// a process of demo handover
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	if args := os.Getenv(asDemo); args != "" {
		os.Args = append(os.Args[:1], strings.Split(args, "\n")...)
		main()
	}
	// The Valkey client keeps a goroutine asleep for a second after its last look-up of a
	// cluster's slots, also when it is closed; it ends by itself.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valkey-io/valkey-go.(*call).DelayDo.func1"))
}

// command runs a command line as a shell would.
func command(t *testing.T, in string, args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	status = run(t.Context(), args, strings.NewReader(in), &o, &e)
	return status, o.String(), e.String()
}

func TestMistakesAreOneLine(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.jsonl")
	cases := map[string]struct {
		args   []string
		status int
		want   string
	}{
		"unknown command": {[]string{"replya"}, 2, "unknown command"},
		"unknown flag":    {[]string{"--pgaes", "3"}, 2, "unknown flag"},
		"bad number":      {[]string{"--hosts", "x"}, 2, "--hosts \"x\": it is not a number"},
		"no hosts":        {[]string{"--hosts", "0"}, 2, "--hosts 0"},
		"no trace":        {[]string{"replay"}, 2, "accepts 1 arg"},
		"missing trace":   {[]string{"replay", missing}, 1, "no such file"},
		"no pages":        {[]string{"replay", missing, "--pages", "0"}, 2, "--pages 0"},
		"some pages":      {[]string{"replay", missing, "--pages", "5,x"}, 2, "--pages"},
		"no one waits": {[]string{"replay", missing, "--atomic", "--prefetch", "9"}, 2,
			"--prefetch goes with --timed"},
		"negative": {[]string{"replay", missing, "--prefetch", "-1"}, 2,
			"--prefetch -1 is negative"},
		"not on paper": {[]string{"replay", missing, "--policy", "forecast,optimal"}, 2,
			"--policy optimal goes with --atomic"},
		"no model":       {[]string{"replay", missing, "--model", "gpt"}, 2, "--model gpt"},
		"no profile":     {[]string{"replay", missing, "--profile", "gpu"}, 2, "--profile gpu"},
		"missing script": {[]string{"script", missing}, 2, "no such file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			status, out, errs := command(t, "", c.args...)
			assert.Equal(t, c.status, status)
			assert.Empty(t, out)
			assert.Contains(t, errs, c.want)
			assert.Equal(t, 1, strings.Count(errs, "\n"), errs)
			assert.True(t, strings.HasPrefix(errs, "demo: "))
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"replay", "--help"}, {"script", "--help"}} {
		status, out, errs := command(t, "", args...)
		assert.Zero(t, status)
		assert.Empty(t, errs)
		assert.Contains(t, out, "Examples:")
		assert.Contains(t, out, "Usage:")
	}
}

const lines = `{"timestamp":0,"input_length":40,"output_length":3,"hash_runs":[[0,2]]}
{"timestamp":50,"input_length":70,"output_length":2,"hash_runs":[[0,2],[2,2]]}
{"timestamp":90,"input_length":70,"output_length":0,"hash_runs":[[0,4]]}
`

func TestReplayPrintsOneObject(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(lines), 0o600))
	for _, mode := range []string{"--atomic", "--atomic=false"} {
		status, out, errs := command(t, "", "replay", path, "--json", "--pages", "50",
			"--tokens-per-block", "16", mode)
		require.Zero(t, status, errs)
		assert.Contains(t, errs, "replay: 3 requests")
		assert.Equal(t, 1, strings.Count(out, "\n"))
		var result map[string]any
		require.NoError(t, json.Unmarshal([]byte(out), &result))
		assert.EqualValues(t, 10, result["blocks"])
		assert.EqualValues(t, 6, result["hit_blocks"])
		assert.Equal(t, []any{}, result["problems"])
	}
}

func TestReplayPrintsTables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(lines), 0o600))
	status, out, errs := command(t, "", "replay", path, "--pages", "50", "--host-pages", "10",
		"--model", "hybrid")
	require.Zero(t, status, errs)
	assert.Contains(t, out, "blocks hit")
	assert.Contains(t, out, "p99")
	assert.Contains(t, out, "50 + 10 pages")
}

func TestConversationsAreServedAndChecked(t *testing.T) {
	status, out, errs := command(t, "", "--conversations", "12", "--hosts", "3", "--pages", "400",
		"--host-pages", "300", "--chats", "4")
	require.Zero(t, status, errs+out)
	for _, want := range []string{"requests answered", "prefill saved", "device to host", "w512h2",
		"wfullh2", "append", "0 of them wrong", "all invariants hold",
		"12 of 12 answers have the same tokens with and without reuse"} {
		assert.Contains(t, out, want)
	}
	assert.Contains(t, errs, "12 conversations")
}

// Two KV heads on four devices: each is on two of them.
func TestConversationsOverAGroup(t *testing.T) {
	status, out, errs := command(t, "", "--conversations", "8", "--hosts", "2", "--pages", "400",
		"--host-pages", "300", "--chats", "0", "--ranks", "4")
	require.Zero(t, status, errs+out)
	for _, want := range []string{"the devices of the group", "wfullh1", "0 of them wrong",
		"all invariants hold"} {
		assert.Contains(t, out, want)
	}
	assert.Contains(t, errs, "on a 4 × simulated h100-pcie5")
	status, _, errs = command(t, "", "--chats", "0", "--ranks", "3")
	require.NotZero(t, status)
	assert.Contains(t, errs, "2 KV heads cannot be divided between 3 devices")
	status, _, errs = command(t, "", "--chats", "0", "--ranks", "17")
	require.Equal(t, statusUsage, status)
	assert.Contains(t, errs, "--ranks 17 is not within 1 and 16")
}

func TestProfileIsWritten(t *testing.T) {
	directory := t.TempDir()
	status, _, errs := command(t, "", "--conversations", "2", "--hosts", "1", "--chats", "0",
		"--profile", "mem", "--profile-dir", directory)
	require.Zero(t, status, errs)
	assert.FileExists(t, filepath.Join(directory, "mem.pprof"))
}

func TestScript(t *testing.T) {
	status, out, errs := command(t, `{"op":"close"}`+"\n", "script", "-")
	require.Zero(t, status, errs)
	assert.JSONEq(t, `{"op":"close","ok":true,"leaked_pages":0}`, out)
}

// TestReplayComparesPolicies: several policies and numbers of pages are one JSON line each,
// or the rows of one table.
func TestReplayComparesPolicies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	var lines strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lines, `{"timestamp":%d,"input_length":48,"output_length":4,"hash_ids":[%d,%d,%d]}`+
			"\n", 1000*i, 3*(i%9), 3*(i%9)+1, 3*(i%9)+2)
	}
	require.NoError(t, os.WriteFile(path, []byte(lines.String()), 0o600))
	args := []string{"replay", path, "--atomic", "--policy", "priority_lru,forecast,optimal",
		"--pages", "12,40"}
	status, out, _ := command(t, "", append(args, "--json")...)
	require.Zero(t, status)
	rows := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, rows, 6)
	for i, row := range rows {
		var r struct {
			Policy string `json:"policy"`
			Pages  int    `json:"pages"`
			Hits   int    `json:"hit_blocks"`
		}
		require.NoError(t, json.Unmarshal([]byte(row), &r))
		assert.Equal(t, []string{"priority_lru", "forecast", "optimal"}[i%3], r.Policy)
		assert.Equal(t, []int{12, 40}[i/3], r.Pages)
		if r.Pages == 40 {
			assert.Equal(t, 3*51, r.Hits)
		}
	}
	status, out, _ = command(t, "", args...)
	require.Zero(t, status)
	assert.Contains(t, out, "to optimal")
	assert.Contains(t, out, "100.0 %")
}

// each visits a command and those below it.
func each(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, below := range c.Commands() {
		each(below, visit)
	}
}

// TestPlaceholders: each flag with a value says what the value is, not its type in Go, and not
// one of the values.
func TestPlaceholders(t *testing.T) {
	each(rootCommand(), func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" {
				return
			}
			name, usage := pflag.UnquoteUsage(f)
			assert.NotContains(t, []string{"", "int", "uint", "string", "strings", "float", "duration",
				f.DefValue}, name, "%s --%s", c.CommandPath(), f.Name)
			assert.NotEmpty(t, usage)
		})
	})
}

// TestFlagErrors: an error of a flag names the flag once, its value once, and no type of Go.
func TestFlagErrors(t *testing.T) {
	for want, args := range map[string][]string{
		`--hosts "x": it is not a number`:                        {"--hosts", "x"},
		`--hosts "99999999999999999999": it is out of range`:     {"--hosts", "99999999999999999999"},
		`--store-required "maybe": it is neither true nor false`: {"--store-required=maybe"},
		`--memory "lots": it is not a size such as 80GiB`: {"plan",
			"GPT-OSS-20B", "--memory", "lots"},
		`--grace "soon": it is not a time such as 20s`:              {"serve", "--grace", "soon"},
		"--running 0 is not at least 1":                             {"serve", "--running", "0"},
		"--waiting 0 is not at least 1":                             {"serve", "--waiting", "0"},
		"--step-tokens 0 is not at least 1":                         {"serve", "--step-tokens", "0"},
		"--tokens-per-block 0 is not at least 1":                    {"serve", "--tokens-per-block", "0"},
		"--chunk 0 is not at least 1":                               {"serve", "--chunk", "0"},
		"--chunk 7 is not a multiple of --tokens-per-block 16":      {"serve", "--chunk", "7"},
		"--max-len -3 is negative":                                  {"serve", "--max-len", "-3"},
		"--host-pages -1 is negative":                               {"serve", "--host-pages", "-1"},
		"--timeout 0s is not above 0":                               {"serve", "--timeout", "0"},
		"--dtype int3 is none of float32 float16 bfloat16 int8 fp8": {"serve", "--dtype", "int3"},
		`--store: URL of a store: "foo://x" begins with neither file: nor valkey: as its scheme`: {
			"serve", "--store", "foo://x",
		},
		"--tokens 0 is not at least 1": {"chat",
			"--tokens", "0"},
		"--tokens -1 is not at least 1": {"handover", "--tokens", "-1"},
		"--pages -3 is negative": {"chat",
			"--pages", "-3"},
		"--tokens-per-block 0 is not at least 1 ": {"replay", "none", "--tokens-per-block",
			"0"},
		"--device-tokens 0 is not at least 1":               {"fleet", "--device-tokens", "0"},
		"--save never is none of commit, reuse":             {"fleet", "--save", "never"},
		"--ranks 0 is not at least 1":                       {"--ranks", "0"},
		"--serve: address nowhere: missing port in address": {"--serve", "nowhere"},
	} {
		status, out, errs := command(t, "", args...)
		assert.Equal(t, statusUsage, status, want)
		assert.Empty(t, out)
		assert.Equal(t, "demo: "+strings.TrimSpace(want)+"\n", errs)
	}
}

func TestVersion(t *testing.T) {
	status, out, errs := command(t, "", "--version")
	assert.Zero(t, status)
	assert.Empty(t, errs)
	assert.Regexp(t, `^kvactor \S+.*\n$`, out)
}
