package model

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/weights"
	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// ggufTensor is a tensor of a file that a test writes.
type ggufTensor struct {
	name  string
	kind  uint32
	shape []int // the last one is contiguous
	bytes []byte
}

// The numbers of types in GGUF files.
const (
	ggufF32  = 0
	ggufQ4_1 = 3
	ggufQ8_0 = 8
)

// A llama of two layers, as small as groups of 32 allow.
const (
	tinyHidden, tinyInner, tinyVocab, tinyHeads, tinyKVHeads, tinyLayers = 64, 96, 64, 4, 2, 2
	tinyHeadDim                                                          = tinyHidden / tinyHeads
)

// tinyLlama are the tensors of a random llama: matrices of a type, and a head of its
// own of 8 bits.
func tinyLlama(kind uint32) []ggufTensor {
	rng := rand.New(rand.NewPCG(9, 10))
	out := []ggufTensor{
		randomTensor(rng, "token_embd.weight", ggufQ8_0, tinyVocab, tinyHidden),
		randomTensor(rng, "output_norm.weight", ggufF32, tinyHidden),
		randomTensor(rng, "output.weight", ggufQ8_0, tinyVocab, tinyHidden),
	}
	for i := range tinyLayers {
		layer := "blk." + string(rune('0'+i)) + "."
		kv := tinyKVHeads * tinyHeadDim
		out = append(out,
			randomTensor(rng, layer+"attn_norm.weight", ggufF32, tinyHidden),
			randomTensor(rng, layer+"ffn_norm.weight", ggufF32, tinyHidden),
			randomTensor(rng, layer+"attn_q.weight", kind, tinyHidden, tinyHidden),
			randomTensor(rng, layer+"attn_k.weight", kind, kv, tinyHidden),
			randomTensor(rng, layer+"attn_v.weight", kind, kv, tinyHidden),
			randomTensor(rng, layer+"attn_output.weight", kind, tinyHidden, tinyHidden),
			randomTensor(rng, layer+"ffn_gate.weight", kind, tinyInner, tinyHidden),
			randomTensor(rng, layer+"ffn_up.weight", kind, tinyInner, tinyHidden),
			randomTensor(rng, layer+"ffn_down.weight", kind, tinyHidden, tinyInner),
		)
	}
	return out
}

// randomTensor makes numbers from −0.5 to 0.5; those of norms are around 1.
func randomTensor(rng *rand.Rand, name string, kind uint32, shape ...int) ggufTensor {
	n, t := 1, ggufTensor{name: name, kind: kind, shape: shape}
	for _, d := range shape {
		n *= d
	}
	scale := func(x float64) {
		t.bytes = binary.LittleEndian.AppendUint16(t.bytes,
			attention.ToFloat16(float32(x*(0.5+rng.Float64()))))
	}
	random := func(n int) {
		for range n {
			t.bytes = append(t.bytes, byte(rng.Uint32()))
		}
	}
	const group = 32
	for i := 0; i < n; i += group {
		switch kind {
		case ggufF32:
			for range group {
				t.bytes = binary.LittleEndian.AppendUint32(t.bytes,
					math.Float32bits(float32(len(shape)%2)+float32(rng.Float64())-0.5))
			}
		case ggufQ4_1:
			scale(0.06)
			scale(-0.5)
			random(16)
		case ggufQ8_0:
			scale(0.004)
			random(group)
		}
	}
	return t
}

// loadGGUF writes a file of a llama and loads it.
func loadGGUF(t *testing.T, tensors []ggufTensor) (*Model, *Source, error) {
	t.Helper()
	var file bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			if s, ok := v.(string); ok {
				require.NoError(t, binary.Write(&file, binary.LittleEndian, uint64(len(s))))
				file.WriteString(s)
				continue
			}
			require.NoError(t, binary.Write(&file, binary.LittleEndian, v))
		}
	}
	numbers := []struct {
		key   string
		value uint32
	}{
		{"block_count", tinyLayers}, {"context_length", benchLen}, {"embedding_length", tinyHidden},
		{"feed_forward_length", tinyInner},
		{"attention.head_count", tinyHeads}, {"attention.head_count_kv", tinyKVHeads},
	}
	put([]byte("GGUF"), uint32(3), uint64(len(tensors)), uint64(len(numbers)+2))
	put("general.architecture", uint32(8), "llama", "llama.attention.layer_norm_rms_epsilon",
		uint32(6), float32(1e-5))
	for _, n := range numbers {
		put("llama."+n.key, uint32(4), n.value)
	}
	offset := 0
	for _, x := range tensors {
		put(x.name, uint32(len(x.shape)))
		for i := range x.shape {
			put(uint64(x.shape[len(x.shape)-1-i]))
		}
		put(x.kind, uint64(offset))
		offset += (len(x.bytes) + 31) / 32 * 32
	}
	for _, x := range tensors {
		file.Write(make([]byte, -file.Len()&31))
		file.Write(x.bytes)
	}
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, os.WriteFile(path, file.Bytes(), 0o600))
	return Load(path)
}

// text is a prompt of random tokens.
func text(n int) []messages.Token {
	out := make([]messages.Token, n)
	for i := range out {
		out[i] = messages.Token(i * 37 % tinyVocab)
	}
	return out
}

// A model of quantized weights has one result for every chunk.
func TestQuantizedModel(t *testing.T) {
	m, _, err := loadGGUF(t, tinyLlama(ggufQ4_1))
	require.NoError(t, err)
	want := flat(newBench(t, m, windows.Float32).feed(t, text(40), nil, 0))
	for _, step := range []int{1, 2, 3, 7} {
		b := newBench(t, m, windows.Float32)
		got := append(b.feed(t, text(40)[:24], nil, 4*step), b.feed(t, text(40)[24:], nil, step)...)
		require.Equal(t, want, flat(got), "chunks of %d, steps of %d", 4*step, step)
	}
}

// Frequencies may be divided by a tensor's numbers, as in files of Llama 3.1, whose
// converter writes what rope_type llama3 says.
func TestRoPEFactorsOfGGUF(t *testing.T) {
	inverse := attention.Inverses(10000, tinyHeadDim)
	scaled := attention.Llama3Scaling{Factor: 8, LowFreq: 1, HighFreq: 4,
		OriginalLen: 64}.Scale(inverse)
	factors := ggufTensor{name: "rope_freqs.weight", kind: ggufF32, shape: []int{len(inverse)}}
	for i := range inverse {
		factors.bytes = binary.LittleEndian.AppendUint32(factors.bytes,
			math.Float32bits(float32(inverse[i]/scaled[i])))
	}
	with, _, err := loadGGUF(t, append(tinyLlama(ggufF32), factors))
	require.NoError(t, err)
	got := flat(newBench(t, with, windows.Float32).feed(t, text(60), nil, 0))
	without, _, err := loadGGUF(t, tinyLlama(ggufF32))
	require.NoError(t, err)
	assert.Greater(t, distance(flat(newBench(t, without, windows.Float32).feed(t, text(60), nil, 0)),
		got), 0.1)
	for i := range without.blocks {
		without.blocks[i].mixer.(*selfAttention).layer.RoPE = spanRoPE(attention.GPTJ, scaled, 1,
			benchLen)
	}
	assert.LessOrEqual(t,
		distance(flat(newBench(t, without, windows.Float32).feed(t, text(60), nil, 0)), got), 1e-3)

	for name, bad := range map[string]ggufTensor{
		"shape": {name: "rope_freqs.weight", kind: ggufF32, shape: []int{2}, bytes: factors.bytes[:8]},
		"zero": {name: "rope_freqs.weight", kind: ggufF32, shape: factors.shape,
			bytes: make([]byte, len(factors.bytes))},
	} {
		_, _, err := loadGGUF(t, append(tinyLlama(ggufF32), bad))
		require.ErrorContains(t, err, "rope_freqs", name)
	}
	_, err = fromGGUF(&weights.GGUF{
		Meta:    map[string]any{"general.architecture": "qwen3"},
		Tensors: weights.Set{"rope_freqs.weight": &weights.Tensor{Name: "rope_freqs.weight"}},
	})
	require.ErrorContains(t, err, "rope_freqs.weight")
}
