package hfconfig

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// mutated is a configuration that was changed. The classes of transformers have for a key
// that is absent what the configurations of shapes.jsonl say, so a change that only
// removes keys leaves what is kept.
type mutated struct {
	shape
	removes bool // nothing but keys
	unknown bool // a key or a type that nobody knows
}

// part is the text part of a configuration, copied.
func (m *mutated) part(t testing.TB) map[string]any {
	text, err := json.Marshal(m.Config)
	require.NoError(t, err)
	c, err := parse(bytes.NewReader(text))
	require.NoError(t, err)
	m.Config = c.values
	return textPart(c).values
}

// mutate applies steps of three bytes: what to do, to which key, with which value.
func mutate(t testing.TB, s shape, steps []byte) mutated {
	m := mutated{shape: s, removes: true}
	values := m.part(t)
	m.removes = m.Config["model_type"] == values["model_type"] // a part has other defaults alone
	for ; len(steps) >= 3 && len(values) > 0; steps = steps[3:] {
		keys := slices.Sorted(maps.Keys(values))
		key := keys[int(steps[1])%len(keys)]
		if key == "dtype" || key == "model_type" || key == "architectures" || key == "retained_rows" {
			key = "vocab_size"
		}
		m.removes = m.removes && steps[0]%5 == 0
		switch value := json.Number(string('0' + steps[2]%10)); steps[0] % 5 {
		case 0:
			delete(values, key)
		case 1:
			values["retained_rows"], m.unknown = json.Number("3"), true
		case 2:
			values["model_type"], m.unknown = "heretofore", true
		case 3:
			values[key] = []any{value, "none", nil, true, json.Number("-7"), json.Number("1e9"),
				[]any{value}, map[string]any{"a": value}, ""}[int(steps[2])%9]
		case 4:
			values["renamed_"+key] = values[key]
			delete(values, key)
		}
	}
	return m
}

// holds reads the configuration and holds the model to what is kept: right, noted or
// refused, never a panic, never less without a word.
func (m mutated) holds(t *testing.T) {
	text, err := json.Marshal(m.Config)
	require.NoError(t, err)
	read, err := Read(bytes.NewReader(text), wide)
	if err != nil {
		require.ErrorIs(t, err, messages.ErrConfigInvalid)
		return
	}
	_, err = windows.Pools(read.Model, read.Configure(planConfig(read)))
	require.NoError(t, err)
	if len(read.Notes) > 0 {
		return
	}
	require.False(t, m.unknown, "%s: an unknown key is read without a word: %s", m.Type, text)
	if !m.removes {
		return
	}
	got, gotStates := planned(t, read)
	want, wantStates := m.keeps(t, read.MaxSeqLen)
	if !slices.Contains(otherStates, m.Type) {
		require.GreaterOrEqual(t, gotStates, wantStates, "%s: %s", m.Type, text)
	}
	require.GreaterOrEqual(t, longest(got, read.MaxSeqLen), longest(want, read.MaxSeqLen), "%s: %s",
		m.Type, text)
}

// longest is what the longest sequence takes of so many bytes a token by window.
func longest(bytes map[int]int64, length int) int64 {
	sum := int64(0)
	for window, n := range bytes {
		if window == 0 || window > length {
			window = length
		}
		sum += n * int64(window)
	}
	return sum
}

// TestRemovedKeys removes each key of each configuration.
func TestRemovedKeys(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 7
	}
	for _, s := range shapes(t, "testdata/shapes.jsonl") {
		m := mutated{shape: s}
		for i := 0; i < len(m.part(t)); i += step {
			mutate(t, s, []byte{0, byte(i), 0}).holds(t)
		}
	}
}

// FuzzMutated changes real configurations.
func FuzzMutated(f *testing.F) {
	all := shapes(f, "testdata/shapes.jsonl")
	for i := range all {
		f.Add(uint16(i), []byte{0, byte(i), 0, 0, byte(7 * i), 0, 4, byte(3 * i), 1})
		f.Add(uint16(i), []byte{2, 0, 0, 3, byte(5 * i), byte(i)})
		f.Add(uint16(i), []byte{1, byte(i), 3})
	}
	f.Fuzz(func(t *testing.T, i uint16, steps []byte) {
		mutate(t, all[int(i)%len(all)], steps[:min(len(steps), 30)]).holds(t)
	})
}
