package attention_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/windows"
)

func TestMetadataIsValidated(t *testing.T) {
	one := func(contexts int, s ...attention.Sequence) attention.Metadata {
		return attention.Metadata{NumContexts: contexts, Sequences: s, TokensPerBlock: 4}
	}
	for _, c := range []struct {
		m    attention.Metadata
		want string
	}{
		{one(2, attention.Sequence{Prompt: 4, New: 4}), "2 contexts among 1 sequences"},
		{one(1, attention.Sequence{Prompt: 4, New: 0}),
			"sequence 0: 0 new, 0 cached tokens, a prompt of 4, 0 beams, 0 encoder tokens"},
		{one(2, attention.Sequence{Prompt: 4, Cached: 4, New: 1}, attention.Sequence{Prompt: 4, New: 4}),
			"sequence 0: a context of tokens 4 to 5 leaves the prompt of 4: " +
				"generations come behind the contexts"},
		{one(0, attention.Sequence{Prompt: 4, New: 4}),
			"sequence 0: a generation with 0 tokens cached of a prompt of 4: contexts come first"},
		{one(1, attention.Sequence{Prompt: 9, New: 6}),
			"sequence 0: a chunk that ends at token 6 of a prompt of 9, not at a block of 4"},
		{one(1, attention.Sequence{Prompt: 4, New: 4, Beams: 2}),
			"sequence 0: a context with 2 beams: it is computed once"},
		{attention.Metadata{Sequences: []attention.Sequence{{Prompt: 1, Cached: 1, New: 3}}, PaddedTo: 2},
			"sequence 0: 3 new tokens of 1 beams do not fit into 2 padded rows"},
	} {
		var p attention.Plan
		assert.EqualError(t, p.Prepare(c.m), c.want)
	}
	var p attention.Plan
	require.NoError(t,
		p.Prepare(one(1, attention.Sequence{Prompt: 9, New: 8},
			attention.Sequence{Prompt: 2, Cached: 3, New: 1, Beams: 3})))
	assert.Equal(t, 11, p.Rows())
	assert.Equal(t, 4, p.Streams())
}

func TestLayersAreValidated(t *testing.T) {
	for _, l := range []attention.Layer{
		{Heads: 3, KVHeads: 2, HeadDim: 8},
		{Heads: 2, KVHeads: 2, HeadDim: 0},
		{Heads: 2, KVHeads: 2, HeadDim: 8, Sinks: 2},
		{Heads: 2, KVHeads: 2, HeadDim: 8, Window: 2, Mask: attention.Full},
		{Heads: 2, KVHeads: 2, HeadDim: 8, CachePositions: true},
		{Heads: 2, KVHeads: 2, HeadDim: 8, SinkLogits: make([]float32, 3)},
		{Heads: 2, KVHeads: 2, HeadDim: 8, QKVBias: make([]float32, 3)},
		{Heads: 2, KVHeads: 2, HeadDim: 8, RoPE: attention.NewRoPE(attention.GPTJ,
			attention.Inverses(1e4, 16), 1, 0)},
	} {
		assert.Error(t, l.Validate(), "%+v", l)
	}
}

// Rows of a step have the bits that they have alone, whoever is beside them and
// however many workers there are.
func TestBatchesChangeNoBit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	l := attention.Layer{Heads: 6, KVHeads: 2, HeadDim: 20,
		RoPE: attention.NewRoPE(attention.GPTNeoX, attention.Inverses(1e4, 20), 1, 64)}
	l.QKVBias = random(rng, 10*20)
	const tokens, sequences = 37, 5
	width := 10 * 20
	qkv := make([][]float32, sequences)
	alone := make([][]float32, sequences)
	run := func(workers int, m attention.Metadata, c attention.Cache, rows []float32) []float32 {
		w := attention.NewWorkers(workers)
		defer w.Close()
		var p attention.Plan
		require.NoError(t, p.Prepare(m))
		out := make([]float32, p.Rows()*6*20)
		require.NoError(t, attention.NewKernel(w).Forward(&l, &p, c, attention.Packed(clone(rows), &l),
			out))
		return out
	}
	for i := range qkv {
		qkv[i] = random(rng, tokens*width)
		alone[i] = run(1,
			attention.Metadata{NumContexts: 1,
				Sequences: []attention.Sequence{{Prompt: tokens, New: tokens}}},
			paged(l, 8, tokens, windows.BFloat16), qkv[i])
	}
	cache := paged(l, 8, tokens, windows.BFloat16)
	for range sequences - 1 {
		cache.Blocks = append(cache.Blocks, paged(l, 8, tokens, windows.BFloat16).Blocks[0])
	}
	done := make([]int, sequences)
	for step := 0; ; step++ {
		var m attention.Metadata
		var rows, want []float32
		var streams [][][]byte
		for i := range done {
			n := min(1+rng.IntN(9), tokens-done[i])
			if n == 0 || rng.IntN(3) == 0 {
				continue
			}
			m.Sequences = append(m.Sequences, attention.Sequence{Prompt: tokens, Cached: done[i], New: n})
			rows = append(rows, qkv[i][done[i]*width:(done[i]+n)*width]...)
			want = append(want, alone[i][done[i]*120:(done[i]+n)*120]...)
			streams = append(streams, cache.Blocks[i])
			done[i] += n
		}
		if m.NumContexts = len(m.Sequences); m.NumContexts == 0 {
			if step > 1000 || min(done[0], done[1], done[2], done[3], done[4]) == tokens {
				break
			}
			continue
		}
		c := *cache
		c.Blocks = streams
		same(t, want, run(1+step%3, m, &c, rows), "in a batch")
	}
}

func random(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// A step allocates nothing once the buffers are there.
func TestStepsAllocateNothing(t *testing.T) {
	l := attention.Layer{Heads: 4, KVHeads: 2, HeadDim: 16, Window: 16, Sinks: 2}
	w := attention.NewWorkers(2)
	defer w.Close()
	k := attention.NewKernel(w)
	cache := paged(l, 4, 64, windows.Int8)
	rng := rand.New(rand.NewPCG(3, 4))
	attention.Store(cache, &l, 0, 0, 63, attention.Input{K: random(rng, 64*32), V: random(rng, 64*32),
		KVStride: 32})
	qkv, out := random(rng, 8*16), make([]float32, 64)
	m := attention.Metadata{Sequences: []attention.Sequence{{Prompt: 63, Cached: 63, New: 1}}}
	var p attention.Plan
	step := func() {
		if p.Prepare(m) != nil || k.Forward(&l, &p, cache, attention.Packed(qkv, &l), out) != nil {
			panic("a step failed")
		}
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(100, step))
}

// A part that panics makes Run panic, and the workers go on.
func TestWorkersPassPanicsOn(t *testing.T) {
	w := attention.NewWorkers(3)
	defer w.Close()
	assert.PanicsWithValue(t, "part 5", func() { w.Run(failing(5), 9) })
	assert.NotPanics(t, func() { w.Run(failing(-1), 9) })
}

type failing int

func (f failing) Do(_, part int) {
	if part == int(f) {
		panic("part 5")
	}
}
