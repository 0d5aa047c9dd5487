package scripttest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/kvactor/kvactor/cmd/demo/internal/script"
	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/windows"
)

// Comparison runs the same random scripts over two engines and compares their
// answers: the engine against the oracle, an engine with one schedule of its
// device against another.
type Comparison struct {
	Got, Want script.OpenFunc
	Seeds     uint64 // 0 to Seeds−1
	Requests  int    // of each script, about
}

// Run compares the answers for all seeds. A failure names the seed, the request and both answers.
func (c Comparison) Run(t *testing.T) {
	t.Helper()
	for seed := range c.Seeds {
		if err := c.CompareSeed(seed); err != nil {
			t.Error(err)
		}
	}
}

// CompareSeed compares the answers to the script of one seed.
func (c Comparison) CompareSeed(seed uint64) error {
	requests := Random(seed, c.Requests)
	var got, want bytes.Buffer
	if err := script.Run(bytes.NewReader(requests), &want, c.Want); err != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	if err := script.Run(bytes.NewReader(requests), &got, c.Got); err != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	err := script.Equal(got.Bytes(), want.Bytes(), script.Protocol)
	if err == nil {
		return nil
	}
	// Every line of a random script is a request, so answers count them.
	var n int
	if _, scan := fmt.Sscanf(err.Error(), "answer %d:", &n); scan != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	return fmt.Errorf("seed %d: request %d: %s: %w", seed, n, bytes.Split(requests, []byte("\n"))[n-1], err)
}

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
		EventLimit:         s.Cache.EventBufferMaxSize, Clock: s.Clock.Now, Weights: s.Weights,
	}
	for i, p := range s.Pools {
		c.Pools = append(c.Pools, oracle.PoolConfig{
			Name: p.Name, State: p.Kind == windows.KindState, Window: p.Window, Sink: p.Sink, KVHeads: p.KVHeads, Layers: p.Layers,
			PageBytes: p.PageBytes(), Primary: pages[i].Primary, Secondary: pages[i].Secondary,
		})
	}
	return &script.Rig{Engine: oracle.New(c)}, nil
}
