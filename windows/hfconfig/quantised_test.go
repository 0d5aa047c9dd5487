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

const small = `{"model_type":"llama","hidden_size":64,"num_attention_heads":2,` +
	`"num_hidden_layers":1,"num_key_value_heads":2,"max_position_embeddings":64,` +
	`"torch_dtype":"bfloat16"`

// A quantised checkpoint says the element type of its cache, in either file.
func TestQuantisedCaches(t *testing.T) {
	scheme := func(s string) string { return `,"quantization_config":{"kv_cache_scheme":` + s + `}` }
	algorithm := func(s string) string { return `{"quantization":{"kv_cache_quant_algo":` + s + `}}` }
	for _, c := range []struct {
		config, beside string
		want           windows.DType
		note           string
	}{
		{"", "", windows.BFloat16, ""},
		{`,"quantization_config":{"quant_method":"fp8"}`, "", windows.BFloat16, ""},
		{scheme("null"), "", windows.BFloat16, ""},
		{scheme(`{"num_bits":8,"type":"float","strategy":"tensor"}`), "", windows.FP8, "scheme"},
		{scheme(`{"num_bits":8,"type":"int"}`), "", windows.Int8, "scheme"},
		{scheme(`{"num_bits":4,"type":"float"}`), "", windows.BFloat16, "is not known"},
		{"", algorithm(`"FP8"`), windows.FP8, "kv_cache_quant_algo"},
		{"", algorithm(`"NVFP4"`), windows.NVFP4, "kv_cache_quant_algo"},
		{"", algorithm("null"), windows.BFloat16, ""},
		{"", algorithm(`"Q9"`), windows.BFloat16, "a cache of Q9, which is not known"},
	} {
		m, err := Open(checkpoint(t, small+c.config+"}", c.beside), Options{})
		require.NoError(t, err, c)
		assert.Equal(t, c.want, m.DType, c)
		notes := strings.Join(m.Notes, "")
		assert.Equal(t, c.note != "", strings.Contains(notes, "asks for a cache"), c)
		assert.Contains(t, notes, c.note)
	}
}

// checkpoint is a folder with a config.json and, unless it is empty, a file beside it.
func checkpoint(t *testing.T, config, beside string) string {
	folder := t.TempDir()
	for name, text := range map[string]string{"config.json": config, quantisedFile: beside} {
		if text != "" {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
		}
	}
	return folder
}

func TestBadQuantisation(t *testing.T) {
	for text, want := range map[string]string{
		"[]":                  "not a JSON object",
		`{"quantization":[]}`: "quantization is not an object",
		`{"quantization":{"kv_cache_quant_algo":8}}`: "kv_cache_quant_algo is not a string",
	} {
		_, err := Open(checkpoint(t, small+"}", text), Options{})
		assert.ErrorContains(t, err, want)
	}
}
