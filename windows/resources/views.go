package resources

import (
	"slices"

	"github.com/kvactor/kvactor/windows"
)

// View says where a resource lies. Kernels address element [i, j, …] of Shape in
// page or slot n at n×PageBytes + Offset + i×Strides[0] + j×Strides[1] + … bytes.
type View struct {
	Name    string
	Managed bool
	Pool    string // of a managed one
	Layer   int    // index in the layers of the pool, of a managed one
	// PageBytes is the distance from one page of the pool to the next, or from one
	// slot of the local memory to the next.
	PageBytes int64
	Offset    int64
	// Shape and Strides are the dimensions with the bytes from one element to the
	// next. Keys and values are [kv, heads, tokens, elements] in HND and [tokens,
	// kv, heads, elements] in NHD; kv is 2, or 1 for a latent vector. An element
	// of a row of NVFP4 is a byte that holds two; windows.Pool.View locates the
	// scales.
	Shape   []int
	Strides []int64
}

// View returns the view of a resource by its name, false if there is none.
func (p *Plan) View(name string) (View, bool) {
	v, ok := p.views[name]
	return v, ok
}

// locate finds where every resource lies. Keys and values are where windows.Pool.View
// says; the states of a layer lie one behind the other in the layer's part of a state
// page, in the order of the collection, which is also the order in which model has added
// up their sizes.
func (p *Plan) locate() {
	states := make([]int64, p.Model.Layers) // of each layer, as far as its states are placed
	for i := range p.Decisions {
		d := &p.Decisions[i]
		v := View{Name: d.Name, Managed: d.Managed}
		kv, paged := d.Resource.(PagedKV)
		switch {
		case !d.Managed:
			p.placeLocal(d, &v)
		case paged:
			pool, layer := p.find(d.Layer, windows.KindAttention)
			p.setPool(d, &v, pool, layer)
			keys, _ := pool.View(layer, windows.Keys)
			v.Offset = keys.Offset
			v.shapeKV(kv, pool.TokensPerBlock, keys.TokenStride, keys.HeadStride, valuesBehind(pool, layer, keys))
		default:
			pool, layer := p.find(d.Layer, windows.KindState)
			p.setPool(d, &v, pool, layer)
			v.Offset = int64(layer)*pool.StateBytes + aligned(states[d.Layer])
			states[d.Layer] = aligned(states[d.Layer]) + bytes(d.Resource)
			v.shape(d.Resource)
		}
		p.views[d.Name] = v
	}
	for _, d := range p.Decisions {
		if v := p.views[d.Name]; !d.Managed {
			// Known only now: a slot holds all local resources.
			v.PageBytes = p.slotBytes
			p.views[d.Name] = v
		}
	}
}

// valuesBehind is the distance from the keys to the values.
func valuesBehind(pool windows.Pool, layer int, keys windows.View) int64 {
	values, ok := pool.View(layer, windows.Values)
	// A latent vector has no values; the stride of a dimension of 1 is never used.
	if !ok {
		return 0
	}
	return values.Offset - keys.Offset
}

// setPool notes the pool of a managed resource.
func (p *Plan) setPool(d *Decision, v *View, pool windows.Pool, layer int) {
	d.Pool, v.Pool, v.Layer, v.PageBytes = pool.Name, pool.Name, layer, pool.PageBytes()
}

// find returns the pool of a kind that has the layer, and its index there. There
// is one: the pools were made of the same decisions.
func (p *Plan) find(layer int, kind windows.Kind) (windows.Pool, int) {
	for _, pool := range p.Pools {
		if i := slices.Index(pool.Layers, layer); i >= 0 && pool.Kind == kind {
			return pool, i
		}
	}
	panic("resources: a managed layer is in no pool")
}

// slotAlignment is the boundary at which each local resource begins in its slot.
const slotAlignment = 256

// placeLocal gives a local resource the next part of a slot, at a boundary that suits
// every kernel. The size of a slot is known when all have one.
func (p *Plan) placeLocal(d *Decision, v *View) {
	// slotBytes is the end of what has been placed so far.
	v.Offset = p.slotBytes
	if kv, ok := d.Resource.(PagedKV); ok {
		row := kv.DType.RowBytes(kv.HeadDim)
		if kv.layout() == windows.NHD {
			heads := row * int64(kv.NumKVHeads)
			v.shapeKV(kv, p.maxSeqLen, heads*int64(kv.factor()), row, heads)
		} else {
			head := row * int64(p.maxSeqLen)
			v.shapeKV(kv, p.maxSeqLen, row, head, head*int64(kv.NumKVHeads))
		}
	} else {
		v.shape(d.Resource)
		if rows, ok := d.Resource.(Unpaged); ok {
			v.Shape = append([]int{p.maxSeqLen}, v.Shape...)
			v.Strides = append([]int64{rows.slot(1)}, v.Strides...)
		}
	}
	n := d.Resource.slot(p.maxSeqLen)
	p.slotBytes += (n + slotAlignment - 1) / slotAlignment * slotAlignment
}

// shapeKV sets the shape of keys and values of so many tokens; token, head and value are
// the distances in bytes from one of these to the next. Two NVFP4 elements share a byte,
// so a row of them is a row of half as many bytes.
func (v *View) shapeKV(kv PagedKV, tokens int, token, head, value int64) {
	row, element := kv.HeadDim, int64(kv.DType.Bytes())
	if kv.DType == windows.NVFP4 {
		row, element = kv.HeadDim/2, 1
	}
	if kv.layout() == windows.NHD {
		v.Shape, v.Strides = []int{tokens, kv.factor(), kv.NumKVHeads, row}, []int64{token, value, head, element}
		return
	}
	v.Shape, v.Strides = []int{kv.factor(), kv.NumKVHeads, tokens, row}, []int64{value, head, token, element}
}

// shape sets the shape of a state, or of one row: the elements lie one behind the
// other.
func (v *View) shape(r Resource) {
	var dtype windows.DType
	switch r := r.(type) {
	case SSM:
		v.Shape, dtype = []int{r.NumHeads, r.HeadDim, r.DState}, r.DType
	case CausalConv:
		v.Shape, dtype = []int{r.ConvDim, r.DConv - 1}, r.DType
	case State:
		v.Shape, dtype = slices.Clone(r.Shape), r.DType
	case Unpaged:
		v.Shape, dtype = slices.Clone(r.TokenShape), r.DType
	}
	v.Strides = make([]int64, len(v.Shape))
	stride := int64(dtype.Bytes())
	// Row major: the last dimension is the nearest.
	for i := len(v.Shape) - 1; i >= 0; i-- {
		v.Strides[i] = stride
		stride *= int64(v.Shape[i])
	}
}
