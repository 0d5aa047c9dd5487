package hfconfig

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// with is a plain model of an unknown type with further keys.
func with(keys string) string {
	return `{"model_type":"wonder","hidden_size":1024,"num_hidden_layers":2,"num_attention_heads":8,
		"max_position_embeddings":4096,"dtype":"bfloat16",` + keys + `}`
}

// codestral is the file of Mamba-Codestral-7B, whose layers are all recurrent.
const codestral = `{"model_type":"mamba2","hidden_size":4096,"num_hidden_layers":64,"num_heads":128,
	"head_dim":64,"state_size":128,"n_groups":8,"conv_kernel":4,"expand":2,"intermediate_size":8192,
	"time_step_limit":[0.0,Infinity],"torch_dtype":"bfloat16"}`

// TestRefused: what cannot be read is refused with the name of the key.
func TestRefused(t *testing.T) {
	cases := []struct{ json, want string }{
		{with(`"sliding_window":512`),
			`model_type "wonder" is not known, nor what these keys mean for its cache: sliding_window`},
		{with(`"kv_lora_rank":512`),
			`model_type "wonder" is not known, nor what these keys mean for its cache: kv_lora_rank`},
		{with(`"mamba_d_state":16`),
			`model_type "wonder" is not known, nor what these keys mean for its cache: mamba_d_state`},
		{with(`"is_encoder_decoder":true`),
			`model_type "wonder" is not known, nor what these keys mean for its cache: is_encoder_decoder`},
		{with(`"layer_types":["dreaming","dreaming"]`),
			`layer_types: "dreaming" of layer 0 is not known`},
		{`{"model_type":"llama","dtype":{"a":1}}`, `dtype is not a string`},
		{with(`"layer_types":["full_attention","dreaming"]`),
			`layer_types: "dreaming" of layer 1 is not known`},
		{with(`"layer_types":["full_attention"]`), "layer_types has 1 entries for 2 layers"},
		{with(`"attention_chunk_size":8192`),
			`model_type "wonder" is not known, nor what these keys mean for its cache: ` +
				`attention_chunk_size`},
		{with(`"num_key_value_heads":"eight"`), "num_key_value_heads is not an integer"},
		{with(`"num_key_value_heads":8.5`), "num_key_value_heads is not an integer"},
		{with(`"num_key_value_heads":1e12`), "num_key_value_heads is not an integer"},
		{with(`"num_key_value_heads":-1`), "num_key_value_heads -1 is not 1 or more"},
		{with(`"head_dim":[1]`), "head_dim has 1 entries for 2 layers"},
		{with(`"layer_types":["sliding_attention","full_attention"]`), "sliding_window is missing"},
		{`{"model_type":"llama4_text","num_hidden_layers":2,"no_rope_layers":[1,0,1],"dtype":"bfloat16"}`,
			"no_rope_layers has 3 entries for 2 layers"},
		{`{"model_type":"wonder","dtype":"fp8"}`,
			"dtype fp8 is not one of bfloat16, float16, float32; num_hidden_layers is missing; " +
				"num_key_value_heads is missing; hidden_size is missing; num_attention_heads is missing; " +
				"max_position_embeddings is missing"},
		{`{"model_type":"nemotron_h","hidden_size":64,"num_attention_heads":2,"head_dim":32,
			"mamba_num_heads":2,"mamba_head_dim":2,"ssm_state_size":2,"conv_kernel":4,
			"hybrid_override_pattern":"M?","max_position_embeddings":8,"dtype":"float16"}`,
			`hybrid_override_pattern: "?" of layer 1 is not known`},
		{`{"model_type":"kimi_linear","max_position_embeddings":8,"dtype":"float16"}`,
			"num_hidden_layers is missing; " +
				"linear_attn_config.full_attn_layers is missing; linear_attn_config.num_heads is missing; " +
				"linear_attn_config.head_dim is missing; linear_attn_config.short_conv_kernel_size is missing"},
		{`{"model_type":"gemma3n_text","num_kv_shared_layers":35,"dtype":"float16"}`,
			"num_kv_shared_layers 35 is not less than the 35 layers"},
		{with(`"num_key_value_heads":3`), "8 query heads cannot be divided between 3 KV heads"},
		{`{"model_type":"bert"}`, `model_type "bert" is not supported: an encoder has no cache`},
		{`{"model_type":"gemma3_text","use_bidirectional_attention":true,"dtype":"float16"}`,
			"use_bidirectional_attention: an encoder has no cache"},
	}
	for _, tc := range cases {
		_, err := Read(strings.NewReader(tc.json), Options{})
		require.EqualError(t, err, tc.want, tc.json)
		assert.ErrorIs(t, err, messages.ErrConfigInvalid)
	}
	for text, want := range map[string]string{
		"": "it is empty", "[]": "it is of type array", "3": "it is of type number",
		`{"a":1`: "it ends too early",
		`{"a":}`: "invalid character", `{"a":1} {`: "text follows the JSON object at byte 9",
	} {
		_, err := Read(strings.NewReader(text), Options{})
		assert.ErrorIs(t, err, messages.ErrBadRequest, text)
		assert.ErrorContains(t, err, want)
	}
	_, err := Read(iotest.ErrReader(errors.New("broken pipe")), Options{})
	assert.ErrorContains(t, err, "broken pipe")
	_, err = Read(strings.NewReader(strings.Repeat(" ", MaxBytes+1)), Options{})
	assert.ErrorContains(t, err, "longer than 4194304 bytes")
}

// Models of states alone are valid, too.
func TestOnlyStates(t *testing.T) {
	m, err := Read(strings.NewReader(codestral), Options{})
	require.NoError(t, err)
	assert.Equal(t, "state 64 138149888", drawn(t, m))
	require.NoError(t, windows.DefaultConfig().Validate(m.Model))
	_, err = Read(strings.NewReader(with(`"unheard_of":1`)), Options{})
	assert.ErrorContains(t, err, "unheard_of")
	_, err = Read(strings.NewReader(with(`"rope_theta":1`)), Options{Strict: true})
	assert.EqualError(t, err, `model_type "wonder" is not known`)
	m, err = Read(strings.NewReader(with(`"rope_theta":1`)), Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{`model_type "wonder" is not known: read as plain attention`}, m.Notes)
}

// What is off does not count, and an unknown type may say by layer_types what its
// layers are.
func TestUnknownTypes(t *testing.T) {
	for keys, want := range map[string]string{
		`"sliding_window":null,"use_sliding_window":false`: "wfullh8 2 8192",
		`"sliding_window":4096,"use_sliding_window":false`: "wfullh8 2 8192",
		`"kv_lora_rank":null,"attn_layer_offset":0,"note":"Infinity \" NaN","id2label":[NaN,1],
		"rope_theta":-Infinity`: "wfullh8 2 8192",
		`"layer_types":["sliding_attention","full_attention"],
		"sliding_window":128`: "w128h8 1 4096, wfullh8 1 4096",
		`"layer_types":["chunked_attention","full_attention"],
		"attention_chunk_size":128`: "c128h8 1 4096, wfullh8 1 4096",
	} {
		m, err := Read(strings.NewReader(with(keys)), Options{})
		require.NoError(t, err, keys)
		assert.Equal(t, want, drawn(t, m), keys)
		assert.Equal(t, "wonder", m.Type)
	}
}

func TestNotes(t *testing.T) {
	m, err := Read(
		strings.NewReader(`{"model_type":"gpt2","n_embd":64,"n_head":2,"n_layer":1,"n_positions":64}`),
		Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{"the file names no dtype: float32 is assumed, as transformers does"},
		m.Notes)
	assert.Equal(t, windows.Float32, m.DType)
}

// TestTensorParallel: heads and states are divided, few heads are repeated, a
// latent vector is whole on each device.
func TestTensorParallel(t *testing.T) {
	want := map[string]map[int]string{
		"Llama-3.1-8B":       {2: "wfullh4 32 65536", 8: "wfullh1 32 16384", 16: "wfullh1 32 16384"},
		"DeepSeek-V3":        {8: "wfullh1 61 70272"},
		"Bamba-9B":           {4: "wfullh2 3 3072, state 29 15605248"},
		"Qwen3-Next-80B-A3B": {2: "wfullh1 12 12288, state 36 19759104"},
		"whisper-large-v3":   {4: "wfullh5 32 40960, cross_h5 32 40960"},
	}
	for _, tc := range published {
		for tp, pools := range want[tc.name] {
			m, err := Read(strings.NewReader(tc.json), Options{TensorParallel: tp})
			require.NoError(t, err, tc.name)
			assert.Equal(t, pools, drawn(t, m), "%s on %d devices", tc.name, tp)
		}
	}
	_, err := Read(strings.NewReader(llama(2, 4096, 32)), Options{TensorParallel: 3})
	assert.EqualError(t, err, "8 KV heads cannot be divided between 3 devices")
	_, err = Read(strings.NewReader(llama(2, 4096, 40)), Options{TensorParallel: 16})
	assert.ErrorContains(t, err, "40 query heads cannot be divided between 16 devices")
	_, err = Read(strings.NewReader(llama(2, 4096, 32)), Options{TensorParallel: -1})
	assert.ErrorContains(t, err, "tensor parallelism over -1 devices")
}

// The host's choices win over the file's.
func TestOptions(t *testing.T) {
	for _, tc := range published {
		if tc.name != "Qwen3-Next-80B-A3B" {
			continue
		}
		m, err := Read(strings.NewReader(tc.json), Options{StateDType: "float32", MaxSeqLen: 5000})
		require.NoError(t, err)
		assert.Equal(t, "wfullh2 12 24576, state 36 77266944", drawn(t, m))
		assert.Equal(t, 5000, m.MaxSeqLen)
		_, err = Read(strings.NewReader(tc.json), Options{StateDType: "int3"})
		assert.EqualError(t, err,
			`the element type "int3" of states is not one of bfloat16, float16, float32`)
	}
}

func TestOpen(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "config.json")
	require.NoError(t, os.WriteFile(file, []byte(llama(2, 4096, 32)), 0o600))
	for _, path := range []string{folder, file} {
		m, err := Open(path, Options{})
		require.NoError(t, err)
		assert.Equal(t, "wfullh8 2 8192", drawn(t, m))
	}
	_, err := Open(filepath.Join(folder, "nothing"), Options{})
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// A host that has windows of its own keeps them.
func TestConfigure(t *testing.T) {
	m, err := Read(strings.NewReader(mistral("4096")), Options{})
	require.NoError(t, err)
	c := windows.DefaultConfig()
	assert.Equal(t, []int{4096}, m.Configure(c).MaxAttentionWindow)
	c.MaxAttentionWindow = []int{64}
	assert.Equal(t, []int{64}, m.Configure(c).MaxAttentionWindow)
}

// FuzzRead: no text makes the reader panic, and what it reads is a valid model.
func FuzzRead(f *testing.F) {
	for _, tc := range published {
		f.Add([]byte(tc.json))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Read(strings.NewReader(string(text)), Options{})
		var refusal *messages.Refusal
		if err != nil {
			if !errors.As(err, &refusal) {
				t.Fatalf("%v is no refusal", err)
			}
			return
		}
		if err := m.valid(); err != nil {
			t.Fatal(err)
		}
	})
}
