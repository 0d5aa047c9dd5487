package scripttest

import (
	"github.com/kvactor/kvactor/cmd/demo/internal/script"
	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/windows"
)

var _ script.Engine = (*oracle.Oracle)(nil)

// OpenOracle opens the oracle: decisions and counts, no device and no bytes.
func OpenOracle(s script.Setup) (*script.Rig, error) {
	pages := s.Pages
	if pages == nil {
		var err error
		pages, err = windows.Split(s.Pools, s.Model, s.Cache, windows.Budget{DeviceBytes: s.DeviceMemory})
		if err != nil {
			return nil, err
		}
	}
	c := oracle.Config{
		TokensPerBlock: s.Cache.TokensPerBlock, MaxSeqLen: s.Model.MaxSeqLen,
		SecondaryOffloadMinPriority: s.Cache.SecondaryOffloadMinPriority,
		OnboardBlocks:               s.Cache.OnboardBlocks, BlockReuse: s.Cache.EnableBlockReuse,
		PartialReuse: s.Cache.EnablePartialReuse, CopyOnPartialReuse: s.Cache.CopyOnPartialReuse,
		SaltQuotas: s.Cache.SaltQuotas, OtherSaltsQuota: s.Cache.OtherSaltsQuota,
		CheckpointInterval: s.Cache.StateCheckpointInterval,
		EventLimit:         s.Cache.EventBufferMaxSize, Clock: s.Clock.Now,
	}
	for i, p := range s.Pools {
		c.Pools = append(c.Pools, oracle.PoolConfig{
			Name: p.Name, State: p.Kind == windows.KindState, Window: p.Window, Sink: p.Sink, KVHeads: p.KVHeads, Layers: p.Layers,
			PageBytes: p.PageBytes(), Primary: pages[i].Primary, Secondary: pages[i].Secondary,
		})
	}
	return &script.Rig{Engine: oracle.New(c)}, nil
}
