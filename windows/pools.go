package windows

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/kvactor/kvactor/messages"
)

// identity is what layers must share to be of one pool.
type identity struct {
	window int // 0: full attention
	layer
}

// Pools groups the layers of a model: ascending window, full attention last,
// then ascending KV heads, then the first layer. It validates both arguments.
func Pools(m Model, c Config) ([]Pool, error) {
	if err := c.Validate(m); err != nil {
		return nil, err
	}
	return group(m, c), nil
}

// group is Pools of what is valid by itself.
func group(m Model, c Config) []Pool {
	var pools []Pool
	index := make(map[identity]int)
	for i := range m.Layers {
		id := c.identity(m, i)
		at, ok := index[id]
		if !ok {
			at = len(pools)
			index[id] = at
			pools = append(pools, c.pool(id))
		}
		pools[at].Layers = append(pools[at].Layers, i)
	}
	nameAll(pools)
	// Pools were found in order of their first layers, which a stable sort keeps.
	slices.SortStableFunc(pools, func(a, b Pool) int {
		if a.Full() != b.Full() {
			return cmp.Compare(b.Window, a.Window) // 0, full attention, goes last
		}
		return cmp.Or(cmp.Compare(a.Window, b.Window), cmp.Compare(a.KVHeads, b.KVHeads))
	})
	for i := range pools {
		pools[i].ID = messages.PoolID(i)
	}
	return pools
}

// identity says to which pool layer i belongs. A window that no sequence can
// outgrow is full attention.
func (c Config) identity(m Model, i int) identity {
	id := identity{layer: m.layer(i)}
	if n := len(c.MaxAttentionWindow); n > 0 && c.MaxAttentionWindow[i%n] < m.MaxSeqLen {
		id.window = c.MaxAttentionWindow[i%n]
	}
	if c.DType != AutoDType {
		id.dtype = DType(c.DType)
	}
	return id
}

func (c Config) pool(id identity) Pool {
	p := Pool{
		Window: id.window, KVHeads: id.heads, HeadDim: id.dim, DType: id.dtype,
		TokensPerBlock: c.TokensPerBlock,
	}
	if !p.Full() {
		p.Sink = c.SinkTokenLength
	}
	return p
}

// nameAll names pools that are in order of their first layers.
func nameAll(pools []Pool) {
	seen := make(map[string]int)
	for i := range pools {
		p := &pools[i]
		window := "full"
		if !p.Full() {
			window = strconv.Itoa(p.Window)
		}
		p.Name = fmt.Sprintf("w%sh%d", window, p.KVHeads)
		seen[p.Name]++
		if n := seen[p.Name]; n > 1 {
			p.Name += "." + strconv.Itoa(n)
		}
	}
}
