package hfconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/windows"
)

const small = `{"model_type":"llama","hidden_size":64,"num_attention_heads":2,"num_hidden_layers":1,` +
	`"num_key_value_heads":2,"max_position_embeddings":64,"torch_dtype":"bfloat16"`

// A quantised checkpoint says the element type of its cache, in either file.
func TestQuantisedCaches(t *testing.T) {
	for _, c := range []struct {
		config, beside string
		want           windows.DType
		note           string
	}{
		{"", "", windows.BFloat16, ""},
		{`,"quantization_config":{"quant_method":"fp8"}`, "", windows.BFloat16, ""},
		{`,"quantization_config":{"kv_cache_scheme":null}`, "", windows.BFloat16, ""},
		{`,"quantization_config":{"kv_cache_scheme":{"num_bits":8,"type":"float","strategy":"tensor"}}`, "", windows.FP8, "kv_cache_scheme"},
		{`,"quantization_config":{"kv_cache_scheme":{"num_bits":8,"type":"int"}}`, "", windows.Int8, "kv_cache_scheme"},
		{`,"quantization_config":{"kv_cache_scheme":{"num_bits":4,"type":"float"}}`, "", windows.BFloat16, "is not known"},
		{"", `{"quantization":{"quant_algo":"FP8","kv_cache_quant_algo":"FP8"}}`, windows.FP8, "kv_cache_quant_algo"},
		{"", `{"quantization":{"kv_cache_quant_algo":"NVFP4"}}`, windows.NVFP4, "kv_cache_quant_algo"},
		{"", `{"quantization":{"quant_algo":"FP8","kv_cache_quant_algo":null}}`, windows.BFloat16, ""},
		{"", `{"quantization":{"kv_cache_quant_algo":"Q9"}}`, windows.BFloat16, "a cache of Q9, which is not known"},
	} {
		folder := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), []byte(small+c.config+"}"), 0o600))
		if c.beside != "" {
			require.NoError(t, os.WriteFile(filepath.Join(folder, quantisedFile), []byte(c.beside), 0o600))
		}
		m, err := Open(folder, Options{})
		require.NoError(t, err, c)
		assert.Equal(t, c.want, m.DType, c)
		assert.Equal(t, c.note != "", strings.Contains(strings.Join(m.Notes, ""), "asks for a cache"), c)
		assert.Contains(t, strings.Join(m.Notes, ""), c.note)
	}
}

func TestBadQuantisation(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), []byte(small+"}"), 0o600))
	for text, want := range map[string]string{
		"[]":                  "not a JSON object",
		`{"quantization":[]}`: "quantization is not an object",
		`{"quantization":{"kv_cache_quant_algo":8}}`: "kv_cache_quant_algo is not a string",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, quantisedFile), []byte(text), 0o600))
		_, err := Open(folder, Options{})
		assert.ErrorContains(t, err, want)
	}
}
