package oracle_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/windows"
)

// HeadDim and ElementBytes are those of all pools; page sizes follow from them.
const (
	HeadDim      = 8
	ElementBytes = 2
)

// shape is what makes a pool: window (0: full attention) and KV heads.
type shape struct{ window, heads int }

// drawConfig draws a small world: few pages, so that everything is evicted soon.
func drawConfig(t *rapid.T, clock func() time.Duration) oracle.Config {
	c := oracle.Config{
		TokensPerBlock: rapid.SampledFrom([]int{2, 4}).Draw(t, "tpb"),
		MaxSeqLen:      rapid.SampledFrom([]int{14, 30}).Draw(t, "max_seq_len"),

		SecondaryOffloadMinPriority: rapid.SampledFrom([]int{35, 35, 0, 50}).Draw(t, "offload min"),
		OnboardBlocks:               mostly(t, "onboard"),
		BlockReuse:                  mostly(t, "reuse"),
		PartialReuse:                mostly(t, "partial"),
		CopyOnPartialReuse:          mostly(t, "copy"),
		EventLimit:                  1 << 16,
		Clock:                       clock,
	}
	drawQuotas(t, &c)
	sink := rapid.SampledFrom([]int{0, 0, 1, 3, 4}).Draw(t, "sink")
	secondary := rapid.SampledFrom([]int{0, 2, 5}).Draw(t, "secondary")
	var shapes []shape
	alone := rapid.IntRange(0, 9).Draw(t, "states alone") == 9
	if !alone {
		shapes = drawShapes(t)
	}
	for layer, s := range shapes {
		p := oracle.PoolConfig{
			Window: s.window, KVHeads: s.heads, Layers: []int{layer},
			Primary: rapid.IntRange(3, 12).Draw(t, "primary"),
			Name:    fmt.Sprintf("w%dh%d", s.window, s.heads),
		}
		p.PageBytes = int64(2 * p.KVHeads * c.TokensPerBlock * HeadDim * ElementBytes)
		if s.window == 0 {
			p.Name = fmt.Sprintf("wfullh%d", s.heads)
		} else {
			p.Sink = sink
		}
		if secondary > 0 {
			p.Secondary = rapid.IntRange(1, 1+secondary).Draw(t, "secondary pages")
		}
		c.Pools = append(c.Pools, p)
	}
	drawStates(t, &c, secondary, alone)
	drawStore(t, &c)
	return c
}

// drawStates gives a third of the worlds recurrent layers, and those without attention.
func drawStates(t *rapid.T, c *oracle.Config, secondary int, alone bool) {
	if !alone && rapid.IntRange(0, 2).Draw(t, "states") > 0 {
		return
	}
	c.CheckpointInterval = c.TokensPerBlock * rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t,
		"checkpoint interval")
	names := []string{"state", "state.2"}
	for i := range rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "state pools") {
		p := oracle.PoolConfig{
			Name: names[i], State: true, Layers: []int{len(c.Pools)}, PageBytes: int64(16 * (i + 1)),
			Primary: rapid.IntRange(2, 9).Draw(t, "primary"),
		}
		if secondary > 0 {
			p.Secondary = rapid.IntRange(1, 1+secondary).Draw(t, "secondary pages")
		}
		c.Pools = append(c.Pools, p)
	}
}

// drawShapes draws pools in their order: ascending window, full attention last,
// then ascending heads.
func drawShapes(t *rapid.T) []shape {
	one := rapid.Custom(func(t *rapid.T) shape {
		return shape{
			rapid.SampledFrom([]int{0, 0, 2, 3, 4, 5, 8}).Draw(t, "window"),
			rapid.IntRange(1, 2).Draw(t, "heads"),
		}
	})
	shapes := rapid.SliceOfNDistinct(one, 1, 3, func(s shape) shape { return s }).Draw(t, "pools")
	slices.SortFunc(shapes, func(a, b shape) int {
		if (a.window == 0) != (b.window == 0) {
			return b.window - a.window
		}
		return cmp.Or(a.window-b.window, a.heads-b.heads)
	})
	return shapes
}

// mostly is true seven times of eight.
func mostly(t *rapid.T, label string) bool { return !rarely(t, label) }

func rarely(t *rapid.T, label string) bool { return rapid.IntRange(0, 7).Draw(t, label) == 7 }

// drawQuotas divides the pools of half the worlds between the salts.
func drawQuotas(t *rapid.T, c *oracle.Config) {
	share := rapid.SampledFrom([]float64{0.1, 0.25, 0.5, 0.5, 1})
	if rapid.Bool().Draw(t, "quotas") {
		c.SaltQuotas = rapid.MapOfN(rapid.SampledFrom(salts[1:]), share, 0, 2).Draw(t, "salt quotas")
	}
	if len(c.SaltQuotas) > 0 && rapid.Bool().Draw(t, "other quota") {
		c.OtherSaltsQuota = share.Draw(t, "others")
	}
}

// Engine is what two implementations must have to be compared: the requests of
// a host.
type Engine = host.Engine

// Geometry gives the model and the configuration from which an engine gets the
// pools of a drawn world: each pool is one layer. The page counts, which
// windows.Split would choose, are those of the world's pools.
func Geometry(c oracle.Config) (windows.Model, windows.Config) {
	m := windows.Model{Layers: len(c.Pools), HeadDim: HeadDim, DType: "float16",
		MaxSeqLen: c.MaxSeqLen}
	w := windows.DefaultConfig()
	w.TokensPerBlock = c.TokensPerBlock
	for layer, p := range c.Pools {
		if p.State {
			m.States = append(m.States, windows.State{Layers: []int{layer}, Bytes: p.PageBytes})
		}
		m.KVHeads = append(m.KVHeads, p.KVHeads)
		window := p.Window
		if window == 0 {
			window = c.MaxSeqLen
		}
		w.MaxAttentionWindow = append(w.MaxAttentionWindow, window)
		w.SinkTokenLength = max(w.SinkTokenLength, p.Sink)
		w.HostCacheSize += int64(p.Secondary) * p.PageBytes
	}
	w.EnableBlockReuse, w.EnablePartialReuse = c.BlockReuse, c.PartialReuse
	w.CopyOnPartialReuse, w.OnboardBlocks = c.CopyOnPartialReuse, c.OnboardBlocks
	w.SecondaryOffloadMinPriority = c.SecondaryOffloadMinPriority
	w.StateCheckpointInterval = c.CheckpointInterval
	w.EventBufferMaxSize = c.EventLimit
	w.SaltQuotas, w.OtherSaltsQuota = c.SaltQuotas, c.OtherSaltsQuota
	return m, w
}
