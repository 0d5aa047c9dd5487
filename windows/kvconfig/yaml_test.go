package kvconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// Errors are in the words of the text: no types of Go, and places as people say them.
func TestYAMLErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"dtype: [1\n", "not YAML: line 1, column 8: sequence end token ']' not found"},
		{"max_tokens: 1\nmax_tokens: 2\n",
			`line 2, column 1: mapping key "max_tokens" already defined at line 1, column 1`},
		{"max_tokens: 99999999999999999999\n", "max_tokens 99999999999999999999 is too large"},
		{"free_gpu_memory_fraction: 1e999\n", "free_gpu_memory_fraction 1e999 is too large"},
		{"max_tokens: !!int x\n", "line 1, column 13: a tag has no place here"},
		{"dtype: !!binary YQ==\n", "line 1, column 8: a tag has no place here"},
		{"a: &b {c: 1}\n<<: *b\n", "line 2, column 1: a merge key has no place here"},
		{"a: &b 1\nmax_tokens: *b\n", "line 2, column 13: an alias has no place here"},
		{"dtype: \"99999999999999999999\"\nx: 1\n", "unknown name x"},
		{"max_tokens: \"99999999999999999999\"\n", "max_tokens is a string, not an integer"},
		{"pool_fractions: {w: 99999999999999999999999}\n",
			"pool_fractions of w 99999999999999999999999 is too large"},
	} {
		_, err := ReadYAML(strings.NewReader(c.text))
		require.ErrorContains(t, err, c.want)
		assert.NotRegexp(t, `\bint64\b|\buint8\b|a int|ast\.|\[\d+:\d+\]`, err.Error())
	}
	_, err := ReadYAML(strings.NewReader("max_tokens: !!int x\n"))
	require.ErrorIs(t, err, messages.ErrBadRequest)
}

// An anchor that nothing refers to, block scalars and numbers in other bases are read.
func TestYAMLForms(t *testing.T) {
	c, err := ReadYAML(strings.NewReader("max_tokens: &n 0x10\ndtype: >-\n  fp8\n" +
		"free_gpu_memory_fraction: 5e-1\nevent_buffer_max_size: 1_000\n? host_cache_size\n: 64\n"))
	require.NoError(t, err)
	assert.Equal(t, []any{16, "fp8", 0.5, 1000, int64(64)},
		[]any{c.MaxTokens, c.DType, c.FreeGPUMemoryFraction, c.EventBufferMaxSize, c.HostCacheSize})
}
