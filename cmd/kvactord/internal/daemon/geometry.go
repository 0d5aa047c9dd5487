package daemon

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/cmd/kvactord/wire"
	"github.com/kvactor/kvactor/windows"
)

// geometry is what a session says of a model, in the engine's words.
//
// The daemon does not know what a block of a layer holds, only its bytes: a layer is one head
// with one vector of bytes for each token. The parts of all ranks of a layer are layers of the
// model: layer l of rank r has the index r × layers + l. So a page has the parts of all ranks.
type geometry struct {
	text  string // equal for geometries that are equal
	model kvactor.Model
	cache kvactor.CacheConfig
	// groups has the index of the first layer of each group, within a rank.
	groups        []int
	layers, ranks int // layers of one rank
}

// longest is the length of a sequence that engines are made for: it costs nothing, and sessions
// with other lengths can share an engine.
const longest = 1 << 24

// newGeometry reads Open.
func newGeometry(o *wire.Open, cache kvactor.CacheConfig) (*geometry, *wire.Error) {
	g := &geometry{cache: cache, ranks: max(1, int(o.GetRanks()))}
	g.cache.TokensPerBlock = int(o.GetBlockTokens())
	g.cache.EnablePartialReuse = false // needs to know where a token lies in a block
	for _, group := range o.GetGroups() {
		g.groups = append(g.groups, g.layers)
		g.layers += len(group.GetLayerBytes())
	}
	if wrong := checkOpen(o, g); wrong != nil {
		return nil, wrong
	}
	n := g.layers * g.ranks
	g.model = kvactor.Model{Layers: n, KVHeads: make([]int, n), Shapes: make([]kvactor.Shape, n),
		MaxSeqLen: longest}
	g.cache.MaxAttentionWindow = make([]int, n)
	states := map[uint64][]int{}
	for r := range g.ranks {
		for i, group := range o.GetGroups() {
			for l, bytes := range group.GetLayerBytes() {
				layer := r*g.layers + g.groups[i] + l
				g.cache.MaxAttentionWindow[layer] = longest
				if group.GetKind() == wire.Kind_STATE {
					states[bytes] = append(states[bytes], layer)
					continue
				}
				g.model.KVHeads[layer] = 1
				g.model.Shapes[layer] = kvactor.Shape{HeadDim: int(bytes / uint64(o.GetBlockTokens())),
					KVFactor: 1, DType: kvactor.Int8}
				if w := int(group.GetWindow()); w > 0 {
					g.cache.MaxAttentionWindow[layer] = w
				}
			}
		}
	}
	for bytes, layers := range states {
		g.model.States = append(g.model.States, kvactor.State{Layers: layers, Bytes: int64(bytes)})
	}
	slices.SortFunc(g.model.States, func(a, b kvactor.State) int { return a.Layers[0] - b.Layers[0] })
	g.text = describe(o, g.ranks)
	if err := g.cache.Validate(g.model); err != nil {
		return nil, refusal(err)
	}
	// Memory is split for the lengths that the session has, not for the longest of all.
	if g.cache.ExpectedSeqLen == 0 {
		g.cache.ExpectedSeqLen = lengthOf(o)
		g.cache = forLengths(g.cache, g.model)
	}
	return g, nil
}

const (
	// shortLen is the length of short sequences that memory is split for beside the longest.
	shortLen = 1024
	// unknownLen is the length that memory is split for if the session does not say one.
	unknownLen = 1 << 15
)

// lengthOf is the length of the longest sequence of a session.
func lengthOf(o *wire.Open) int {
	if o.GetMaxTokens() == 0 {
		return unknownLen
	}
	return max(int(o.GetMaxTokens()), int(o.GetBlockTokens()))
}

// forLengths makes the split of pools whose need does not grow with the length fit for long and
// short sequences.
func forLengths(c kvactor.CacheConfig, m kvactor.Model) kvactor.CacheConfig {
	pools, err := windows.Pools(m, c)
	if err != nil || len(pools) == 1 || len(c.PoolFractions) > 0 {
		return c
	}
	c.PoolFractions = windows.Fractions(pools, c.ExpectedSeqLen, min(shortLen, c.ExpectedSeqLen))
	return c
}

// checkOpen refuses values that the engine's words cannot say.
func checkOpen(o *wire.Open, g *geometry) *wire.Error {
	if n := o.GetBlockTokens(); n < 2 || n&(n-1) != 0 {
		return badf("block_tokens %d is no power of two greater than 1", n)
	}
	attention := false
	for i, group := range o.GetGroups() {
		if len(group.GetLayerBytes()) == 0 {
			return badf("groups[%d] has no layers", i)
		}
		state := group.GetKind() == wire.Kind_STATE
		switch {
		case group.GetKind() != wire.Kind_ATTENTION && !state:
			return badf("groups[%d]: kind %d is not known", i, group.GetKind())
		case state && group.GetWindow() != 0:
			return badf("groups[%d]: a state has no window", i)
		case group.GetWindow() == 1 || group.GetWindow() > longest:
			return badf("groups[%d]: a window of %d tokens is not 2 to %d", i, group.GetWindow(), longest)
		}
		attention = attention || !state
		for l, bytes := range group.GetLayerBytes() {
			switch {
			case bytes < 1 || bytes > maxLayerBytes:
				return badf("groups[%d].layer_bytes[%d]: %d is not 1 to %d", i, l, bytes, maxLayerBytes)
			case !state && bytes%uint64(o.GetBlockTokens()) != 0:
				return badf("groups[%d].layer_bytes[%d]: %d bytes are no whole number for each of %d tokens", i,
					l, bytes, o.GetBlockTokens())
			}
		}
	}
	switch {
	case !attention:
		return badf("there is no group of kind ATTENTION")
	case o.GetRanks() > maxRanks || g.layers*g.ranks > windows.MaxLayers:
		return badf("%d layers of %d ranks are more than %d together", g.layers, o.GetRanks(),
			windows.MaxLayers)
	case o.GetMaxTokens() > longest:
		return badf("max_tokens %d is over %d", o.GetMaxTokens(), longest)
	case o.GetFingerprint() == "":
		return badf("the fingerprint is empty")
	case len(o.GetName()) > maxNameBytes || len(o.GetFingerprint()) > maxNameBytes:
		return badf("the name or the fingerprint has more than %d bytes", maxNameBytes)
	}
	return nil
}

const (
	maxNameBytes  = 1024
	maxLayerBytes = 1 << 32
	maxRanks      = 1024
)

// describe is the text of a geometry, without names.
func describe(o *wire.Open, ranks int) string {
	text := fmt.Sprintf("block_tokens %d, ranks %d", o.GetBlockTokens(), ranks)
	for _, group := range o.GetGroups() {
		text += fmt.Sprintf("; %s window %d %v", group.GetKind(), group.GetWindow(),
			group.GetLayerBytes())
	}
	return text
}

// places says where the layers of each group lie in the pages of the pools.
func (g *geometry) places(pools []kvactor.Pool) []*wire.GroupPlaces {
	type place struct {
		pool          int
		offset, bytes int64
	}
	at := make([]place, g.model.Layers)
	for p := range pools {
		for i, layer := range pools[p].Layers {
			bytes := pools[p].PageBytes() / int64(len(pools[p].Layers))
			offset := int64(i) * bytes
			if v, ok := pools[p].View(i, kvactor.Keys); ok {
				offset = v.Offset
			}
			at[layer] = place{p, offset, bytes}
		}
	}
	list := make([]*wire.GroupPlaces, len(g.groups))
	for i, first := range g.groups {
		end := g.layers
		if i+1 < len(g.groups) {
			end = g.groups[i+1]
		}
		list[i] = &wire.GroupPlaces{}
		for l := first; l < end; l++ {
			entry := &wire.LayerPlace{Pool: uint32(at[l].pool), Bytes: uint64(at[l].bytes)}
			for r := range g.ranks {
				entry.Offsets = append(entry.Offsets, uint64(at[r*g.layers+l].offset))
			}
			list[i].Layers = append(list[i].Layers, entry)
		}
	}
	return list
}
