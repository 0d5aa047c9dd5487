package attention_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/windows"
)

// Pages of 8 bits hold the fixture's bytes, read back as its numbers, and give
// its attention; a token's own key is rounded in the step that writes it.
func TestEightBits(t *testing.T) {
	all := fixtures(t)
	for name, dtype := range map[string]windows.DType{"int8_cache": windows.Int8,
		"fp8_cache": windows.FP8} {
		f := all[name]
		l := layerOf(f)
		scales := [2]float32{f.Params.KVScale, f.Params.KVScale}
		e := attention.Element{Type: dtype, Scale: f.Params.KVScale}
		for part, bytes := range map[string]string{"k": "k_bytes", "v": "v_bytes"} {
			got := make([]byte, len(f.arrays[part].x))
			e.Encode(got, f.arrays[part].x)
			assert.Equal(t, f.arrays[bytes].bytes, got, "%s %s", name, part)
			back := make([]float32, len(got))
			e.Decode(back, got)
			same(t, f.arrays[part+"_back"].x, back, name)
		}
		r := newRig(t, l, f.arrays["q"].x, f.arrays["k"].x, f.arrays["v"].x)
		var first []float32
		for _, step := range []int{0, 4, 1} {
			cache := paged(l, 4, 20, dtype)
			cache.Scales = scales
			got := r.run(t, cache, step)
			near(t, f.arrays["out"].x, got, 2e-6, name)
			if first == nil {
				first = got
			}
			same(t, first, got, name)
		}
	}
}

// Pages of 16 bits give the attention of what was rounded.
func TestSixteenBits(t *testing.T) {
	f := fixtures(t)["gqa"]
	l := layerOf(f)
	for _, dtype := range []windows.DType{windows.Float16, windows.BFloat16} {
		e := attention.Element{Type: dtype}
		rounded := func(x []float32) []float32 {
			b, y := make([]byte, 2*len(x)), make([]float32, len(x))
			e.Encode(b, x)
			e.Decode(y, b)
			return y
		}
		k, v := clone(f.arrays["k"].x), clone(f.arrays["v"].x)
		for i := range k { // the fixture's inputs are exact in bfloat16
			k[i], v[i] = k[i]*1.2345678, v[i]*1.2345678
		}
		exact := newRig(t, l, f.arrays["q"].x, rounded(k), rounded(v))
		want := exact.run(t, paged(l, 4, 20, windows.Float32), 0)
		r := newRig(t, l, f.arrays["q"].x, k, v)
		for _, step := range []int{0, 4, 1} {
			same(t, want, r.run(t, paged(l, 4, 20, dtype), step), string(dtype))
		}
		plain := newRig(t, l, f.arrays["q"].x, k, v)
		assert.NotZero(t, distance(want, plain.run(t, paged(l, 4, 20, windows.Float32), 0)),
			"rounding shows")
	}
}

func TestRounding(t *testing.T) {
	all := fixtures(t)
	half := all["half_rounding"]
	for i, x := range half.arrays["x"].x {
		assert.Equal(t, uint16(half.arrays["float16"].x[i]), attention.ToFloat16(x), "float16 of %g", x)
		assert.Equal(t, uint16(half.arrays["bfloat16"].x[i]), attention.ToBFloat16(x),
			"bfloat16 of %g", x)
	}
	for h := range 1 << 16 {
		if x := attention.FromFloat16(uint16(h)); x == x {
			require.Equal(t, uint16(h), attention.ToFloat16(x))
		}
		if x := attention.FromBFloat16(uint16(h)); x == x {
			require.Equal(t, uint16(h), attention.ToBFloat16(x))
		}
	}
	values := all["fp8_values"].arrays["values"].x
	for b, want := range values {
		got := attention.FromFP8(byte(b))
		if want != want {
			assert.True(t, math.IsNaN(float64(got)), "byte %d", b)
			continue
		}
		assert.Equal(t, math.Float32bits(want), math.Float32bits(got), "byte %d", b)
		assert.Equal(t, byte(b), attention.ToFP8(got))
	}
	rounding := all["fp8_rounding"]
	for i, x := range rounding.arrays["x"].x {
		assert.Equal(t, rounding.arrays["bytes"].bytes[i], attention.ToFP8(x), "fp8 of %g", x)
	}
	assert.Equal(t, byte(0x7f), attention.ToFP8(float32(math.NaN()))&0x7f)
}

// Tables that follow their parents lead to the bytes that cache_indirection
// leads to.
func TestBeams(t *testing.T) {
	f := fixtures(t)["beams"]
	const beams, length = 3, 14
	l := attention.Layer{Heads: 4, KVHeads: 2, HeadDim: 8, Norm: f.Params.Scale}
	indirect := &attention.Indirect{Cache: attention.NewContiguous(beams, 2, length+1, 8,
		windows.Float32)}
	tables := paged(l, 4, length+1, windows.Float32)
	for b := range beams {
		row := make([]int32, length)
		for p, x := range f.arrays["cache_indirection"].x[b*length : (b+1)*length] {
			row[p] = int32(x)
		}
		indirect.Parents = append(indirect.Parents, row)
		in := attention.Input{K: f.arrays["k"].x[b*length*16:], V: f.arrays["v"].x[b*length*16:],
			KVStride: 16}
		attention.Store(indirect.Cache, &l, b, 0, length, in)
		if b > 0 {
			tables.Blocks = append(tables.Blocks, paged(l, 4, length+1, windows.Float32).Blocks[0])
		}
	}
	// A table of its own for each beam, as copying on write leaves it.
	scratch := make([]float32, 8)
	for b := range beams {
		for p := range length {
			for g := range 2 {
				for _, part := range []attention.Part{attention.Keys, attention.Values} {
					row, _ := indirect.Read(scratch, b, part, g, p, 1)
					tables.Write(b, part, g, p, row)
				}
			}
		}
	}
	// The query's own token is the last: its key is in both caches already.
	l.Mask = attention.Full
	m := attention.Metadata{Sequences: []attention.Sequence{{Prompt: 6, Cached: 13, New: 1,
		Beams: beams, Keys: length}}}
	r := newRig(t, l, f.arrays["q"].x, nil, nil)
	want := r.step(t, m, tables, r.q, nil, nil)
	near(t, f.arrays["out"].x, want, 2e-6, "tables")
	same(t, want, r.step(t, m, indirect, r.q, nil, nil), "cache_indirection")
}

// A rolling buffer gives the bits of pages that leave: slots are as the fixture
// has them.
func TestCyclic(t *testing.T) {
	all := fixtures(t)
	slots := all["cyclic_slots"]
	for token, want := range slots.arrays["slots"].x {
		assert.Equal(t, int(want), attention.CyclicSlot(token, slots.Params.N, slots.Params.S))
	}
	for _, name := range []string{"window", "window_sinks"} {
		f := all[name]
		l := layerOf(f)
		r := newRig(t, l, f.arrays["q"].x, f.arrays["k"].x, f.arrays["v"].x)
		want := r.run(t, paged(l, 4, 20, windows.Float32), 0)
		for _, step := range []int{1, 3, 4} {
			slots := l.Sinks + l.Window + step - 1 // what a step writes must not be what it reads
			cyclic := &attention.Cyclic{Contiguous: attention.NewContiguous(1, l.KVHeads, slots, l.HeadDim,
				windows.Float32), Sinks: l.Sinks}
			same(t, want, r.run(t, cyclic, step), name)
		}
	}
}

// StreamingLLM: keys lie unturned in the cache and are turned by their places
// among those that are seen.
func TestStreamingLLM(t *testing.T) {
	f := fixtures(t)["streaming_llm"]
	p := f.Params
	l := layerOf(f)
	l.Window, l.Sinks, l.CachePositions = p.N-p.S, p.S, true
	l.RoPE = attention.NewRoPE(attention.GPTNeoX, attention.Inverses(p.Base, l.HeadDim), 1, 64)
	r := newRig(t, l, f.arrays["q"].x, f.arrays["k"].x, f.arrays["v"].x)
	r.context = p.Context
	want := r.run(t, paged(l, 4, 20, windows.Float32), 0)
	near(t, f.arrays["out"].x, want, 2e-6, "pages")
	same(t, want, r.run(t, paged(l, 2, 20, windows.Float32), 2), "in chunks")
	cyclic := &attention.Cyclic{Contiguous: attention.NewContiguous(1, l.KVHeads, p.N, l.HeadDim,
		windows.Float32), Sinks: p.S}
	same(t, want, r.run(t, cyclic, 0), "in a rolling buffer")
	l.CachePositions = false
	turned := newRig(t, l, r.q, r.k, r.v)
	turned.context = p.Context
	assert.Greater(t, distance(want, turned.run(t, paged(l, 4, 20, windows.Float32), 0)), 1e-2,
		"positions of the text are others")
}
