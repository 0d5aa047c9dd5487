package resources

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/windows"
)

// behind lists keys and values, and the resources behind them.
func behind(list ...added) []added { return append([]added{{"kv_cache", 0, kv}}, list...) }

// changed lists keys and values, and others that differ.
func changed(change func(*PagedKV)) []added {
	r := kv
	change(&r)
	return behind(added{"kv_cache", 1, r})
}

// rules has one case for each rule of the document.
var rules = []struct {
	name            string
	list            []added
	strict, relaxed bool // whether the last resource is managed
	reason          string
}{
	{"the first keys and values", behind(), true, true,
		"the first keys and values, the reference of the others"},
	{"equal ones", behind(added{"kv_cache", 1, kv}), true, true,
		"agrees with kv_cache_0 in head_dim, dtype, kv_factor and kv_layout"},
	{"other head counts", changed(func(r *PagedKV) { r.NumKVHeads = 2 }), true, true,
		"agrees with kv_cache_0"},
	{"the defaults, written out", changed(func(r *PagedKV) { r.KVFactor, r.Layout = 2, windows.HND }),
		true, true, "agrees with kv_cache_0"},
	{"another head_dim", changed(func(r *PagedKV) { r.HeadDim = 64 }), false, true,
		"head_dim 64 differs from 128 of kv_cache_0"},
	{"another dtype", changed(func(r *PagedKV) { r.DType = windows.FP8 }), false, true,
		"dtype fp8 differs from bfloat16 of kv_cache_0"},
	{"another kv_factor", changed(func(r *PagedKV) { r.KVFactor = 1 }), false, true,
		"kv_factor 1 differs from 2 of kv_cache_0"},
	{"another layout", changed(func(r *PagedKV) { r.Layout = windows.NHD }), false, true,
		"kv_layout NHD differs from HND of kv_cache_0"},
	{"an SSM", behind(added{"ssm_state", 1, ssm}), true, true,
		"the first of its kind, the reference of the others"},
	{"an equal SSM", behind(added{"ssm_state", 1, ssm}, added{"ssm_state", 2, ssm}), true, true,
		"agrees with ssm_state_1 in shape and dtype"},
	{"an SSM of another shape",
		behind(added{"ssm_state", 1, ssm}, added{"ssm_state", 2, SSM{128, 64, 64, windows.Float32}}),
		false, true,
		"SSM state 128 x 64 x 64 float32 differs from SSM state 128 x 64 x 128 float32 of ssm_state_1"},
	{"an SSM of another dtype",
		behind(added{"ssm_state", 1, ssm}, added{"ssm_state", 2, SSM{128, 64, 128, windows.BFloat16}}),
		false, true, "differs from"},
	{"a convolution of one group", behind(added{"ssm_state", 1, ssm}, added{"conv_state", 1, conv}),
		true, true, "the first of its kind"},
	{"a convolution of no group",
		behind(added{"ssm_state", 1, ssm},
			added{"conv_state", 1, CausalConv{64 * 128, 4, windows.BFloat16}}), true, true,
		"the first of its kind"},
	{"a convolution of half a group",
		behind(added{"ssm_state", 1, ssm},
			added{"conv_state", 1, CausalConv{64*128 + 128, 4, windows.BFloat16}}), false, true,
		"conv_dim 8320 of conv_state_1 is not head_dim·num_heads + 2·n_groups·d_state = 8192 + " +
			"256·n_groups of ssm_state_1 for any integer n_groups ≥ 0"},
	{"a convolution that is too small",
		behind(added{"ssm_state", 1, ssm}, added{"conv_state", 1, CausalConv{64, 4, windows.BFloat16}}),
		false, true, "n_groups"},
	{"a convolution before its SSM",
		behind(added{"conv_state", 1, CausalConv{64, 4, windows.BFloat16}}, added{"ssm_state", 1, ssm}),
		true, true, "the first of its kind"},
	{"a convolution alone", behind(added{"conv_state", 1, CausalConv{64, 4, windows.BFloat16}}),
		true, true, "the first of its kind"},
	{"a convolution of another shape",
		behind(added{"conv_state", 1, conv},
			added{"conv_state", 2, CausalConv{conv.ConvDim, 3, windows.BFloat16}}), false, true,
		"differs from"},
	{"another state", behind(added{"delta", 1, State{Shape: []int{4, 4}, DType: windows.Float32}}),
		false, false, "local"},
	{"a checkpointable state",
		behind(added{"delta", 1,
			State{Shape: []int{4, 4}, DType: windows.Float32, Checkpointable: true}}), false, true, ""},
	{"rows", behind(added{"rows", 1, Unpaged{TokenShape: []int{4}, DType: windows.Float32}}),
		false, false, "rows of a sequence are not in pages"},
}

// TestRules checks each rule: what is managed with and without it, and the reason.
func TestRules(t *testing.T) {
	for _, tc := range rules {
		t.Run(tc.name, func(t *testing.T) {
			for strict, managed := range map[bool]bool{true: tc.strict, false: tc.relaxed} {
				plan, err := collect(t, tc.list...).Plan(options(strict))
				require.NoError(t, err)
				d := plan.Decisions[len(tc.list)-1]
				assert.Equal(t, managed, d.Managed, "strict %v: %s", strict, d.Reason)
				assert.Contains(t, d.Reason, tc.reason, "strict %v", strict)
				assert.Equal(t, managed, d.Pool != "")
			}
		})
	}
	t.Run("all convolutions are local if the first does not fit", func(t *testing.T) {
		off := CausalConv{64, 4, windows.BFloat16}
		plan, err := collect(t, added{"kv_cache", 0, kv}, added{"ssm_state", 1, ssm},
			added{"conv_state", 1, off}, added{"conv_state", 2, off}).Plan(options(true))
		require.NoError(t, err)
		assert.Equal(t, []string{"conv_state_1", "conv_state_2"}, blockers(plan.Decisions))
	})
}
