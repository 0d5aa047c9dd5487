package windows

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/kvactor/kvactor/messages"
)

// identity is what layers must share to be in one attention pool.
type identity struct {
	window, chunk int // 0: none
	heads         int
	Shape
}

// Pools groups the layers of a model. Attention pools come first: those with a
// window or chunk in ascending order of its length, a window before a chunk, then
// full attention; among these ascending KV heads, then the first layer. State
// pools come last, in order of their first layers. Both arguments are validated.
func Pools(m Model, c Config) ([]Pool, error) {
	if err := c.Validate(m); err != nil {
		return nil, err
	}
	return group(m, c), nil
}

// group is Pools for arguments that are valid by themselves.
func group(m Model, c Config) []Pool {
	var pools []Pool
	index := make(map[identity]int)
	for i := range m.Layers {
		if m.heads(i) == 0 {
			continue
		}
		id := c.identity(m, i)
		at, ok := index[id]
		if !ok {
			at = len(pools)
			index[id] = at
			pools = append(pools, c.pool(id))
		}
		pools[at].Layers = append(pools[at].Layers, i)
	}
	// So far the pools are in order of their first layers, which decides the
	// suffixes of equal names and, by a stable sort, what the order leaves open.
	pools = append(pools, c.statePools(m)...)
	nameAll(pools)
	slices.SortStableFunc(pools, inOrder)
	for i := range pools {
		pools[i].ID = messages.PoolID(i)
	}
	return pools
}

// inOrder compares pools by the order that Pools documents.
func inOrder(a, b Pool) int {
	last := func(yes bool) int {
		if yes {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(last(a.Kind == KindState), last(b.Kind == KindState)),
		cmp.Compare(last(a.Full()), last(b.Full())),
		cmp.Compare(a.Reach().extent(), b.Reach().extent()),
		cmp.Compare(a.Chunk, b.Chunk),
		cmp.Compare(a.KVHeads, b.KVHeads),
	)
}

// statePools returns a pool for each size of states.
func (c Config) statePools(m Model) []Pool {
	bytes := make([]int64, m.Layers) // of each layer's state
	for _, s := range m.States {
		for _, l := range s.Layers {
			bytes[l] = s.Bytes
		}
	}
	var pools []Pool
	for _, s := range StatesOf(bytes) {
		pools = append(pools, Pool{Kind: KindState, StateBytes: s.Bytes, Layers: s.Layers,
			Checkpoints: c.EnableBlockReuse, TokensPerBlock: c.TokensPerBlock})
	}
	return pools
}

// identity says to which pool layer i belongs.
func (c Config) identity(m Model, i int) identity {
	return identity{c.window(m, i), m.chunk(i), m.heads(i), c.shape(m, i)}
}

// shape is that of layer i, with the element type of the configuration.
func (c Config) shape(m Model, i int) Shape {
	s := m.shape(i)
	if c.DType != AutoDType {
		s.DType = DType(c.DType)
	}
	return s
}

// window is the limited window of layer i, 0 for full attention. A window that
// no sequence can outgrow is full attention.
func (c Config) window(m Model, i int) int {
	n := len(c.MaxAttentionWindow)
	if n == 0 || c.MaxAttentionWindow[i%n] >= m.MaxSeqLen {
		return 0
	}
	return c.MaxAttentionWindow[i%n]
}

func (c Config) pool(id identity) Pool {
	p := Pool{
		Window: id.window, Chunk: id.chunk, KVHeads: id.heads, HeadDim: id.HeadDim, ValueDim: id.ValueDim,
		KVFactor: id.KVFactor,
		DType:    id.DType, Layout: id.Layout, SideBytes: id.SideBytes, TokensPerBlock: c.TokensPerBlock,
	}
	if p.Window > 0 {
		p.Sink = c.SinkTokenLength
	}
	return p
}

// nameAll names pools that are in order of their first layers.
func nameAll(pools []Pool) {
	seen := make(map[string]int)
	for i := range pools {
		p := &pools[i]
		p.Name = p.baseName()
		seen[p.Name]++
		if n := seen[p.Name]; n > 1 {
			p.Name += "." + strconv.Itoa(n)
		}
	}
}

// baseName is the name of the pool without a suffix.
func (p *Pool) baseName() string {
	switch {
	case p.Kind == KindState:
		return "state"
	case p.Chunk > 0:
		return fmt.Sprintf("c%dh%d", p.Chunk, p.KVHeads)
	case p.Window > 0:
		return fmt.Sprintf("w%dh%d", p.Window, p.KVHeads)
	default:
		return fmt.Sprintf("wfullh%d", p.KVHeads)
	}
}

// layerProblems checks the windows of a configuration against the layers of a
// model. Both are valid by themselves.
func (c Config) layerProblems(ps *problems, m Model) {
	for i := range m.Layers {
		if w, n := c.window(m, i), m.chunk(i); w > 0 && n > 0 {
			ps.say("max_attention_window %d of layer %d: the layer has an attention_chunk of %d", w, i, n)
		}
		if owner, ok := m.KVLayer(i); ok && c.window(m, i) != c.window(m, owner) {
			ps.say("max_attention_window of layer %d differs from that of layer %d, whose keys and values "+
				"it shares", i, owner)
		}
		if s := c.shape(m, i); m.heads(i) > 0 && s.DType == NVFP4 &&
			(s.HeadDim%scaledElements != 0 || s.ValueDim%scaledElements != 0) {
			ps.say("head_dim of layer %d is not a multiple of %d, as dtype nvfp4 needs", i, scaledElements)
		}
	}
}
