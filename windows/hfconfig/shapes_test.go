package hfconfig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/windows"
)

// shape is what a model type of transformers keeps, made by testdata/shapes.py.
type shape struct {
	Type   string         `json:"model_type"`
	Config map[string]any `json:"config"`
	Class  string         `json:"class"`
	Layers []json.RawMessage
}

// kept is what one layer of transformers keeps.
type kept struct {
	Window    int                        `json:"sliding_window"`
	Keys      []int                      `json:"keys"`
	Values    []int                      `json:"values"`
	Index     []int                      `json:"indexer_keys"`
	Conv      json.RawMessage            `json:"conv_states"`
	Recurrent map[string]json.RawMessage `json:"recurrent_states"`
}

// refusedShapes are the model types that are refused, with what the error names.
var refusedShapes = map[string]string{"deepseek_v4": "compress_rates", "xlstm": "num_blocks"}

// shapes reads the file that testdata/shapes.py has made.
func shapes(t testing.TB) []shape {
	file, err := os.Open("testdata/shapes.jsonl")
	require.NoError(t, err)
	defer file.Close()
	var all []shape
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s shape
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.UseNumber()
		require.NoError(t, d.Decode(&s))
		s.Config["dtype"], s.Config["architectures"] = "bfloat16", []any{s.Class}
		all = append(all, s)
	}
	require.NoError(t, lines.Err())
	return all
}

// keeps is the bytes a token by window, and whether there are states. Index keys are
// one byte an element and four of scale here, and two bytes an element in transformers.
func (s *shape) keeps(t *testing.T, longest int) (map[int]int64, bool) {
	bytes, states := make(map[int]int64), false
	for _, run := range s.Layers {
		var n int
		var l kept
		require.NoError(t, json.Unmarshal(run, &[]any{&n, &l}), s.Type)
		if l.Window >= longest {
			l.Window = 0
		}
		if len(l.Keys) == 4 {
			bytes[l.Window] += int64(2 * n * (l.Keys[1]*l.Keys[3] + l.Values[1]*l.Values[3]))
		}
		if len(l.Index) > 0 {
			bytes[l.Window] += int64(n * (l.Index[2] + 4))
		}
		states = states || len(l.Conv) > 0 || len(l.Recurrent) > 0
	}
	return bytes, states
}

// planned is the same of a model that was read.
func planned(t *testing.T, m Model) (map[int]int64, bool) {
	pools, err := windows.Pools(m.Model, m.Configure(planConfig(m)))
	require.NoError(t, err)
	bytes, states := make(map[int]int64), false
	for _, p := range pools {
		if states = states || p.Kind == windows.KindState; p.Kind != windows.KindState {
			bytes[max(p.Window, p.Chunk)] += p.TokenBytes()
		}
	}
	return bytes, states
}

func planConfig(m Model) windows.Config {
	c := windows.DefaultConfig()
	if m.Encodes() {
		c.CrossKVCacheFraction = 0.5
	}
	return c
}

// TestShapes holds what is read against what transformers keeps.
func TestShapes(t *testing.T) {
	right := 0
	for _, s := range shapes(t) {
		text, err := json.Marshal(s.Config)
		require.NoError(t, err)
		m, err := Read(bytes.NewReader(text), Options{})
		if key, refused := refusedShapes[s.Type]; refused {
			assert.ErrorContains(t, err, key, s.Type)
			continue
		}
		if !assert.NoError(t, err, s.Type) {
			continue
		}
		got, gotStates := planned(t, m)
		want, wantStates := s.keeps(t, m.MaxSeqLen)
		if s.Type == "minimax" { // transformers keeps its states in a list of another name
			wantStates = true
		}
		if assert.Equal(t, fmt.Sprint(want, wantStates), fmt.Sprint(got, gotStates), s.Type) && maps.Equal(got, want) {
			right++
		}
	}
	assert.Equal(t, 128, right)
}
