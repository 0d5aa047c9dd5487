package hfconfig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
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
	Kind       string           `json:"kind"`
	Window     int              `json:"sliding_window"`
	Keys       []int            `json:"keys"`
	Values     []int            `json:"values"`
	Index      []int            `json:"indexer_keys"`
	Conv       map[string][]int `json:"conv_states"`
	Recurrent  map[string][]int `json:"recurrent_states"`
	Compressed map[string][]int `json:"compressed_kv"`
}

// files have what transformers keeps: with the sizes of the classes, and with others, of
// newer types too.
var files = []string{"testdata/shapes.jsonl", "testdata/shapes-seed7.jsonl"}

// shapes reads a file that testdata/shapes.py has made.
func shapes(t testing.TB, name string) []shape {
	file, err := os.Open(name)
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

// elements is a product of the dimensions of a shape behind the first, that of the batch.
func elements(shape []int) int64 {
	n := int64(1)
	for _, d := range shape[1:] {
		n *= int64(d)
	}
	return n
}

// keeps is the bytes a token by window, and those of states. Index keys are one byte an
// element and four of scale here, and two bytes an element in transformers.
func (s *shape) keeps(t *testing.T, longest int) (map[int]int64, int64) {
	bytes, states := make(map[int]int64), int64(0)
	for _, run := range s.Layers {
		var n int
		var l kept
		require.NoError(t, json.Unmarshal(run, &[]any{&n, &l}), s.Type)
		if l.Window >= longest {
			l.Window = 0
		}
		if len(l.Keys) == 4 {
			values := l.Values[1] * l.Values[3]
			if strings.HasPrefix(l.Kind, "DeepseekV4") { // whose values are its keys
				values = 0
			}
			bytes[l.Window] += int64(2 * n * (l.Keys[1]*l.Keys[3] + values))
		}
		if len(l.Index) > 0 {
			bytes[l.Window] += int64(n * (l.Index[2] + 4))
		}
		if row := l.Compressed["compressor"]; row != nil {
			rate := map[string]int{"DeepseekV4CSACache": 4, "DeepseekV4HCACache": 128}[l.Kind]
			bytes[0] += int64(n * 2 * row[2] / rate)
			if index := l.Compressed["indexer"]; index != nil {
				bytes[0] += int64(n * (index[2] + 4) / rate)
			}
		}
		for _, conv := range l.Conv {
			states += int64(n) * 4 * elements(conv) / int64(conv[2]) * int64(conv[2]-1)
		}
		for _, recurrent := range l.Recurrent {
			states += int64(n) * 4 * elements(recurrent)
		}
	}
	return bytes, states
}

// otherStates are the model types whose states transformers keeps otherwise: minimax in a
// list beside its layers, deepseek_v4 in buffers that grow. zaya has two convolutions of two
// inputs one behind the other, which need two inputs before the newest.
var otherStates = []string{"minimax", "deepseek_v4", "zaya"}

// planned is the same of a model that was read.
func planned(t *testing.T, m Model) (map[int]int64, int64) {
	pools, err := windows.Pools(m.Model, m.Configure(planConfig(m)))
	require.NoError(t, err)
	bytes, states := make(map[int]int64), int64(0)
	for _, p := range pools {
		if p.Kind == windows.KindState {
			states += p.PageBytes()
			continue
		}
		bytes[max(p.Window, p.Chunk)] += p.TokenBytes()
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

// wide reads with the types of states that the comparison assumes.
var wide = Options{StateDType: "float32", ConvDType: "float32"}

// TestShapes holds what is read against what transformers keeps: all of it right, and no
// key of a known family without a meaning.
func TestShapes(t *testing.T) {
	for _, file := range files {
		for _, s := range shapes(t, file) {
			text, err := json.Marshal(s.Config)
			require.NoError(t, err)
			m, err := Read(bytes.NewReader(text), wide)
			if !assert.NoError(t, err, s.Type) {
				continue
			}
			assert.NotContains(t, strings.Join(m.Notes, "; "), "were not used", s.Type)
			got, gotStates := planned(t, m)
			want, wantStates := s.keeps(t, m.MaxSeqLen)
			if slices.Contains(otherStates, s.Type) {
				assert.Positive(t, gotStates, s.Type)
				wantStates = gotStates
			}
			assert.Equal(t, fmt.Sprint(want, wantStates), fmt.Sprint(got, gotStates), "%s, %s", file, s.Type)
		}
	}
}
