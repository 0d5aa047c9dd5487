package windows

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/messages"
)

// attends is the definition, token by token: the token at position attends to
// the earlier token t.
func attends(p Pool, position, t int) bool {
	if t >= position || t < 0 {
		return false
	}
	switch {
	case p.Kind == KindState:
		return t == position-1
	case p.Chunk > 0:
		return t/p.Chunk == position/p.Chunk
	}
	return p.Full() || t > position-p.Window || t < p.Sink
}

func drawPool(t *rapid.T) Pool {
	p := Pool{TokensPerBlock: 1 << rapid.IntRange(1, 4).Draw(t, "log2 tpb")}
	switch rapid.SampledFrom([]string{"full", "window", "chunk", "state"}).Draw(t, "reach") {
	case "window":
		p.Window = rapid.IntRange(2, 40).Draw(t, "window")
		p.Sink = rapid.IntRange(0, 20).Draw(t, "sink")
	case "chunk":
		p.Chunk = rapid.IntRange(2, 40).Draw(t, "chunk")
	case "state":
		p.Kind = KindState
	}
	return p
}

// TestWindowArithmetic compares every formula with a walk over all tokens.
func TestWindowArithmetic(t *testing.T) {
	rapid.Check(t, checkWindowArithmetic)
}

func FuzzWindowArithmetic(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkWindowArithmetic)) }

func checkWindowArithmetic(t *rapid.T) {
	p := drawPool(t)
	position := rapid.IntRange(0, 130).Draw(t, "position")
	blocks := position/p.TokensPerBlock + 2
	for b := -1; b < blocks; b++ {
		want := false
		for o := range p.TokensPerBlock {
			want = want || attends(p, position, b*p.TokensPerBlock+o)
		}
		assert.Equal(t, want, p.Needs(b, position), "block %d", b)
	}
	// Sinks excepted, the token at position attends to [first, position).
	q, first := p, position
	q.Sink = 0
	for first > 0 && attends(q, position, first-1) {
		first--
	}
	assert.Equal(t, first/p.TokensPerBlock, p.FirstNeeded(position))
	assert.Equal(t, first, p.Reach().First(position))
	if p.Kind == KindState {
		assert.Equal(t, blocksOf(position, p.TokensPerBlock), p.FirstKept(position),
			"a sequence holds no block of a state pool")
	} else {
		assert.Equal(t, first/p.TokensPerBlock, p.FirstKept(position))
	}
}

// TestDroppedIsNeverNeeded: what FirstKept drops, no later position needs.
func TestDroppedIsNeverNeeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPool(t)
		if p.Kind == KindState {
			t.Skip("a sequence holds no block of a state pool")
		}
		computed := rapid.IntRange(0, 130).Draw(t, "computed")
		later := computed + rapid.IntRange(0, 60).Draw(t, "later")
		for b := p.SinkBlocks(); b < p.FirstKept(computed); b++ {
			assert.False(t, p.Needs(b, later), "block %d at %d", b, later)
		}
	})
}

// TestNeedCoversEveryPosition: no position of a sequence of the expected length
// attends to more blocks than Need says, its own block included, but for a sink's rounding.
func TestNeedCoversEveryPosition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPool(t)
		if p.Kind == KindState {
			t.Skip("the need of a state pool does not depend on the length")
		}
		length := rapid.IntRange(1, 150).Draw(t, "length")
		most := 0
		for position := range length {
			n := 1 // the block of the token itself
			for b := range position / p.TokensPerBlock {
				if p.Needs(b, position) {
					n++
				}
			}
			most = max(most, n)
		}
		// The rule adds window and sink before it rounds to blocks, so that a
		// partial sink block may be one more; without sinks it is exact.
		if p.Sink == 0 {
			assert.GreaterOrEqual(t, p.Need(length), most)
		}
		assert.GreaterOrEqual(t, p.Need(length)+1, most)
		assert.LessOrEqual(t, p.Need(length), blocksOf(length, p.TokensPerBlock))
	})
}

func TestWorkedModel(t *testing.T) {
	m := Model{Layers: 4, KVHeads: []int{2}, HeadDim: 8, DType: Float16, MaxSeqLen: 4096}
	c := DefaultConfig()
	c.TokensPerBlock, c.MaxAttentionWindow = 4, []int{4096, 8}
	pools, err := Pools(m, c)
	require.NoError(t, err)
	require.Len(t, pools, 2)
	limited, full := pools[0], pools[1]
	assert.Equal(t, "w8h2 float16x8 layers 1 3 page 512 B", limited.String())
	assert.Equal(t, "wfullh2 float16x8 layers 0 2 page 512 B", full.String())
	assert.Equal(t, 2, limited.FirstNeeded(18))
	assert.Equal(t, 3, limited.FirstNeeded(19))
	assert.Equal(t, 0, full.FirstNeeded(18))
	assert.Equal(t, 3, limited.Need(4096))
	assert.Equal(t, 1024, full.Need(4096))
	pages, err := Divide(pools, m, c, 10270*512)
	require.NoError(t, err)
	assert.Equal(t, []int{30, 10240}, pages)
	assert.Equal(t, messages.PoolInfo{
		ID: 0, Name: "w8h2", Kind: "attention", Window: 8, KVHeads: 2, Layers: []int{1, 3},
		DType: "float16", HeadDim: 8, ValueDim: 8, KVFactor: 2, Layout: "HND", TokensPerBlock: 4,
		PageBytes: 512, PrimaryPages: 30, SecondaryPages: 7,
	}, limited.Describe(PageCounts{Primary: 30, Secondary: 7}))
	assert.Contains(t, Pool{Name: "w8h2", DType: FP8, HeadDim: 1, Sink: 3}.String(), "sink 3")
}

func TestSinks(t *testing.T) {
	p := Pool{Window: 8, Sink: 3, TokensPerBlock: 4}
	assert.Equal(t, 1, p.SinkBlocks())
	assert.True(t, p.Needs(0, 1000), "the sink stays")
	assert.False(t, p.Needs(1, 1000))
	p.Sink = 5
	assert.Equal(t, 2, p.SinkBlocks())
	p.Sink = math.MaxInt
	assert.Equal(t, math.MaxInt/4+1, p.SinkBlocks())
	assert.Equal(t, 25, p.Need(100), "an endless sink is full attention")
	p.Window = 0
	assert.Zero(t, p.SinkBlocks())
}

// TestGrouping: order, names and suffixes of the pools.
func TestGrouping(t *testing.T) {
	cases := []struct {
		name  string
		model Model
		set   func(*Config)
		want  []string
	}{
		{"one pool", Model{Layers: 3, KVHeads: []int{8}, HeadDim: 16, DType: Float16, MaxSeqLen: 64}, nil,
			[]string{"wfullh8 float16x16 layers 0 1 2 page 49152 B"}},
		{"a window of max_seq_len is full", Model{Layers: 3, KVHeads: []int{1}, HeadDim: 1, DType: FP8,
			MaxSeqLen: 64},
			func(c *Config) { c.MaxAttentionWindow = []int{64, 63, 100} },
			[]string{"w63h1 fp8x1 layers 1 page 64 B", "wfullh1 fp8x1 layers 0 2 page 128 B"}},
		{"ascending window, full last, then heads",
			Model{Layers: 6, KVHeads: []int{8, 4, 8, 4, 8, 4}, HeadDim: 1, DType: Int8, MaxSeqLen: 64},
			func(c *Config) { c.MaxAttentionWindow = []int{64, 64, 32, 32, 16, 16} },
			[]string{"w16h4 int8x1 layers 5 page 256 B", "w16h8 int8x1 layers 4 page 512 B",
				"w32h4 int8x1 layers 3 page 256 B", "w32h8 int8x1 layers 2 page 512 B",
				"wfullh4 int8x1 layers 1 page 256 B", "wfullh8 int8x1 layers 0 page 512 B"}},
		{"same name, in order of first layer",
			Model{Layers: 5, KVHeads: []int{2}, Shapes: []Shape{{HeadDim: 8, DType: FP8},
				{HeadDim: 4, DType: FP8}, {HeadDim: 8, DType: Float32},
				{HeadDim: 4, DType: FP8}, {HeadDim: 2, DType: FP8}}, MaxSeqLen: 64}, nil,
			[]string{"wfullh2 fp8x8 layers 0 page 1024 B", "wfullh2.2 fp8x4 layers 1 3 page 1024 B",
				"wfullh2.3 float32x8 layers 2 page 4096 B", "wfullh2.4 fp8x2 layers 4 page 256 B"}},
		{"the configuration's dtype is for all layers",
			Model{Layers: 2, KVHeads: []int{2}, Shapes: []Shape{{HeadDim: 4, DType: FP8},
				{HeadDim: 4, DType: Float32}}, MaxSeqLen: 64},
			func(c *Config) { c.DType = "bfloat16" },
			[]string{"wfullh2 bfloat16x4 layers 0 1 page 2048 B"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := DefaultConfig()
			if tc.set != nil {
				tc.set(&c)
			}
			pools, err := Pools(tc.model, c)
			require.NoError(t, err)
			var got []string
			for i, p := range pools {
				assert.Equal(t, messages.PoolID(i), p.ID)
				got = append(got, p.String())
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestPresets(t *testing.T) {
	want := map[string][]int64{ // bytes per token of each pool, ascending window
		"Llama-3.1-8B":    {131072},
		"Llama-3.2-1B":    {32768},
		"Qwen3-8B":        {147456},
		"Mistral-7B-v0.1": {131072},
		"Gemma-3-1B":      {22528, 4096},
		"Gemma-3-4B":      {118784, 20480},
		"Gemma-3-27B":     {425984, 81920},
		"GPT-OSS-20B":     {24576, 24576},
		"DeepSeek-V3":     {70272},
		"Llama-4-Scout":   {147456, 49152},

		"Qwen3-Next-80B-A3B": {24576, 39518208}, // the states are not by token
	}
	presets := Presets()
	require.Len(t, presets, len(want))
	for name, bytes := range want {
		c := DefaultConfig()
		c.MaxAttentionWindow = presets[name].MaxAttentionWindow
		pools, err := Pools(presets[name].Model, c)
		require.NoError(t, err, name)
		var got []int64
		for _, p := range pools {
			if p.Kind == KindState {
				got = append(got, p.PageBytes())
				continue
			}
			got = append(got, p.TokenBytes())
		}
		assert.Equal(t, bytes, got, name)
	}
}
