package hfconfig

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write defaults.json")

// otherDefaults are those of types that are not in shapes.jsonl, or another there.
var otherDefaults = map[string]map[string]any{
	"gemma3n_text": {"hidden_size": 2048, "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768, "sliding_window": 512, "num_kv_shared_layers": 15},
	"t5":           {"d_kv": 64, "num_layers": 6, "num_heads": 8, "n_positions": 512},
	"kimi_linear":  nil, // its files have the sizes of states in another object
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
