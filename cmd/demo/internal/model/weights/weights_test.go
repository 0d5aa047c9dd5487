package weights

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu/attention"
)

// halfOf writes a float16.
func halfOf(x float32) []byte {
	return binary.LittleEndian.AppendUint16(nil, attention.ToFloat16(x))
}

// elements give the number at an index of a block, as the layouts are
// described: another way to read them than the one under test.
var elements = map[Type]func(b []byte, i int) float64{
	Q8_0: func(b []byte, i int) float64 { return float64(half(b)) * float64(int8(b[2+i])) },
	Q4_0: func(b []byte, i int) float64 { return float64(half(b)) * float64(nibble(b[2:], i)-8) },
	Q4_1: func(b []byte, i int) float64 {
		return float64(half(b))*float64(nibble(b[4:], i)) + float64(half(b[2:]))
	},
	Q4_K: func(b []byte, i int) float64 {
		group, s := i/32, b[4:16]
		var scale, minimum byte
		if group < 4 {
			scale, minimum = s[group]%64, s[group+4]%64
		} else {
			scale, minimum = s[group+4]%16+16*(s[group-4]/64), s[group+4]/16+16*(s[group]/64)
		}
		q := b[16+32*(group/2)+i%32]
		if group%2 == 1 {
			q /= 16
		}
		return float64(half(b))*float64(scale)*float64(q%16) - float64(half(b[2:]))*float64(minimum)
	},
	Q6_K: func(b []byte, i int) float64 {
		part, in := i/128, i%128
		low := b[64*part+in%64]
		if in >= 64 {
			low /= 16
		}
		high := b[128+32*part+in%32] >> (2 * (in / 32))
		return float64(half(b[208:])) * float64(int8(b[192+i/16])) * float64(
			int(low%16)+16*int(high%4)-32)
	},
}

// nibble is number i of 32, the second half in the upper nibbles.
func nibble(b []byte, i int) int {
	if i < 16 {
		return int(b[i] & 15)
	}
	return int(b[i-16] >> 4)
}

func TestQuantizedBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for kind, element := range elements {
		f := formats[kind]
		for range 20 {
			block := make([]byte, f.bytes)
			for i := range block {
				block[i] = byte(rng.Uint32())
			}
			// Scales are float16 numbers of a sensible size.
			at := map[Type][]int{Q6_K: {208}, Q4_1: {0, 2}, Q4_K: {0, 2}, Q8_0: {0}, Q4_0: {0}}[kind]
			for _, offset := range at {
				copy(block[offset:], halfOf(float32(rng.NormFloat64())))
			}
			got := make([]float32, f.numbers)
			f.read(got, block)
			for i := range got {
				want := element(block, i)
				require.InDelta(t, want, float64(got[i]), 1e-5*(1+math.Abs(want)), "%s, number %d", f.name, i)
			}
		}
	}
}

// writer makes GGUF files.
type writer struct{ bytes.Buffer }

func (w *writer) put(values ...any) *writer {
	for _, v := range values {
		if s, ok := v.(string); ok {
			w.put(uint64(len(s)))
			w.WriteString(s)
			continue
		}
		if err := binary.Write(w, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return w
}

// sample is a file with values of all kinds and two tensors.
func sample() []byte {
	w := &writer{}
	w.put(uint32(0x46554747), uint32(3), uint64(2), uint64(6))
	w.put("general.architecture", uint32(8), "llama", "a.number", uint32(4), uint32(7), "a.small",
		uint32(1), int8(-3), "a.real", uint32(6), float32(0.5), "a.truth", uint32(7), uint8(1))
	w.put("a.list", uint32(9), uint32(8), uint64(2), "x", "yz")
	w.put("one", uint32(2), uint64(4), uint64(2), uint32(0), uint64(0), "two", uint32(1), uint64(32),
		uint32(8), uint64(32))
	for w.Len()%32 != 0 {
		w.WriteByte(0)
	}
	for i := range 8 {
		w.put(float32(i))
	}
	w.Write(halfOf(0.5))
	for i := range 32 {
		w.put(int8(i - 16))
	}
	return w.Bytes()
}

func TestGGUF(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.gguf")
	require.NoError(t, os.WriteFile(path, sample(), 0o600))
	g, err := ReadGGUF(path)
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"general.architecture": "llama", "a.number": uint64(7),
		"a.small": int64(-3), "a.real": 0.5, "a.truth": true, "a.list": []any{"x", "yz"}}, g.Meta)
	assert.Len(t, g.Tensors, 2)
	assert.Equal(t, []int{2, 4}, g.Tensors["one"].Shape, "the contiguous dimension is last")
	assert.Equal(t, []float32{0, 1, 2, 3, 4, 5, 6, 7}, g.Tensors["one"].Numbers())
	row := make([]float32, 4)
	g.Tensors["one"].Row(row, 1)
	assert.Equal(t, []float32{4, 5, 6, 7}, row)
	assert.Equal(t, float32(-8), g.Tensors["two"].Numbers()[0])
	assert.Equal(t, Q8_0, g.Tensors["two"].Type)
	_, err = ReadGGUF(filepath.Join(t.TempDir(), "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// A file that ends anywhere, or has any byte changed, is read or refused; it
// never panics and takes no more memory than it has.
func TestBrokenFilesAreRefused(t *testing.T) {
	whole := sample()
	for n := range whole {
		_, err := parseGGUF(whole[:n])
		require.Error(t, err, "%d bytes", n)
	}
	for i := range whole {
		for _, b := range []byte{0, 1, 0x7f, 0xff} {
			broken := bytes.Clone(whole)
			broken[i] = b
			_, _ = parseGGUF(broken)
		}
	}
	unknown := bytes.Replace(whole, []byte("one\x02\x00\x00\x00"), []byte("one\x09\x00\x00\x00"), 1)
	_, err := parseGGUF(unknown)
	assert.ErrorContains(t, err, "tensor one: 9 dimensions")
}

func FuzzGGUF(f *testing.F) {
	f.Add(sample())
	f.Fuzz(func(_ *testing.T, file []byte) {
		if g, err := parseGGUF(file); err == nil {
			for _, tensor := range g.Tensors {
				tensor.Numbers()
			}
		}
	})
}

func safetensorsFile(t testing.TB, header map[string]any, data []byte) []byte {
	t.Helper()
	text, err := json.Marshal(header)
	require.NoError(t, err)
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), data...)
}

func FuzzSafetensors(f *testing.F) {
	f.Add(safetensorsFile(f, map[string]any{
		"a": map[string]any{"dtype": "F32", "shape": []int{1}, "data_offsets": []int{0, 4}},
		"b": map[string]any{"dtype": "BF16", "shape": []int{2, 1},
			"data_offsets": []int{0, 4}},
		"__metadata__": map[string]any{},
	}, make([]byte, 8)))
	f.Fuzz(func(_ *testing.T, file []byte) {
		if set, err := parseSafetensors(file); err == nil {
			for _, tensor := range set {
				tensor.Numbers()
			}
		}
	})
}

func TestSafetensors(t *testing.T) {
	of := func(dtype string, shape []int, from, to int) map[string]any {
		return map[string]any{"dtype": dtype, "shape": shape, "data_offsets": []int{from, to}}
	}
	data := append(binary.LittleEndian.AppendUint32(nil, math.Float32bits(1.5)), 0x80, 0x3f, 0x00,
		0x3c)
	set, err := parseSafetensors(safetensorsFile(t, map[string]any{
		"a": of("F32", []int{1}, 0, 4), "b": of("BF16", []int{1, 1}, 4, 6),
		"c": of("F16", []int{1}, 6, 8), "__metadata__": map[string]string{"format": "pt"},
	}, data))
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c"}, slices.Sorted(maps.Keys(set)))
	assert.Equal(t, []float32{1.5}, set["a"].Numbers())
	assert.Equal(t, []float32{1}, set["b"].Numbers())
	assert.Equal(t, []float32{1}, set["c"].Numbers())
	for want, entry := range map[string]map[string]any{
		`dtype "I64"`:             of("I64", []int{1}, 0, 8),
		"the file ends too early": of("F32", []int{4}, 0, 16),
		"4 bytes are behind":      of("F32", []int{1}, 0, 4),
		"[-4 0] are no range":     of("F32", []int{1}, -4, 0),
		"has not a dtype":         {"dtype": 5},
		"bytes for shape [2]":     of("F32", []int{2}, 0, 4),
		"shape [-1]":              of("F32", []int{-1}, 0, 4),
		"shape [65536 65536]":     of("F32", []int{65536, 65536}, 0, 4),
	} {
		_, err := parseSafetensors(safetensorsFile(t, map[string]any{"a": entry}, data))
		assert.ErrorContains(t, err, want)
	}
	for n := range 20 {
		_, err := parseSafetensors(make([]byte, n))
		assert.Error(t, err)
	}
}
