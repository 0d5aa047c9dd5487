package windows

import "math"

// A page holds, in this order, the elements of all layers, the scales of all
// layers (NVFP4 only) and the side bytes of all layers. Elements, and in the same
// way scales, lie in one of two layouts:
//
//	HND  [layer][K, V][head][token][element]
//	NHD  [layer][token][K, V][head][element]
//
// With a KVFactor of 1 there is one vector in place of K and V. Side bytes are
// [layer][token][byte]. A state page is [layer][byte].

// Region is a part of a page that consists of runs of equal size, one behind the
// other. A run has TokenBytes for each token of the block, in order. To copy the
// first n tokens of a block is to copy n×TokenBytes of every run of every region.
type Region struct {
	Offset     int64 // of the first run, in bytes from the start of the page
	Runs       int64 // a multiple of Layers
	TokenBytes int64
	Layer      int // index in Pool.Layers of the first layer in the region
	Layers     int // how many layers it covers, Runs/Layers runs each
}

// Bytes is the size of the region in a page of so many tokens.
func (r Region) Bytes(tokensPerBlock int) int64 {
	return saturated(r.Runs, r.TokenBytes, int64(tokensPerBlock))
}

// values is the number of elements of a value of one head, 0 with a KVFactor of
// 1.
func (p Pool) values() int {
	switch {
	case p.KVFactor == 1:
		return 0
	case p.ValueDim == 0:
		return p.HeadDim
	default:
		return p.ValueDim
	}
}

// Regions returns the regions of a page that holds tokens. A state page has
// none: it is copied whole.
func (p Pool) Regions() []Region {
	if p.Kind == KindState {
		return nil
	}
	regions := p.rows(nil, p.DType.RowBytes)
	if p.DType == NVFP4 {
		regions = p.rows(regions, p.DType.ScaleBytes)
	}
	return p.add(regions, 1, int64(p.SideBytes), 0, len(p.Layers))
}

// rows appends the regions of all rows of keys and values, where bytes gives the
// size of a row of so many elements.
func (p Pool) rows(regions []Region, bytes func(elements int) int64) []Region {
	heads, layers := int64(p.KVHeads), len(p.Layers)
	k, v := bytes(p.HeadDim), bytes(p.values())
	switch {
	case p.Layout == NHD:
		return p.add(regions, 1, saturated(heads, sum(k, v)), 0, layers)
	case v == 0:
		return p.add(regions, heads, k, 0, layers)
	case k == v:
		return p.add(regions, saturated(2, heads), k, 0, layers)
	}
	for i := range layers {
		regions = p.add(regions, heads, k, i, 1)
		regions = p.add(regions, heads, v, i, 1)
	}
	return regions
}

// add appends a region of layers with so many runs each, behind the last one.
func (p Pool) add(regions []Region, runs, tokenBytes int64, layer, layers int) []Region {
	if tokenBytes == 0 {
		return regions
	}
	r := Region{Runs: saturated(runs, int64(layers)), TokenBytes: tokenBytes, Layer: layer,
		Layers: layers}
	if n := len(regions); n > 0 {
		last := regions[n-1]
		r.Offset = sum(last.Offset, last.Bytes(p.TokensPerBlock))
	}
	return append(regions, r)
}

// PageBytes is the size of a page: what all layers of the pool keep of a block
// of tokens, or of a state. It is math.MaxInt64 if the size does not fit, which
// Validate refuses.
func (p Pool) PageBytes() int64 {
	if p.Kind == KindState {
		return saturated(int64(len(p.Layers)), p.StateBytes)
	}
	regions := p.Regions()
	if len(regions) == 0 {
		return 0
	}
	last := regions[len(regions)-1]
	return sum(last.Offset, last.Bytes(p.TokensPerBlock))
}

// TokenBytes is what one token takes in a page, 0 in a state pool.
func (p Pool) TokenBytes() int64 {
	if p.Kind == KindState || p.PageBytes() == math.MaxInt64 {
		return 0
	}
	return p.PageBytes() / int64(p.TokensPerBlock)
}

// View locates a part of one layer within a page. The element i of token t in
// head h begins at bit 8×(Offset + h×HeadStride + t×TokenStride) + i×(bits of an
// element). A state has no heads and no tokens: it is the RowBytes bytes at Offset.
type View struct {
	Offset      int64 // bytes from the start of the page
	HeadStride  int64 // bytes from one head to the next
	TokenStride int64 // bytes from one token to the next
	RowBytes    int64 // bytes of one token in one head
}

// Part is a part of a layer in a page.
type Part uint8

// The parts of a layer. With a KVFactor of 1 the latent vectors are Keys. RecurrentState is in
// the pages of state pools, the others are in those of all other pools.
const (
	Keys Part = iota
	Values
	KeyScales
	ValueScales
	Side
	RecurrentState
)

// View locates a part of one layer. The layer is given by its index in Layers, not by its
// number in the model. View returns false if pages of the pool do not have this part, or the
// pool does not have this layer.
func (p Pool) View(layer int, part Part) (View, bool) {
	// A model's number in place of the index would otherwise locate bytes behind the page.
	if layer < 0 || layer >= len(p.Layers) {
		return View{}, false
	}
	switch part {
	case Keys, Values:
		return p.row(layer, 0, part == Values, p.DType.RowBytes)
	case KeyScales, ValueScales:
		return p.row(layer, p.elementBytes(), part == ValueScales, p.DType.ScaleBytes)
	case Side:
		if p.Kind == KindState || p.SideBytes == 0 {
			return View{}, false
		}
		side := int64(p.SideBytes)
		all := side * int64(p.TokensPerBlock)
		offset := p.PageBytes() - all*int64(len(p.Layers)-layer)
		return View{Offset: offset, HeadStride: all, TokenStride: side, RowBytes: side}, true
	case RecurrentState:
		if p.Kind != KindState {
			return View{}, false
		}
		return View{Offset: int64(layer) * p.StateBytes, RowBytes: p.StateBytes}, true
	default:
		return View{}, false
	}
}

// elementBytes is the size of all keys and values in a page, without scales.
func (p Pool) elementBytes() int64 {
	row := p.DType.RowBytes(p.HeadDim) + p.DType.RowBytes(p.values())
	return row * int64(p.KVHeads) * int64(p.TokensPerBlock) * int64(len(p.Layers))
}

// row locates the rows of keys or values of one layer, or their scales, in the
// part of a page that begins at start.
func (p Pool) row(layer int, start int64, values bool, bytes func(int) int64) (View, bool) {
	if p.Kind == KindState {
		return View{}, false
	}
	k, v := bytes(p.HeadDim), bytes(p.values())
	tokens, heads := int64(p.TokensPerBlock), int64(p.KVHeads)
	view := View{Offset: start + int64(layer)*(k+v)*heads*tokens, RowBytes: k}
	before := int64(0) // bytes of the keys that lie before the values
	if values {
		view.RowBytes, before = v, k*heads
	}
	if p.Layout == NHD {
		view.Offset += before
		view.HeadStride, view.TokenStride = view.RowBytes, (k+v)*heads
	} else {
		view.Offset += before * tokens
		view.HeadStride, view.TokenStride = view.RowBytes*tokens, view.RowBytes
	}
	return view, view.RowBytes > 0
}
