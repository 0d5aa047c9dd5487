package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/hfconfig"
)

// The types of metadata values, by the format's numbers.
const (
	typeUint32 = 4
	typeInt32  = 5
	typeBool   = 7
	typeString = 8
	typeArray  = 9
	typeUint64 = 10
)

// encode writes a GGUF file of version 3 without tensors.
func encode(t testing.TB, values map[string]any) []byte {
	var b bytes.Buffer
	put := func(v any) { require.NoError(t, binary.Write(&b, binary.LittleEndian, v)) }
	text := func(s string) { put(uint64(len(s))); b.WriteString(s) }
	value := func(v any) {
		switch v := v.(type) {
		case int:
			put(uint32(typeUint32))
			put(uint32(v))
		case uint64:
			put(uint32(typeUint64))
			put(v)
		case string:
			put(uint32(typeString))
			text(v)
		case []int:
			put(uint32(typeArray))
			put(uint32(typeInt32))
			put(uint64(len(v)))
			for _, n := range v {
				put(int32(n))
			}
		case []bool:
			put(uint32(typeArray))
			put(uint32(typeBool))
			put(uint64(len(v)))
			put(v)
		default:
			t.Fatalf("a %T", v)
		}
	}
	b.WriteString("GGUF")
	put(uint32(3))
	put(uint64(0))
	put(uint64(len(values)))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		text(key)
		value(values[key])
	}
	for b.Len()%32 != 0 {
		b.WriteByte(0)
	}
	return b.Bytes()
}

// written is the path of a file of an architecture; the keys are without its name.
func written(t *testing.T, arch string, keys map[string]any) string {
	values := map[string]any{"general.architecture": arch, "general.type": "model",
		"tokenizer.ggml.model": "gpt2"}
	for key, v := range keys {
		values[arch+"."+key] = v
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	require.NoError(t, os.WriteFile(path, encode(t, values), 0o600))
	return path
}

func drawn(t *testing.T, m hfconfig.Model) string {
	pools, err := windows.Pools(m.Model, m.Configure(windows.DefaultConfig()))
	require.NoError(t, err)
	var out []string
	for _, p := range pools {
		bytes := p.TokenBytes()
		if p.Kind == windows.KindState {
			bytes = p.PageBytes()
		}
		out = append(out, fmt.Sprintf("%s %d %d", p.Name, len(p.Layers), bytes))
	}
	return strings.Join(out, ", ")
}

// with adds keys to the common ones.
func with(layers, width, heads, kv, dim int, more map[string]any) map[string]any {
	keys := map[string]any{
		"block_count": layers, "context_length": 32768, "embedding_length": width,
		"attention.head_count":    heads,
		"attention.head_count_kv": kv, "attention.key_length": dim, "attention.value_length": dim,
	}
	maps.Copy(keys, more)
	return keys
}

func TestArchitectures(t *testing.T) {
	cases := []struct {
		name, arch string
		keys       map[string]any
		want       string
	}{
		{"Llama-3.1-8B", "llama", map[string]any{"block_count": 32, "context_length": uint64(131072),
			"embedding_length": 4096, "attention.head_count": 32, "attention.head_count_kv": 8},
			"wfullh8 32 131072"},
		{"Gemma-3-1b", "gemma3",
			with(26, 1152, 4, 1, 256, map[string]any{"attention.sliding_window": 512}),
			"w512h1 22 22528, wfullh1 4 4096"},
		{"windows by a list", "gemma3", with(4, 1152, 4, 1, 256,
			map[string]any{"attention.sliding_window": 512, "attention.sliding_window_pattern": []bool{true,
				false, true, true}}),
			"w512h1 3 3072, wfullh1 1 1024"},
		{"Gemma-3n-E4B", "gemma3n",
			with(35, 2048, 8, 2, 256, map[string]any{"attention.sliding_window": 512,
				"attention.shared_kv_layers": 15}),
			"w512h2 16 32768, wfullh2 4 8192"},
		{"gpt-oss-20b", "gpt-oss",
			with(24, 2880, 64, 8, 64, map[string]any{"attention.sliding_window": 128}),
			"w128h8 12 24576, wfullh8 12 24576"},
		{"DeepSeek-V2-Lite, heads in the file", "deepseek2", with(27, 2048, 16, 16, 192,
			map[string]any{"attention.value_length": 128, "attention.kv_lora_rank": 512,
				"rope.dimension_count": 64}),
			"wfullh1 27 31104"},
		{"DeepSeek-V2-Lite, one vector in the file", "deepseek2",
			with(27, 2048, 16, 1, 576, map[string]any{"attention.value_length": 512,
				"attention.kv_lora_rank": 512, "rope.dimension_count": 64}),
			"wfullh1 27 31104"},
		{"Falcon-H1-7B as llama.cpp keeps it", "falcon-h1", with(44, 3072, 12, 2, 128,
			map[string]any{"ssm.conv_kernel": 4, "ssm.inner_size": 3072, "ssm.state_size": 256,
				"ssm.time_step_rank": 24, "ssm.group_count": 1}),
			fmt.Sprintf("wfullh2 44 45056, state 44 %d", 44*3188736)},
		{"Nemotron-H, four layers", "nemotron_h", map[string]any{"block_count": 4, "context_length": 8192,
			"embedding_length": 4096, "attention.head_count": 32, "attention.key_length": 128,
			"attention.head_count_kv": []int{0, 0, 8, 0}, "feed_forward_length": []int{0, 64, 0, 64},
			"ssm.conv_kernel": 4, "ssm.inner_size": 8192, "ssm.state_size": 128, "ssm.time_step_rank": 128,
			"ssm.group_count": 8},
			fmt.Sprintf("wfullh8 1 4096, state 1 %d", 4*(3*(8192+2*8*128)+128*64*128))},
		{"Granite 4, three layers", "granitehybrid", map[string]any{"block_count": 3,
			"context_length": 8192, "embedding_length": 4096, "attention.head_count": 32,
			"attention.head_count_kv": []int{0, 8, 0},
			"ssm.conv_kernel":         4, "ssm.inner_size": 8192, "ssm.state_size": 128,
			"ssm.time_step_rank": 128,
			"ssm.group_count":    1},
			fmt.Sprintf("wfullh8 1 4096, state 2 %d", 2*4*(3*(8192+2*128)+128*64*128))},
		{"Qwen3-Next", "qwen3next", with(48, 2048, 16, 2, 256,
			map[string]any{"ssm.conv_kernel": 4, "ssm.inner_size": 4096, "ssm.state_size": 128,
				"ssm.time_step_rank": 32, "ssm.group_count": 16}),
			fmt.Sprintf("wfullh2 12 24576, state 36 %d", 36*4*(24576+524288))},
		{"heads by layer", "openelm", map[string]any{"block_count": 2, "context_length": 2048,
			"embedding_length": 1280, "attention.head_count": 16, "attention.head_count_kv": []int{3, 4},
			"attention.key_length": 64},
			"wfullh3 1 768, wfullh4 1 1024"},
		{"Llama-4-Scout", "llama4", with(48, 5120, 40, 8, 128, nil),
			"c8192h8 36 147456, wfullh8 12 49152"},
		{"an unknown one with the common keys", "wonder", with(2, 1024, 8, 8, 128, nil),
			"wfullh8 2 8192"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			m, err := Open(written(t, tc.arch, tc.keys), hfconfig.Options{})
			require.NoError(t, err)
			assert.Equal(t, tc.want, drawn(t, m))
		})
	}
}

func TestRefused(t *testing.T) {
	_, err := Open(
		written(t, "wonder", with(2, 1024, 8, 8, 128, map[string]any{"attention.sliding_window": 512})),
		hfconfig.Options{})
	assert.ErrorContains(t, err,
		`architecture "wonder" is not known, nor what these keys mean for its cache: `+
			`attention.sliding_window`)
	_, err = Open(
		written(t, "wonder",
			with(2, 1024, 8, 8, 128, map[string]any{"ssm.inner_size": 512, "ssm.time_step_rank": 8})),
		hfconfig.Options{})
	assert.EqualError(t, err,
		`architecture "wonder" is not known, nor what these keys mean for its cache: ssm.inner_size, `+
			`ssm.time_step_rank`)
	_, err = Open(
		written(t, "falcon-h1", with(2, 1024, 8, 8, 128, map[string]any{"ssm.inner_size": 512})),
		hfconfig.Options{})
	assert.EqualError(t, err,
		"ssm.conv_kernel is missing; ssm.time_step_rank is missing; ssm.state_size is missing")
	// Models without attention; llama.cpp keeps float32.
	states := map[string]any{"ssm.conv_kernel": 4, "ssm.inner_size": 8192, "ssm.state_size": 128,
		"ssm.time_step_rank": 128, "ssm.group_count": 8}
	m, err := Open(written(t, "mamba2", with(64, 4096, 0, 0, 0, states)), hfconfig.Options{})
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("state 64 %d", 2*138149888), drawn(t, m))
	states = map[string]any{"ssm.conv_kernel": 4, "ssm.inner_size": 5120, "ssm.state_size": 16,
		"ssm.time_step_rank": 160}
	m, err = Open(written(t, "mamba", with(64, 2560, 0, 0, 0, states)), hfconfig.Options{})
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("state 64 %d", 64*4*(3+16)*5120), drawn(t, m))
	_, err = Open(filepath.Join(t.TempDir(), "nothing.gguf"), hfconfig.Options{})
	assert.ErrorIs(t, err, os.ErrNotExist)
	whole := encode(t, map[string]any{"general.architecture": "llama"})
	for n := range whole {
		path := filepath.Join(t.TempDir(), "cut.gguf")
		require.NoError(t, os.WriteFile(path, whole[:n], 0o600))
		_, err := Open(path, hfconfig.Options{})
		assert.Error(t, err, "%d bytes", n)
	}
	path := filepath.Join(t.TempDir(), "text.gguf")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("not a model ", 9)), 0o600))
	_, err = Open(path, hfconfig.Options{})
	assert.ErrorIs(t, err, messages.ErrBadRequest)
}

// TestReports: headers that caches have read wrong.
func TestReports(t *testing.T) {
	kda := 4 * (3*3*32*128 + 32*128*128)
	delta := 4 * (3*(4096+2*16*128) + 4096*128)
	for file, want := range map[string]string{
		"gemma4-31b.gguf":  "w1024h16 50 819200, wfullh4 10 81920",
		"gemma4-12b.gguf":  "w1024h8 40 327680, wfullh1 8 16384",
		"qwen36-mtp.gguf":  fmt.Sprintf("wfullh2 10 20480, state 30 %d", 30*delta),
		"deci-49b.gguf":    "wfullh8 49 200704",
		"lfm2.gguf":        fmt.Sprintf("wfullh8 6 12288, state 10 %d", 10*4*2*2048),
		"kimi-linear.gguf": fmt.Sprintf("wfullh1 7 8064, state 20 %d", 20*kda),
		"exaone4.gguf":     "w4096h8 48 196608, wfullh8 16 65536",
		"glm-dsa.gguf":     "wfullh1 21 29568, wfullh1.2 57 65664",
	} {
		m, err := Open("testdata/reports/"+file, hfconfig.Options{Strict: true})
		if assert.NoError(t, err, file) {
			assert.Equal(t, want, drawn(t, m), file)
		}
	}
	// With keys of the index as DeepSeek stores them, glm-dsa is as its config.json.
	m, err := Open("testdata/reports/glm-dsa.gguf", hfconfig.Options{IndexDType: "fp8"})
	require.NoError(t, err)
	assert.Equal(t, "wfullh1 21 26964, wfullh1.2 57 65664", drawn(t, m))
}

func TestIsFile(t *testing.T) {
	assert.True(t, IsFile("a/B.GGUF"))
	assert.False(t, IsFile("a/config.json"))
}

// FuzzOpen: whatever the file says, there is a model whose pools can be made or a refusal,
// soon and within the memory of a small file.
func FuzzOpen(f *testing.F) {
	f.Add(encode(f, map[string]any{"general.architecture": "llama", "llama.block_count": 2,
		"llama.context_length":   64,
		"llama.embedding_length": 64, "llama.attention.head_count": 4,
		"llama.attention.head_count_kv": []int{1, 2}}))
	f.Add(encode(f, map[string]any{"general.architecture": "gemma3",
		"gemma3.attention.sliding_window_pattern": []bool{true, false}}))
	path := filepath.Join(f.TempDir(), "fuzz.gguf")
	f.Fuzz(func(t *testing.T, file []byte) {
		require.NoError(t, os.WriteFile(path, file, 0o600))
		m, err := Open(path, hfconfig.Options{})
		if err != nil {
			return
		}
		// Sizes that no cache has are refused here.
		if _, err = windows.Pools(m.Model, m.Configure(windows.DefaultConfig())); err != nil {
			require.ErrorIs(t, err, messages.ErrConfigInvalid)
		}
	})
}
