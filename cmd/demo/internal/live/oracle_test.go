package live_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/script"
	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/windows"
)

var _ script.Engine = (*oracle.Oracle)(nil)

// openOracle opens the oracle: decisions and counts, no device and no bytes.
func openOracle(s script.Setup) (*script.Rig, error) {
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

func TestExamplesOverTheOracle(t *testing.T) {
	examples{
		folder: "../../testdata/scripts", open: openOracle,
		without: []string{"17-rebalance", "35-states-and-rebalance"}, // no part of the model
	}.run(t)
}

// Other examples can be run without copying them here.
func TestOtherExamplesOverTheOracle(t *testing.T) {
	if folder := os.Getenv("KVACTOR_EXAMPLES"); folder != "" {
		examples{folder: folder, open: openOracle}.run(t)
	}
}

// Random scripts are served without internal errors, and the same script gives
// the same answers, to the byte.
func TestRandomScriptsOverTheOracle(t *testing.T) {
	for seed := range uint64(30) {
		requests := randomScript(seed, 60)
		require.Equal(t, requests, randomScript(seed, 60))
		var first, second bytes.Buffer
		require.NoError(t, script.Run(bytes.NewReader(requests), &first, openOracle))
		require.NoError(t, script.Run(bytes.NewReader(requests), &second, openOracle))
		require.Equalf(t, first.String(), second.String(), "seed %d", seed)
		require.NotContainsf(t, first.String(), `"code":"internal"`, "seed %d", seed)
		require.Greaterf(t, strings.Count(first.String(), `"ok":true`), 40, "seed %d", seed)
	}
}

// A comparison sees one decision that differs, and says which.
func TestComparisonFailsWhenAnswersDiffer(t *testing.T) {
	c := comparison{got: openOracle, want: openOracle, requests: 40}
	require.NoError(t, c.compareSeed(1))
	c.got = func(s script.Setup) (*script.Rig, error) {
		s.Cache.EnableBlockReuse = false
		return openOracle(s)
	}
	err := c.compareSeed(1)
	require.ErrorContains(t, err, "seed 1: request ")
}
