package windows

// Small is the model with keys, values and states of a few bytes and otherwise the same: its pools
// have the same names, layers and page counts. It is for planners, since what an engine reuses
// depends on the number of pages and not on their bytes: divide memory for the model, then open an
// engine for the small one with those counts. The element type of the configuration must not be
// nvfp4.
func (m Model) Small() Model {
	small := m
	small.HeadDim, small.ValueDim, small.KVFactor, small.SideBytes = 0, 0, 0, 0
	small.Shapes, small.States = make([]Shape, m.Layers), make([]State, len(m.States))
	// Shapes and states that differ still do, by their lengths, so that they are different pools.
	shapes := make(map[Shape]int)
	for i := range small.Shapes {
		s := m.shape(i)
		size := s
		size.DType = "" // the configuration may make it the same in all layers
		if shapes[size] == 0 {
			shapes[size] = len(shapes) + 1
		}
		dim := shapes[size]
		if s.DType == NVFP4 {
			dim *= scaledElements
		}
		small.Shapes[i] = Shape{HeadDim: dim, KVFactor: s.KVFactor, DType: s.DType, Layout: s.Layout}
	}
	sizes := make(map[int64]int64)
	for i, s := range m.States {
		if sizes[s.Bytes] == 0 {
			sizes[s.Bytes] = int64(len(sizes) + 1)
		}
		small.States[i] = State{Layers: s.Layers, Bytes: smallState * sizes[s.Bytes]}
	}
	return small
}

// smallState is a state that kernels can read in words of 16 bytes.
const smallState = 16
