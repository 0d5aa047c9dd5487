package resources

import "github.com/kvactor/kvactor/windows"

// OfModel declares what the layers of a model keep that is known by its shapes: "kv_cache" for keys
// and values, with the window that the configuration gives the layer, and "state" for all recurrent
// states of a layer together. The cross pool of an encoder–decoder model is not among them: it is
// no matter of a layer. The error is that of windows.Pools or of Add.
func OfModel(m windows.Model, cache windows.Config) (*Collection, error) {
	pools, err := windows.Pools(m, cache)
	if err != nil {
		return nil, err
	}
	keeps := make([][]Kept, m.Layers)
	for _, pool := range pools {
		kept := Kept{"kv_cache", pagedKV(pool)}
		if pool.Kind == windows.KindState {
			kept = Kept{"state", stateOf(pool.StateBytes)}
		}
		for _, l := range pool.Layers {
			keeps[l] = append(keeps[l], kept)
		}
	}
	c := new(Collection)
	for l, list := range keeps {
		if owner, ok := m.KVLayer(l); ok && owner != l {
			list = append(list, Kept{"kv_cache", SharedKV{owner}})
		}
		for _, k := range list {
			if err := c.Add(k.Kind, l, k.Resource); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// pagedKV is what a layer of a pool keeps.
func pagedKV(p windows.Pool) PagedKV {
	kv := PagedKV{
		NumKVHeads: p.KVHeads, HeadDim: p.HeadDim, DType: p.DType, KVFactor: p.KVFactor, Layout: p.Layout,
		SideBytes: p.SideBytes, Window: p.Window, Chunk: p.Chunk,
	}
	if p.ValueDim != p.HeadDim {
		kv.ValueDim = p.ValueDim
	}
	return kv
}

// stateOf is a state of which the size is known. It is a matrix, since a dimension is bounded.
func stateOf(bytes int64) State {
	row := int64(1 << 12)
	for bytes%row != 0 {
		row /= 2
	}
	return State{Shape: []int{int(bytes / row), int(row)}, DType: windows.Int8, Checkpointable: true}
}
