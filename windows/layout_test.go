package windows

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawPages(t *rapid.T) Pool {
	p := Pool{
		TokensPerBlock: 1 << rapid.IntRange(1, 3).Draw(t, "log2 tpb"),
		KVHeads:        rapid.IntRange(1, 3).Draw(t, "heads"),
		HeadDim:        16 * rapid.IntRange(1, 3).Draw(t, "K"),
		DType:          rapid.SampledFrom([]DType{Float32, BFloat16, FP8, NVFP4}).Draw(t, "dtype"),
		Layout:         rapid.SampledFrom([]Layout{"", HND, NHD}).Draw(t, "layout"),
		SideBytes:      rapid.SampledFrom([]int{0, 0, 132}).Draw(t, "side"),
		Layers:         []int{3, 5, 8}[:rapid.IntRange(1, 3).Draw(t, "layers")],
	}
	if rapid.Bool().Draw(t, "latent") {
		p.KVFactor = 1
	} else {
		p.ValueDim = 16 * rapid.IntRange(0, 3).Draw(t, "V")
	}
	return p
}

// TestAViewOfNoLayer: a layer is named by its index in the pool, and not by its number in
// the model. For an index that is too large there is no view; there was one behind the page.
func TestAViewOfNoLayer(t *testing.T) {
	p := Pool{Layers: []int{1}, KVHeads: 1, HeadDim: 8, DType: Float16, TokensPerBlock: 4,
		SideBytes: 16, KVFactor: 2}
	for _, part := range []Part{Keys, Values, Side} {
		_, ok := p.View(0, part)
		require.True(t, ok, "part %d", part)
		for _, layer := range []int{-1, p.Layers[0]} {
			_, ok := p.View(layer, part)
			require.False(t, ok, "layer %d, part %d", layer, part)
		}
	}
}

// TestViewsFillThePage: the rows that views locate cover every byte of a page
// once, and the bytes of token t are those that regions say are of token t. So a
// copy of the leading tokens of every run takes exactly the leading tokens.
func TestViewsFillThePage(t *testing.T) { rapid.Check(t, checkViews) }

func FuzzViews(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkViews)) }

func checkViews(t *rapid.T) {
	p := drawPages(t)
	const untouched = -1
	byView, layers := make([]int, p.PageBytes()), make([]int, p.PageBytes())
	for i := range byView {
		byView[i] = untouched
	}
	for layer := range p.Layers {
		for _, part := range []Part{Keys, Values, KeyScales, ValueScales, Side} {
			v, ok := p.View(layer, part)
			if !ok {
				continue
			}
			heads := p.KVHeads
			if part == Side {
				heads = 1
			}
			for head := range heads {
				for token := range p.TokensPerBlock {
					at := v.Offset + int64(head)*v.HeadStride + int64(token)*v.TokenStride
					for i := range v.RowBytes {
						if byView[at+i] != untouched { // a call for each byte would be slow
							t.Fatalf("byte %d belongs to two rows", at+i)
						}
						byView[at+i], layers[at+i] = token, layer
					}
				}
			}
		}
	}
	end := int64(0)
	for _, r := range p.Regions() {
		require.Equal(t, end, r.Offset, "regions lie one behind the other")
		require.Zero(t, r.Runs%int64(r.Layers))
		for run := range r.Runs {
			layer := r.Layer + int(run/(r.Runs/int64(r.Layers)))
			for token := range p.TokensPerBlock {
				for range r.TokenBytes {
					if byView[end] != token || layers[end] != layer {
						t.Fatalf("byte %d is of token %d, layer %d, not of %d, %d", end, byView[end], layers[end],
							token, layer)
					}
					end++
				}
			}
		}
	}
	assert.EqualValues(t, len(byView), end, "every byte has a row")
	assert.Equal(t, p.PageBytes(), p.TokenBytes()*int64(p.TokensPerBlock))
}

func TestPageBytes(t *testing.T) {
	cases := []struct {
		name  string
		pool  Pool
		token int64
	}{
		{"grouped heads", Pool{KVHeads: 8, HeadDim: 128, DType: BFloat16}, 4096},
		{"a latent vector", Pool{KVHeads: 1, HeadDim: 576, DType: BFloat16, KVFactor: 1}, 1152},
		{"a latent vector with an indexer", Pool{KVHeads: 1, HeadDim: 576, DType: BFloat16, KVFactor: 1,
			SideBytes: 132}, 1284},
		{"keys of 192, values of 128", Pool{KVHeads: 4, HeadDim: 192, ValueDim: 128, DType: BFloat16},
			2560},
		{"nvfp4: half a byte an element, a byte of scale for 16",
			Pool{KVHeads: 8, HeadDim: 128, DType: NVFP4}, 1024 + 128},
		{"a state has no tokens", Pool{Kind: KindState, StateBytes: 100}, 0},
	}
	for _, tc := range cases {
		tc.pool.TokensPerBlock, tc.pool.Layers = 32, []int{0}
		assert.Equal(t, tc.token, tc.pool.TokenBytes(), tc.name)
	}
	assert.EqualValues(t, 300, Pool{Kind: KindState, StateBytes: 100,
		Layers: []int{0, 1, 2}}.PageBytes())
}

// The numbers of a page in both layouts, so that they can be read.
func TestViews(t *testing.T) {
	p := Pool{KVHeads: 2, HeadDim: 8, ValueDim: 4, DType: Float16, TokensPerBlock: 4,
		Layers: []int{0, 1}}
	view := func(part Part) View {
		v, ok := p.View(1, part)
		require.True(t, ok)
		return v
	}
	// Layer 1 begins at 2 heads × 4 tokens × (16 + 8) bytes.
	assert.Equal(t, View{Offset: 192, HeadStride: 64, TokenStride: 16, RowBytes: 16}, view(Keys))
	assert.Equal(t, View{Offset: 192 + 128, HeadStride: 32, TokenStride: 8, RowBytes: 8}, view(Values))
	p.Layout = NHD
	assert.Equal(t, View{Offset: 192, HeadStride: 16, TokenStride: 48, RowBytes: 16}, view(Keys))
	assert.Equal(t, View{Offset: 192 + 32, HeadStride: 8, TokenStride: 48, RowBytes: 8}, view(Values))
	_, ok := p.View(1, KeyScales)
	assert.False(t, ok)
	_, ok = p.View(1, Side)
	assert.False(t, ok)
	_, ok = Pool{Kind: KindState, Layers: []int{0}}.View(0, Keys)
	assert.False(t, ok)
}
