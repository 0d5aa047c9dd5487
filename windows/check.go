package windows

import (
	"fmt"
	"math"
)

// problems checks a model.
func (m Model) problems(ps *problems) {
	n := len(*ps)
	m.layerProblems(ps)
	if len(*ps) == n {
		// What depends on a layer can be checked only if every list has an entry
		// for it.
		m.sharingProblems(ps)
		shared := len(*ps) == n
		m.stateProblems(ps)
		if shared {
			m.contentProblems(ps)
		}
	}
	if len(*ps) > n || !m.OnlyStates() { // else no layer has a shape
		m.shapeProblems(ps)
	}
	m.encoderProblems(ps)
}

// layerProblems checks the numbers of layers and tokens, and the lists that have
// an entry for each layer.
func (m Model) layerProblems(ps *problems) {
	ps.between(1, MaxLayers, m.Layers, "layers")
	ps.between(1, MaxSeqLenEver, m.MaxSeqLen, "max_seq_len")
	if n := len(m.KVHeads); n == 0 || n != 1 && n != m.Layers {
		ps.say("kv_heads has %d values for %d layers", n, m.Layers)
	}
	for i, h := range m.KVHeads {
		if h < 0 || h == 0 && len(m.KVHeads) == 1 && !m.Recurrent() {
			ps.say("kv_heads %s is not 1 or more", at(h, i, len(m.KVHeads)))
		}
	}
	if n := len(m.AttentionChunk); n > 1 && n != m.Layers {
		ps.say("attention_chunk has %d values for %d layers", n, m.Layers)
	}
	for i, c := range m.AttentionChunk {
		if c < 0 || c == 1 {
			ps.say("attention_chunk %s is neither 0 nor 2 or more", at(c, i, len(m.AttentionChunk)))
		}
	}
	if n := len(m.SharedKV); n != 0 && n != m.Layers {
		ps.say("shared_kv has %d values for %d layers", n, m.Layers)
	}
}

// sharingProblems checks SharedKV: each layer names itself, or a layer that
// names itself.
func (m Model) sharingProblems(ps *problems) {
	for i, owner := range m.SharedKV {
		switch {
		case owner < 0 || owner >= m.Layers:
			ps.say("shared_kv of layer %d: there is no layer %d", i, owner)
		case m.SharedKV[owner] != owner:
			ps.say("shared_kv of layer %d: layer %d has no keys and values of its own", i, owner)
		case owner != i && m.chunk(i) != m.chunk(owner):
			ps.say("shared_kv of layer %d: its attention_chunk %d differs from %d of layer %d", i,
				m.chunk(i), m.chunk(owner), owner)
		}
	}
}

// stateProblems checks the groups of recurrent layers.
func (m Model) stateProblems(ps *problems) {
	seen := make(map[int]bool)
	for _, s := range m.States {
		if len(s.Layers) == 0 {
			ps.say("state.layers is an empty list")
		}
		ps.atLeast(1, s.Bytes, "state.bytes %d")
		for _, l := range s.Layers {
			switch {
			case l < 0 || l >= m.Layers:
				ps.say("state.layers: there is no layer %d", l)
			case seen[l]:
				ps.say("state.layers names layer %d twice", l)
			}
			seen[l] = true
		}
	}
	if m.Recurrent() && m.Encodes() {
		ps.say("state is not supported for encoder-decoder models")
	}
}

// contentProblems checks that each layer keeps something, or is listed as one
// that keeps nothing: a layer that was forgotten in kv_heads would otherwise be
// computed without a cache.
func (m Model) contentProblems(ps *problems) {
	empty := make([]bool, m.Layers)
	for _, l := range m.NoCache {
		if l < 0 || l >= m.Layers {
			ps.say("no_cache: there is no layer %d", l)
			continue
		}
		empty[l] = true
	}
	stated := m.stated()
	for i := range m.Layers {
		_, cached := m.KVLayer(i)
		switch {
		case empty[i] && (cached || stated[i]):
			ps.say("no_cache names layer %d, which has keys and values or a state", i)
		case !empty[i] && !cached && !stated[i]:
			ps.say("layer %d has neither keys and values (kv_heads) nor a state", i)
		}
	}
	if m.OnlyStates() && !m.Recurrent() {
		ps.say("kv_heads is 0 in every layer: at least one must have keys and values or a state")
	}
}

// stated reports for each layer whether it has a state.
func (m Model) stated() []bool {
	has := make([]bool, m.Layers)
	for _, s := range m.States {
		for _, l := range s.Layers {
			if l >= 0 && l < m.Layers {
				has[l] = true
			}
		}
	}
	return has
}

// shapeProblems checks the shapes of keys and values.
func (m Model) shapeProblems(ps *problems) {
	if len(m.Shapes) == 0 {
		s := Shape{m.HeadDim, m.ValueDim, m.KVFactor, m.DType, m.Layout, m.SideBytes}
		s.problems(ps, "", " of the model")
		return
	}
	if n := len(m.Shapes); n != m.Layers {
		ps.say("shapes has %d entries for %d layers", n, m.Layers)
	}
	for i, s := range m.Shapes {
		if len(m.KVHeads) == m.Layers && i < m.Layers && m.KVHeads[i] == 0 {
			continue
		}
		of := fmt.Sprintf(" of layer %d", i)
		s.problems(ps, of, of)
	}
}

// problems checks one shape. The words say in each sentence whose shape it is.
func (s Shape) problems(ps *problems, of, ofType string) {
	ps.atLeast(1, int64(s.HeadDim), "head_dim %d"+of)
	ps.atLeast(0, int64(s.ValueDim), "value_dim %d"+of)
	if s.KVFactor < 0 || s.KVFactor > 2 {
		ps.say("kv_factor %d%s is not 1 or 2", s.KVFactor, of)
	}
	if s.KVFactor == 1 && s.ValueDim > 0 && s.ValueDim != s.HeadDim {
		ps.say("value_dim %d%s is given with kv_factor 1, which has no values", s.ValueDim, of)
	}
	if !s.DType.Known() {
		ps.say("dtype %q%s is not one of %s", s.DType, ofType, dtypeNames)
	}
	if s.Layout != "" && s.Layout != HND && s.Layout != NHD {
		ps.say("layout %q%s is not one of %s, %s", s.Layout, of, HND, NHD)
	}
	ps.atLeast(0, int64(s.SideBytes), "side_bytes %d"+of)
}

// at shows value v of a list, with its layer unless the value is that of all.
func at(v, i, n int) string {
	if n == 1 {
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%d of layer %d", v, i)
}

// saturated multiplies sizes that are not negative; the result is the largest
// number if the product does not fit.
func saturated(factors ...int64) int64 {
	result := int64(1)
	for _, f := range factors {
		if f != 0 && result > math.MaxInt64/f {
			return math.MaxInt64
		}
		result *= f
	}
	return result
}

// sum adds sizes that are not negative; the result is the largest number if the
// sum does not fit.
func sum(sizes ...int64) int64 {
	total := int64(0)
	for _, s := range sizes {
		if total > math.MaxInt64-s {
			return math.MaxInt64
		}
		total += s
	}
	return total
}
