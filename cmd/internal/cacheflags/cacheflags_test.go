package cacheflags

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/windows"
)

// read is what a command line configures.
func read(t *testing.T, args ...string) (windows.Config, error) {
	var f Flags
	set := pflag.NewFlagSet("x", pflag.ContinueOnError)
	set.Int("block", 16, "")
	set.Bool("no-reuse", false, "")
	f.Add(set)
	f.Key(set, "block", "tokens_per_block")
	f.KeyOf(set, "no-reuse", "enable_block_reuse", func() (string, error) { return "false", nil })
	require.NoError(t, set.Parse(args))
	base := windows.DefaultConfig()
	base.TokensPerBlock = 16
	return f.Read(base)
}

// The file comes before the defaults of flags, flags before the file, --set before both.
func TestOrder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "o.yaml")
	const options = "max_batch_size: 8\n" +
		"kv_cache_config: {tokens_per_block: 64, max_tokens: 100, dtype: fp8}\n"
	require.NoError(t, os.WriteFile(file, []byte(options), 0o600))
	want := windows.DefaultConfig()
	want.TokensPerBlock = 16
	got, err := read(t)
	require.NoError(t, err)
	assert.Equal(t, want, got)

	want.TokensPerBlock, want.MaxTokens, want.DType = 64, 100, "fp8"
	got, err = read(t, "--config", file)
	require.NoError(t, err)
	assert.Equal(t, want, got)

	want.TokensPerBlock, want.MaxTokens, want.EnableBlockReuse = 8, 7, false
	want.MaxAttentionWindow = []int{512, 4096}
	got, err = read(t, "--set", "max_tokens=7", "--set", "max_attention_window=[512, 4096]",
		"--block", "8", "--config", file, "--no-reuse")
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// Everything that is wrong is said at once, each with its flag.
func TestMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "o.yaml")
	require.NoError(t, os.WriteFile(file, []byte("max_tokens: many\n"), 0o600))
	got, err := read(t, "--config", file, "--set", "dtype", "--set", "tokens=5",
		"--set", "max_tokens=0", "--block", "8")
	assert.EqualError(t, err, "--config "+file+": max_tokens is a string, not an integer; "+
		"--set dtype: want key=value; --set: unknown name tokens; --set: max_tokens 0 is not 1 or more")
	assert.Equal(t, 8, got.TokensPerBlock, "what could be read")
	_, err = read(t, "--config", filepath.Join(t.TempDir(), "none"))
	assert.ErrorContains(t, err, "--config open ")
}
