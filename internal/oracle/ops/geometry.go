package ops

import (
	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/windows"
)

// Geometry gives the model and the configuration from which an engine gets the
// pools of a drawn world: each pool is one layer. The page counts, which
// windows.Split would choose, are those of the world's pools.
func Geometry(c oracle.Config) (windows.Model, windows.Config) {
	m := windows.Model{Layers: len(c.Pools), HeadDim: HeadDim, DType: "float16", MaxSeqLen: c.MaxSeqLen}
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
