package attention_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu/attention"
)

func TestRoPE(t *testing.T) {
	all := fixtures(t)
	for name, style := range map[string]attention.RoPEStyle{
		"rope_neox": attention.GPTNeoX, "rope_gptj": attention.GPTJ,
		"rope_neox_partial": attention.GPTNeoX, "rope_gptj_partial": attention.GPTJ,
	} {
		f := all[name]
		inverse := attention.Inverses(f.Params.Base, f.Params.RotaryDim)
		table, computed := attention.NewRoPE(style, inverse, 1, 40000),
			attention.NewRoPE(style, inverse, 1, 0)
		for i, p := range f.Params.Positions {
			x, y := clone(f.arrays["x"].x[i*8:(i+1)*8]), clone(f.arrays["x"].x[i*8:(i+1)*8])
			table.Rotate(x, p)
			computed.Rotate(y, p)
			near(t, f.arrays["out"].x[i*8:(i+1)*8], x, 5e-7, name)
			same(t, x, y, name+" with and without a table")
		}
	}
}

func TestRoPEScaling(t *testing.T) {
	all := fixtures(t)
	type params struct {
		Theta     float64   `json:"rope_theta"`
		Factor    float64   `json:"factor"`
		Low       float64   `json:"low_freq_factor"`
		High      float64   `json:"high_freq_factor"`
		Original  float64   `json:"original_max_position_embeddings"`
		Fast      float64   `json:"beta_fast"`
		Slow      float64   `json:"beta_slow"`
		Truncate  *bool     `json:"truncate"`
		MScale    float64   `json:"mscale"`
		AllDim    float64   `json:"mscale_all_dim"`
		Long      []float64 `json:"long_factor"`
		Attention float64   `json:"attention_factor"`
	}
	for _, name := range []string{"rope_linear", "rope_llama3", "rope_yarn", "rope_yarn_truncated",
		"rope_longrope"} {
		var p params
		require.NoError(t, json.Unmarshal(all[name].raw, &p))
		inverse, factor := attention.Inverses(p.Theta, 64), 1.0
		switch name {
		case "rope_linear":
			inverse = attention.ScaleLinear(inverse, p.Factor)
		case "rope_llama3":
			inverse = attention.Llama3Scaling{Factor: p.Factor, LowFreq: p.Low, HighFreq: p.High,
				OriginalLen: p.Original}.Scale(inverse)
		case "rope_longrope":
			inverse = attention.ScaleLongRoPE(inverse, p.Long)
			factor = attention.LongRoPEFactor(131072/p.Original, p.Original)
		default:
			s := attention.YaRNScaling{Base: p.Theta, Factor: p.Factor, BetaFast: p.Fast, BetaSlow: p.Slow,
				OriginalLen: p.Original,
				Truncate:    p.Truncate == nil || *p.Truncate, MScale: p.MScale, MScaleAllDim: p.AllDim}
			inverse, factor = s.Scale(inverse), s.CosSinFactor()
		}
		assert.InDelta(t, p.Attention, factor, 1e-12, name)
		for i, want := range all[name].arrays["inv_freq"].x {
			assert.InEpsilon(t, float64(want), inverse[i], 3e-6, "%s, pair %d", name, i)
		}
	}
}

func TestALiBiSlopes(t *testing.T) {
	all := fixtures(t)
	for _, name := range []string{"alibi_slopes_1", "alibi_slopes_2", "alibi_slopes_3",
		"alibi_slopes_6", "alibi_slopes_8", "alibi_slopes_12"} {
		f := all[name]
		same(t, f.arrays["slopes"].x, attention.ALiBiSlopes(f.Params.Heads), name)
	}
}

func TestRelativeBuckets(t *testing.T) {
	all := fixtures(t)
	for _, name := range []string{"relative_bias", "relative_bias_bidirectional"} {
		f := all[name]
		b := attention.RelativeBias{Buckets: f.Params.Buckets, MaxDistance: f.Params.MaxDistance,
			Bidirectional: f.Params.Bidirectional}
		for i, want := range f.arrays["buckets_of"].x {
			assert.Equal(t, int(want), b.Bucket(i-40), "%s, distance %d", name, i-40)
		}
	}
}

// Exp and Tanh are right to the last bit or the one before.
func TestExpAndTanh(t *testing.T) {
	ulps := func(want float64, got float32) float64 {
		w := float32(want)
		unit := math.Nextafter32(w, float32(math.Inf(1))) - w
		return math.Abs(want-float64(got)) / float64(unit)
	}
	for x := float32(-103); x < 88; x += 0.00371 {
		if want := math.Exp(float64(x)); want > 1e-37 {
			require.LessOrEqual(t, ulps(want, attention.Exp(x)), 0.51, "e^%g", x)
		}
		if x > -12 && x < 12 {
			require.LessOrEqual(t, ulps(math.Tanh(float64(x)), attention.Tanh(x)), 3.0, "tanh %g", x)
		}
	}
	assert.Equal(t, float32(1), attention.Exp(0))
	assert.Zero(t, attention.Exp(float32(math.Inf(-1))))
	assert.True(t, math.IsInf(float64(attention.Exp(100)), 1))
	assert.True(t, math.IsNaN(float64(attention.Exp(float32(math.NaN())))))
}
