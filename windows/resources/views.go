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
	// kv, heads, elements] in NHD; kv is 2, or 1 for a latent vector. Where values have another
	// size, keys are [heads, tokens, elements] or [tokens, heads, elements], and the view of the
	// name with ".values" has the values. That with ".side" has the side bytes. An element
	// of a row of NVFP4 is a byte that holds two; the views with ".key_scales" and
	// ".value_scales" have its scales, a byte for 16 elements.
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
		switch r := d.Resource.(type) {
		case SharedKV:
			p.share(d, r.Layer)
			continue
		case PagedKV:
			if !d.Managed {
				pool := r.pool(p.maxSeqLen)
				p.placeKV(r, v, pool, 0, p.takeSlot(pool.PageBytes()))
				continue
			}
			pool, layer := p.find(d.Layer, windows.KindAttention)
			p.setPool(d, &v, pool, layer)
			p.placeKV(r, v, pool, layer, 0)
			continue
		}
		size := v.lay(d.Resource.(array).array(p.maxSeqLen))
		if d.Managed {
			pool, layer := p.find(d.Layer, windows.KindState)
			p.setPool(d, &v, pool, layer)
			v.Offset = int64(layer)*pool.StateBytes + aligned(states[d.Layer])
			states[d.Layer] = aligned(states[d.Layer]) + size
		} else {
			v.Offset = p.takeSlot(size)
		}
		p.views[d.Name] = v
	}
	for name, v := range p.views {
		if !v.Managed {
			// Known only now: a slot holds all local resources.
			v.PageBytes = p.slotBytes
			p.views[name] = v
		}
	}
}

// Parts are the endings of the names of views beside those of keys: of values that have another
// size than keys, of the scales of both, and of side bytes.
const (
	valuesPart      = ".values"
	keyScalesPart   = ".key_scales"
	valueScalesPart = ".value_scales"
	sidePart        = ".side"
)

// parts are all endings.
func parts() []string { return []string{"", valuesPart, keyScalesPart, valueScalesPart, sidePart} }

// placeKV locates keys and values of one layer of a pool that begins at a byte.
func (p *Plan) placeKV(kv PagedKV, v View, pool windows.Pool, layer int, begin int64) {
	name, element, heads, tokens := v.Name, int64(kv.DType.Bytes()), kv.NumKVHeads, pool.TokensPerBlock
	if kv.DType == windows.NVFP4 {
		element = 1
	}
	put := func(part string, at windows.View, shape []int, strides []int64) {
		v := v
		v.Name, v.Offset, v.Shape, v.Strides = name+part, begin+at.Offset, shape, strides
		p.views[v.Name] = v
	}
	// rows are those of one part alone.
	rows := func(part string, at windows.View) {
		row := int(at.RowBytes / element)
		shape, strides := []int{heads, tokens, row}, []int64{at.HeadStride, at.TokenStride, element}
		if kv.layout() == windows.NHD {
			shape, strides = []int{tokens, heads, row}, []int64{at.TokenStride, at.HeadStride, element}
		}
		put(part, at, shape, strides)
	}
	keys, _ := pool.View(layer, windows.Keys)
	// A latent vector has no values; the stride of a dimension of 1 is never used.
	values, has := pool.View(layer, windows.Values)
	if kv.split() {
		rows("", keys)
		rows(valuesPart, values)
	} else {
		behind, row := int64(0), int(keys.RowBytes/element)
		if has {
			behind = values.Offset - keys.Offset
		}
		shape := []int{kv.factor(), heads, tokens, row}
		strides := []int64{behind, keys.HeadStride, keys.TokenStride, element}
		if kv.layout() == windows.NHD {
			shape = []int{tokens, kv.factor(), heads, row}
			strides = []int64{keys.TokenStride, behind, keys.HeadStride, element}
		}
		put("", keys, shape, strides)
	}
	if scales, ok := pool.View(layer, windows.KeyScales); ok {
		rows(keyScalesPart, scales)
	}
	if scales, ok := pool.View(layer, windows.ValueScales); ok {
		rows(valueScalesPart, scales)
	}
	if side, ok := pool.View(layer, windows.Side); ok {
		put(sidePart, side, []int{tokens, kv.SideBytes}, []int64{side.TokenStride, 1})
	}
}

// share gives a layer the views of the layer whose keys and values it reads.
func (p *Plan) share(d *Decision, owner int) {
	for i := range p.Decisions {
		of := &p.Decisions[i]
		if _, paged := of.Resource.(PagedKV); !paged || of.Layer != owner {
			continue
		}
		d.Pool = of.Pool
		for _, part := range parts() {
			if v, ok := p.views[of.Name+part]; ok {
				v.Name = d.Name + part
				p.views[v.Name] = v
			}
		}
	}
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

// takeSlot gives a local resource the next bytes of a slot, at a boundary that suits every kernel.
// The size of a slot is known when all have theirs.
func (p *Plan) takeSlot(bytes int64) int64 {
	begin := p.slotBytes
	p.slotBytes += (bytes + slotAlignment - 1) / slotAlignment * slotAlignment
	return begin
}

// lay sets the shape and returns its bytes: the elements lie one behind the other, the last
// dimension being the nearest.
func (v *View) lay(shape []int, dtype windows.DType) int64 {
	v.Shape, v.Strides = shape, make([]int64, len(shape))
	stride := int64(dtype.Bytes())
	for i := len(shape) - 1; i >= 0; i-- {
		v.Strides[i] = stride
		stride *= int64(shape[i])
	}
	return stride
}
