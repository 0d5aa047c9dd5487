package hfconfig

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/windows"
)

var update = flag.Bool("update", false, "write defaults.json")

// otherDefaults are those of types that are not in shapes.jsonl, or another there.
var otherDefaults = map[string]map[string]any{
	"gemma3n_text": {"hidden_size": 2048, "num_hidden_layers": 35, "num_attention_heads": 8,
		"num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768,
		"sliding_window": 512, "num_kv_shared_layers": 15},
	"t5":          {"d_kv": 64, "num_layers": 6, "num_heads": 8, "n_positions": 512},
	"kimi_linear": nil, // its files have the sizes of states in another object
}

// computed are the keys that classes compute from others and that the rules compute as well. They
// are no defaults: a file without them that has another hidden_size has another head_dim.
var computed = map[string]string{"head_dim": "hidden_size",
	"num_key_value_heads": "num_attention_heads"}

// dropComputed deletes what testdata/derived.json says of a type.
func dropComputed(t *testing.T, all map[string]map[string]any) {
	text, err := os.ReadFile("testdata/derived.json")
	require.NoError(t, err)
	var derived map[string]map[string][]string
	require.NoError(t, json.Unmarshal(text, &derived))
	for kind, keys := range derived {
		for key, of := range keys {
			if slices.Contains(of, computed[key]) {
				delete(all[kind], key)
			}
		}
	}
}

// A file that leaves out what its class computes is read as the class reads it.
func TestComputedByTheClass(t *testing.T) {
	for _, c := range []struct {
		text       string
		heads, dim int
	}{
		{`{"model_type":"llama","hidden_size":5120,"num_attention_heads":40,"num_hidden_layers":40}`, 40,
			128},
		{`{"model_type":"llama","hidden_size":2048,"num_attention_heads":32,"num_key_value_heads":4,
			"num_hidden_layers":22}`, 4, 64},
		{`{"model_type":"mistral","hidden_size":5120,"num_attention_heads":32}`, 8, 160},
		{`{"model_type":"phi3","hidden_size":5120,"num_attention_heads":40}`, 40, 128},
		{`{"model_type":"qwen3","hidden_size":5120,"num_attention_heads":64}`, 32, 128}, // of its own
		{`{"model_type":"gemma","hidden_size":2048,"num_attention_heads":8,"num_key_value_heads":1}`, 1,
			256},
		{`{"model_type":"llama"}`, 32, 128},
	} {
		m, err := Read(strings.NewReader(c.text), Options{})
		require.NoError(t, err, c.text)
		pools, err := windows.Pools(m.Model, m.Configure(windows.DefaultConfig()))
		require.NoError(t, err, c.text)
		require.Equal(t, []int{c.heads, c.dim}, []int{pools[0].KVHeads, pools[0].HeadDim}, c.text)
	}
	_, err := Read(strings.NewReader(`{"model_type":"llama","hidden_size":"x"}`), Options{})
	require.ErrorContains(t, err, "hidden_size is not an integer")
}

// TestDefaults: defaults.json has what the classes of shapes.jsonl have.
//
//	go test ./windows/hfconfig -run TestDefaults -update
func TestDefaults(t *testing.T) {
	all := make(map[string]map[string]any)
	for _, s := range shapes(t, "testdata/shapes.jsonl") {
		c := &config{values: s.Config, problems: new([]string)}
		part := textPart(c)
		if kind := kindOf(part, c); all[kind] == nil || kind == s.Type { // not of a part
			if d := defaultsOf(kind, part.values); len(d) > 0 {
				all[kind] = d
			}
		}
	}
	maps.Copy(all, otherDefaults)
	dropComputed(t, all)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", " ")
	require.NoError(t, e.Encode(all))
	if *update {
		require.NoError(t, os.WriteFile("defaults.json", b.Bytes(), 0o644))
		return
	}
	require.Equal(t, b.String(), string(defaultsText))
}
