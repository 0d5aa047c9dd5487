package plan

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/hfconfig"
)

// TestPlansAddUp: the parts of any plan agree with one another. Llama 4 takes
// sequences of ten million tokens: divided for those, little memory leaves its chunks
// without a page, and the refusal names the setting.
func TestPlansAddUp(t *testing.T) {
	link, err := sim.NamedProfile(sim.DefaultProfile)
	require.NoError(t, err)
	names := []string{"Llama-3.1-8B", "GPT-OSS-20B", "Gemma-3-4B", "DeepSeek-V3", "Llama-4-Scout",
		"Qwen3-Next-80B-A3B"}
	rapid.Check(t, func(t *rapid.T) {
		cache := windows.DefaultConfig()
		cache.TokensPerBlock = rapid.SampledFrom([]int{8, 32, 128}).Draw(t, "tpb")
		cache.ExpectedSeqLen = rapid.SampledFrom([]int{0, 100, 4096}).Draw(t, "expected")
		preset := windows.Presets()[rapid.SampledFrom(names).Draw(t, "model")]
		p, err := Make(Request{
			Model: hfconfig.Model{Preset: preset}, Cache: cache, Link: link, Parameters: 1e9,
			DeviceBytes: rapid.Int64Range(8<<30, 200<<30).Draw(t, "memory"), Sequences: 7, SeqLen: 333,
		})
		if err != nil {
			assert.Zero(t, cache.ExpectedSeqLen)
			assert.ErrorContains(t, err, fmt.Sprintf("divided for sequences of %d tokens (expected_seq_len)",
				preset.Model.MaxSeqLen))
			return
		}
		bytes, share := int64(0), 0.0
		for _, pool := range p.Pools {
			bytes += int64(pool.Primary) * pool.PageBytes
			share += pool.Share
		}
		assert.Equal(t, bytes, p.Device)
		assert.LessOrEqual(t, float64(p.Device), 0.9*float64(p.DeviceFree)+1)
		assert.InDelta(t, 1, share, 1e-9)
		for i, f := range p.Fits {
			assert.LessOrEqual(t, int64(f.Sequences)*f.Bytes, p.Device,
				"what fits is not more than there is")
			if i > 0 {
				assert.LessOrEqual(t, f.Sequences, p.Fits[i-1].Sequences, "longer sequences are not more")
				assert.GreaterOrEqual(t, p.Offload.Rows[i].Nanos, p.Offload.Rows[i-1].Nanos)
			}
		}
		assert.Zero(t, p.Need.Bytes%7)
		assert.Positive(t, p.LongestAlone)
		if n := p.Offload.BreakEven; n > 0 {
			assert.Zero(t, n%cache.TokensPerBlock)
		}
	})
}
