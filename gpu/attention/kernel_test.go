package attention_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/windows"
)

// layerOf is the layer that a fixture describes.
func layerOf(f *fixture) attention.Layer {
	q, k := f.arrays["q"].shape, f.arrays["k"].shape
	p := f.Params
	l := attention.Layer{
		Heads: q[1], KVHeads: k[1], HeadDim: q[2], Norm: p.Scale, Cap: float32(p.Softcap),
		Window: p.Window, Sinks: p.SinkTokens, SinkLogits: f.arrays["sinks"].x,
	}
	if p.QScaling != 0 {
		l.Norm, l.QScaling = 0, p.QScaling
	}
	switch {
	case p.Slopes != nil:
		l.Bias = attention.ALiBi{Slopes: attention.ALiBiSlopes(l.Heads)}
	case p.Buckets > 0:
		l.Bias = &attention.RelativeBias{Table: f.arrays["table"].x, Heads: l.Heads, Buckets: p.Buckets,
			MaxDistance: p.MaxDistance, Bidirectional: p.Bidirectional}
	case f.Name == "explicit_bias":
		l.Bias = &attention.DenseBias{Values: f.arrays["bias"].x, Queries: q[0], Keys: k[0]}
	}
	if f.Name == "full_mask" || p.Bidirectional {
		l.Mask = attention.Full
	}
	return l
}

// Each case has the fixture's numbers, and the same bits in whatever cache and
// steps it is computed.
func TestFixtures(t *testing.T) {
	all := fixtures(t)
	for _, name := range []string{
		"mha", "gqa", "mqa", "q_scaling", "softcap", "full_mask", "window", "window_sinks", "sink_logits",
		"sink_logits_window",
		"alibi", "relative_bias", "relative_bias_bidirectional", "explicit_bias",
	} {
		t.Run(name, func(t *testing.T) {
			f := all[name]
			l := layerOf(f)
			r := newRig(t, l, f.arrays["q"].x, f.arrays["k"].x, f.arrays["v"].x)
			tokens := f.arrays["q"].shape[0]
			want := r.run(t, attention.NewContiguous(1, l.KVHeads, tokens, l.HeadDim, windows.Float32), 0)
			near(t, f.arrays["out"].x, want, 2e-6, "in one go")
			steps := []int{0, 1, 3, 4, 7, 16}
			if l.Mask == attention.Full {
				steps = steps[:1] // no token may be missing
			}
			for _, tpb := range []int{2, 4, 8, 32} {
				for _, step := range steps {
					same(t, want, r.run(t, paged(l, tpb, tokens, windows.Float32), step), "over pages")
				}
			}
		})
	}
}

// A window or its absence is visible in the fixtures: the controls of the cases
// above.
func TestFixturesNoticeMistakes(t *testing.T) {
	all := fixtures(t)
	for name, spoil := range map[string]func(*attention.Layer){
		"window":        func(l *attention.Layer) { l.Window++ },
		"window_sinks":  func(l *attention.Layer) { l.Sinks-- },
		"sink_logits":   func(l *attention.Layer) { l.SinkLogits = nil },
		"softcap":       func(l *attention.Layer) { l.Cap *= 1.1 },
		"gqa":           func(l *attention.Layer) { l.QScaling, l.Norm = 1.1, 0 },
		"alibi":         func(l *attention.Layer) { l.Bias = nil },
		"relative_bias": func(l *attention.Layer) { l.Bias.(*attention.RelativeBias).MaxDistance += 20 },
	} {
		f := all[name]
		l := layerOf(f)
		spoil(&l)
		r := newRig(t, l, f.arrays["q"].x, f.arrays["k"].x, f.arrays["v"].x)
		got := r.run(t, paged(l, 4, 20, windows.Float32), 0)
		assert.Greater(t, distance(f.arrays["out"].x, got), 1e-3, name)
	}
}

// Pages that the window of a chunk's first query has passed are not read.
func TestWindowsReadNoPageThatHasLeft(t *testing.T) {
	f := fixtures(t)["window_sinks"]
	l := layerOf(f)
	r := newRig(t, l, f.arrays["q"].x, f.arrays["k"].x, f.arrays["v"].x)
	whole := paged(l, 2, 20, windows.Float32)
	want := r.run(t, whole, 0)
	// Tokens 12 to 19 see 8 and later, and the sinks 0 and 1.
	for b := 1; b < 4; b++ {
		whole.Blocks[0][b] = nil
	}
	qd, kd := l.Heads*l.HeadDim, l.KVHeads*l.HeadDim
	m := attention.Metadata{NumContexts: 1,
		Sequences: []attention.Sequence{{Prompt: 20, Cached: 12, New: 8}}}
	same(t, want[12*qd:], r.step(t, m, whole, r.q[12*qd:], r.k[12*kd:], r.v[12*kd:]),
		"without the pages before the window")
	whole.Blocks[0][4] = nil // tokens 8 and 9
	assert.PanicsWithValue(t, "attention: stream 0 has no page for block 4 of 2 tokens", func() {
		r.step(t, m, whole, r.q[12*qd:], r.k[12*kd:], r.v[12*kd:])
	})
}

// A step of two contexts and two generations, packed and padded.
func TestPackedStep(t *testing.T) {
	f := fixtures(t)["packed"]
	l := attention.Layer{Heads: 4, KVHeads: 2, HeadDim: 8, Norm: f.Params.Scale}
	width := (l.Heads + 2*l.KVHeads) * l.HeadDim
	m := attention.Metadata{NumContexts: f.Params.NumContexts, TokensPerBlock: 4}
	for i, n := range f.Params.New {
		s := attention.Sequence{Cached: f.Params.Cached[i], New: n, Prompt: f.Params.Cached[i] + n}
		if i >= m.NumContexts {
			s.Prompt = s.Cached
		}
		m.Sequences = append(m.Sequences, s)
	}
	cache := func() *attention.Paged { return packedCache(l, f) }
	packed := clone(f.arrays["qkv"].x)
	var plan attention.Plan
	require.NoError(t, plan.Prepare(m))
	require.Equal(t, 13, plan.Rows())
	workers := attention.NewWorkers(2)
	defer workers.Close()
	kernel := attention.NewKernel(workers)
	out := make([]float32, 13*l.Heads*l.HeadDim)
	require.NoError(t, kernel.Forward(&l, &plan, cache(), attention.Packed(packed, &l), out))
	near(t, f.arrays["out"].x, out, 2e-6, "packed")

	m.PaddedTo = 9
	require.NoError(t, plan.Prepare(m))
	require.Equal(t, 36, plan.Rows())
	padded, wide := make([]float32, 36*width), make([]float32, 36*l.Heads*l.HeadDim)
	for i := range padded {
		padded[i] = 1e30
	}
	at := 0
	for i, n := range f.Params.New {
		copy(padded[i*9*width:], f.arrays["qkv"].x[at*width:(at+n)*width])
		at += n
	}
	require.NoError(t, kernel.Forward(&l, &plan, cache(), attention.Packed(padded, &l), wide))
	at = 0
	for i, n := range f.Params.New {
		same(t, out[at*32:(at+n)*32], wide[i*9*32:(i*9+n)*32], "padded")
		at += n
	}
}

// packedCache holds what the packed fixture says is cached.
func packedCache(l attention.Layer, f *fixture) *attention.Paged {
	cache := paged(l, 4, 20, windows.Float32)
	for range 3 {
		cache.Blocks = append(cache.Blocks, paged(l, 4, 20, windows.Float32).Blocks[0])
	}
	at, row := 0, l.KVHeads*l.HeadDim
	for i, n := range f.Params.Cached {
		in := attention.Input{K: f.arrays["cached_k"].x[at*row:], V: f.arrays["cached_v"].x[at*row:],
			KVStride: row}
		attention.Store(cache, &l, i, 0, n, in)
		at += n
	}
	return cache
}

// The encoder's keys and values are written once and read by every step.
func TestCrossAttention(t *testing.T) {
	f := fixtures(t)["cross"]
	l := layerOf(f)
	l.Mask = attention.Full
	cache := paged(l, 4, 9, windows.Float32)
	attention.Store(cache, &l, 0, 0, 9, attention.Input{K: f.arrays["k"].x, V: f.arrays["v"].x,
		KVStride: 16})
	r := newRig(t, l, f.arrays["q"].x, nil, nil)
	m := attention.Metadata{NumContexts: 1,
		Sequences: []attention.Sequence{{Prompt: 5, New: 5, Keys: 9}}}
	want := r.step(t, m, cache, r.q, nil, nil)
	near(t, f.arrays["out"].x, want, 2e-6, "cross")
	for i := range 5 {
		m := attention.Metadata{Sequences: []attention.Sequence{{Prompt: 1, Cached: i + 1, New: 1,
			Keys: 9}}}
		same(t, want[i*32:(i+1)*32], r.step(t, m, cache, r.q[i*32:(i+1)*32], nil, nil), "one at a time")
	}
}

// Latent attention in its absorbed form, over pages with one row a token.
func TestLatent(t *testing.T) {
	f := fixtures(t)["mla"]
	const heads, rank, rope, nope, value = 4, 12, 4, 6, 5
	tokens := f.arrays["latent"].shape[0]
	l := attention.Layer{Heads: heads, KVHeads: 1, HeadDim: rank + rope, Norm: f.Params.Scale,
		ValueDim: rank}
	q := make([]float32, tokens*heads*(rank+rope))
	rows := make([]float32, 0, tokens*(rank+rope))
	for i := range tokens {
		rows = append(rows, f.arrays["latent"].x[i*rank:(i+1)*rank]...)
		rows = append(rows, f.arrays["k_rope"].x[i*rope:(i+1)*rope]...)
		for h := range heads {
			absorbed := q[(i*heads+h)*(rank+rope):][:rank+rope]
			for n := range nope {
				for r := range rank {
					absorbed[r] += f.arrays["q_nope"].x[(i*heads+h)*nope+n] * f.arrays["w_uk"].x[(h*nope+n)*rank+r]
				}
			}
			copy(absorbed[rank:], f.arrays["q_rope"].x[(i*heads+h)*rope:][:rope])
		}
	}
	workers := attention.NewWorkers(2)
	defer workers.Close()
	kernel := attention.NewKernel(workers)
	var first []float32
	for _, step := range []int{tokens, 4, 1} {
		cache := paged(l, 4, tokens, windows.Float32)
		cache.Layout.KVFactor = 1
		require.Equal(t, paged(l, 4, tokens, windows.Float32).Layout.PageBytes(),
			2*cache.Layout.PageBytes(), "half of a page with keys and values")
		var got []float32
		for at := 0; at < tokens; at += step {
			var plan attention.Plan
			require.NoError(t,
				plan.Prepare(
					attention.Metadata{NumContexts: 1,
						Sequences: []attention.Sequence{{Prompt: tokens, Cached: at, New: step}}}))
			out := make([]float32, step*heads*rank)
			in := attention.Input{Q: clone(q[at*heads*(rank+rope):]), K: clone(rows[at*(rank+rope):]),
				QStride: heads * (rank + rope), KVStride: rank + rope}
			require.NoError(t, kernel.Forward(&l, &plan, cache, in, out))
			got = append(got, out...)
		}
		near(t, f.arrays["latent_out"].x, got, 2e-6, "latent")
		if first == nil {
			first = got
		}
		same(t, first, got, "in steps")
	}
	near(t, f.arrays["out"].x, expandValues(first, f.arrays["w_uv"].x, tokens, heads, rank, value),
		2e-6, "values")
}

func expandValues(latent, w []float32, tokens, heads, rank, value int) []float32 {
	out := make([]float32, tokens*heads*value)
	for i := range tokens * heads {
		for v := range value {
			for r := range rank {
				out[i*value+v] += latent[i*rank+r] * w[((i%heads)*value+v)*rank+r]
			}
		}
	}
	return out
}
