package resources

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

var (
	kv   = PagedKV{NumKVHeads: 8, HeadDim: 128, DType: windows.BFloat16}
	ssm  = SSM{NumHeads: 128, HeadDim: 64, DState: 128, DType: windows.Float32}
	conv = CausalConv{ConvDim: 64*128 + 2*128, DConv: 4, DType: windows.BFloat16}
)

// added is a resource with its kind and layer.
type added struct {
	kind     string
	layer    int
	resource Resource
}

// collect makes a collection.
func collect(t require.TestingT, list ...added) *Collection {
	c := new(Collection)
	for _, a := range list {
		require.NoError(t, c.Add(a.kind, a.layer, a.resource))
	}
	return c
}

func options(strict bool) Options {
	return Options{Strict: strict, Cache: windows.DefaultConfig(), MaxSeqLen: 4096, MaxSequences: 4}
}

// A plan draws itself with the reason of each decision.
func TestString(t *testing.T) {
	c := collect(t,
		added{"kv_cache", 0, kv}, added{"ssm_state", 1, ssm}, added{"conv_state", 1, conv},
		added{"kv_cache", 2, PagedKV{NumKVHeads: 2, HeadDim: 64, DType: windows.BFloat16, Window: 512}},
	)
	assert.Equal(t, []string{"kv_cache_0", "ssm_state_1", "conv_state_1", "kv_cache_2"}, c.Names())
	plan, err := c.Plan(options(false))
	require.NoError(t, err)
	assert.Equal(t, `kv_cache_0: 8 KV heads x 128 bfloat16, kv_factor 2, HND: managed in wfullh8 (the first keys and values, the reference of the others)
ssm_state_1: SSM state 128 x 64 x 128 float32: managed in state (the first of its kind, the reference of the others)
conv_state_1: convolution state 8448 x 3 bfloat16: managed in state (the first of its kind, the reference of the others)
kv_cache_2: 2 KV heads x 64 bfloat16, kv_factor 2, HND, window 512: managed in w512h2 (head_dim 64 differs from 128 of kv_cache_0: another pool)
pool w512h2 bfloat16x64 layers 2 page 16384 B
pool wfullh8 bfloat16x128 layers 0 page 131072 B
pool state 4244992 B layers 1 page 4244992 B
reuse is on
`, plan.String())

	plan, err = c.Plan(options(true))
	require.NoError(t, err)
	assert.Contains(t, plan.String(),
		"kv_cache_2: 2 KV heads x 64 bfloat16, kv_factor 2, HND, window 512: local (head_dim 64 "+
			"differs from 128 of kv_cache_0)\n")
	assert.Contains(t, plan.String(), "local: 2097152 B for each of 4 sequences\n")
	assert.Contains(t, plan.String(),
		"reuse is off: kv_cache_2 is local: its contents cannot be reused\n")
}

// Reuse is refused for the sake of local resources only, by name.
func TestReuse(t *testing.T) {
	state := State{Shape: []int{4}, DType: windows.Float32}
	plan, err := collect(t, added{"kv_cache", 0, kv}, added{"ssm_state", 1, ssm}).Plan(options(true))
	require.NoError(t, err)
	assert.True(t, plan.Cache.EnableBlockReuse, "states have checkpoints")
	assert.Empty(t, plan.ReuseRefused)

	plan, err = collect(t, added{"kv_cache", 0, kv}, added{"a", 1, state}, added{"b", 1, state}).
		Plan(options(false))
	require.NoError(t, err)
	assert.False(t, plan.Cache.EnableBlockReuse)
	assert.Equal(t, "a_1, b_1 are local: their contents cannot be reused", plan.ReuseRefused)

	o := options(false)
	o.Cache.EnableBlockReuse = false
	plan, err = collect(t, added{"kv_cache", 0, kv}, added{"a", 1, state}).Plan(o)
	require.NoError(t, err)
	assert.Empty(t, plan.ReuseRefused)
	assert.Contains(t, plan.String(), "reuse is off, as configured\n")
}

func TestAddRefuses(t *testing.T) {
	c := collect(t, added{"kv_cache", 0, kv})
	cases := []struct {
		kind     string
		layer    int
		resource Resource
		want     string
	}{
		{"", 1, kv, "resource _1: its kind has no name"},
		{"kv_cache", -1, kv, "resource kv_cache_-1: layer -1 is not between 0 and 4095"},
		{"kv_cache", 1, nil, "resource kv_cache_1: it is nil"},
		{"kv_cache", 0, kv, "resource kv_cache_0: there is one of this name already"},
		{"more", 0, kv, "resource more_0: layer 0 has keys and values already, kv_cache_0"},
		{"kv_cache", 1, PagedKV{HeadDim: 1, DType: windows.FP8},
			"resource kv_cache_1: num_kv_heads 0 is not between 1 and 1048576"},
		{"kv_cache", 1, PagedKV{NumKVHeads: 1, HeadDim: 1, DType: "x"},
			`resource kv_cache_1: dtype "x" is not known`},
		{"kv_cache", 1, PagedKV{NumKVHeads: 1, HeadDim: 1, DType: windows.FP8, KVFactor: 3},
			"resource kv_cache_1: kv_factor 3 is not 1 or 2"},
		{"kv_cache", 1, PagedKV{NumKVHeads: 1, HeadDim: 1, DType: windows.FP8, Layout: "x"},
			`resource kv_cache_1: kv_layout "x" is not one of HND, NHD`},
		{"kv_cache", 1, PagedKV{NumKVHeads: 1, HeadDim: 1, DType: windows.FP8, Window: 1},
			"resource kv_cache_1: window 1 is neither 0 nor 2 or more"},
		{"s", 1, SSM{1, 1, 0, windows.FP8}, "resource s_1: d_state 0 is not between 1 and 1048576"},
		{"s", 1, CausalConv{1, 1, windows.FP8}, "resource s_1: d_conv 1 is not between 2 and 1048576"},
		{"s", 1, State{DType: windows.FP8}, "resource s_1: shape is empty"},
		{"s", 1, State{Shape: []int{1 << 20, 1 << 20}, DType: windows.FP8},
			"resource s_1: shape has more than 17179869184 elements"},
		{"s", 1, Unpaged{TokenShape: []int{1}, DType: windows.NVFP4},
			`resource s_1: dtype "nvfp4" is not known`},
	}
	for _, tc := range cases {
		err := c.Add(tc.kind, tc.layer, tc.resource)
		require.EqualError(t, err, tc.want)
		assert.ErrorIs(t, err, messages.ErrBadRequest)
	}
	assert.Equal(t, []string{"kv_cache_0"}, c.Names(), "what is refused is not added")
}

func TestPlanRefuses(t *testing.T) {
	o := options(false)
	o.MaxSequences = 0
	_, err := collect(t, added{"kv_cache", 0, kv}).Plan(o)
	assert.EqualError(t, err, "max_sequences 0 is not 1 or more")
	_, err = new(Collection).Plan(options(false))
	assert.EqualError(t, err, "no layer has declared a resource: see Collection.Add and Declare")
	p, err := collect(t, added{"ssm_state", 0, ssm}, added{"ssm_state", 1, ssm}).Plan(options(false))
	require.NoError(t, err)
	assert.Len(t, p.Pools, 1, "states alone are a pool, too")
	o = options(false)
	o.MaxSeqLen, o.Cache.TokensPerBlock = 0, 3
	_, err = collect(t, added{"kv_cache", 0, kv}).Plan(o)
	assert.ErrorContains(t, err, "max_seq_len 0")
	assert.ErrorContains(t, err, "tokens_per_block 3")
}

// TestViewsDoNotOverlap: every resource has its own bytes, within its page or slot.
func TestViewsDoNotOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, shared := new(Collection), []string(nil)
		for layer := range rapid.IntRange(1, 4).Draw(t, "layers") {
			for i, r := range drawn(t, layer) {
				require.NoError(t, c.Add(fmt.Sprintf("r%d", i), layer, r))
				if _, ok := r.(SharedKV); ok {
					shared = append(shared, fmt.Sprintf("r%d_%d", i, layer))
				}
			}
		}
		o := options(rapid.Bool().Draw(t, "strict"))
		o.MaxSeqLen, o.Cache.TokensPerBlock = 16, 4
		o.Cache.DType =
			rapid.SampledFrom([]string{windows.AutoDType, "fp8", "nvfp4", "float16", "float32"}).
				Draw(t, "cache dtype")
		o.Cache.MambaSSMCacheDType = rapid.SampledFrom([]string{"", windows.AutoDType, "float16"}).
			Draw(t, "state dtype")
		plan, err := c.Plan(o)
		require.NoError(t, err)
		agree(t, plan)
		used := make(map[string]map[int64]string)
		for _, name := range c.Names() {
			_, ok := plan.View(name)
			require.True(t, ok, name)
		}
		for name, v := range plan.views {
			require.Equal(t, name, v.Name)
			if whole, _, _ := strings.Cut(name, "."); slices.Contains(shared, whole) {
				of, _ := plan.View(strings.Replace(name, whole, "r0_0", 1))
				of.Name = name
				require.Equal(t, of, v, "a layer reads where the other writes")
				continue
			}
			if used[v.Pool] == nil {
				used[v.Pool] = make(map[int64]string)
			}
			each(v.Shape, v.Strides, v.Offset, func(at int64) {
				require.Less(t, at, v.PageBytes, name)
				require.Empty(t, used[v.Pool][at], "%s and %s", name, used[v.Pool][at])
				used[v.Pool][at] = name
			})
		}
		_, ok := plan.View("nothing")
		assert.False(t, ok)
	})
}

// agree holds the view of managed keys and values to that of their pool, and every element to the
// type that the pool has.
func agree(t *rapid.T, plan *Plan) {
	for _, d := range plan.Decisions {
		kv, paged := d.Resource.(PagedKV)
		if !paged || !d.Managed {
			continue
		}
		v, _ := plan.View(d.Name)
		pool := plan.Pools[slices.IndexFunc(plan.Pools, func(p windows.Pool) bool {
			return p.Name == d.Pool
		})]
		require.Equal(t, pool.DType, kv.DType, "%s: %s", d.Name, d.Reason)
		head, token, value := 1, 2, 0
		if kv.layout() == windows.NHD {
			head, token, value = 2, 0, 1
		}
		if kv.split() {
			head, token = head-1, max(0, token-1)
			if kv.layout() == windows.NHD {
				head, token = 1, 0
			}
			values, ok := plan.View(d.Name + ".values")
			require.True(t, ok)
			for part, of := range map[windows.Part]View{windows.Keys: v, windows.Values: values} {
				want, _ := pool.View(v.Layer, part)
				require.Equal(t, want, windows.View{
					Offset: of.Offset, HeadStride: of.Strides[head], TokenStride: of.Strides[token],
					RowBytes: int64(of.Shape[2]) * of.Strides[2],
				}, d.Name)
			}
			continue
		}
		for part, at := range []int64{v.Offset, v.Offset + v.Strides[value]} {
			if want, ok := pool.View(v.Layer, []windows.Part{windows.Keys, windows.Values}[part]); ok {
				got := windows.View{
					Offset: at, HeadStride: v.Strides[head], TokenStride: v.Strides[token],
					RowBytes: int64(v.Shape[3]) * v.Strides[3],
				}
				require.Equal(t, want, got, d.Name)
			}
		}
	}
}

// drawn are the resources of one layer; layer 0 has keys and values.
func drawn(t *rapid.T, layer int) []Resource {
	small := rapid.IntRange(1, 3)
	var out []Resource
	switch {
	case layer == 0 || rapid.Bool().Draw(t, "kv"):
		kv := PagedKV{
			NumKVHeads: small.Draw(t, "heads"), HeadDim: 16 * small.Draw(t, "dim"),
			KVFactor:  rapid.IntRange(1, 2).Draw(t, "factor"),
			DType:     rapid.SampledFrom([]windows.DType{windows.FP8, windows.BFloat16}).Draw(t, "dtype"),
			Layout:    rapid.SampledFrom([]windows.Layout{"", windows.NHD}).Draw(t, "layout"),
			SideBytes: rapid.SampledFrom([]int{0, 0, 12}).Draw(t, "side"),
		}
		if kv.KVFactor == 2 {
			kv.ValueDim = 16 * rapid.IntRange(0, 2).Draw(t, "value dim")
		}
		switch rapid.IntRange(0, 2).Draw(t, "reach") {
		case 1:
			kv.Window = 8
		case 2:
			kv.Chunk = 8
		}
		out = append(out, kv)
	case rapid.Bool().Draw(t, "shared"):
		out = append(out, SharedKV{Layer: 0})
	}
	if rapid.Bool().Draw(t, "ssm") {
		out = append(out, SSM{
			small.Draw(t, "heads"), small.Draw(t, "dim"), small.Draw(t, "state"), windows.Float32,
		})
	}
	if rapid.Bool().Draw(t, "conv") {
		out = append(out, CausalConv{
			small.Draw(t, "channels"), 1 + small.Draw(t, "kernel"), windows.BFloat16,
		})
	}
	if rapid.Bool().Draw(t, "state") {
		out = append(out, State{
			Shape: []int{small.Draw(t, "a"), 3}, DType: windows.FP8, Checkpointable: rapid.Bool().
				Draw(t, "checkpointable"),
		})
	}
	if rapid.Bool().Draw(t, "rows") {
		out = append(out, Unpaged{TokenShape: []int{small.Draw(t, "a"), 2}, DType: windows.BFloat16})
	}
	return out
}

// each visits the first byte of every element.
func each(shape []int, strides []int64, at int64, visit func(int64)) {
	if len(shape) == 0 {
		visit(at)
		return
	}
	for i := range shape[0] {
		each(shape[1:], strides[1:], at+int64(i)*strides[0], visit)
	}
}

// TestViews has the numbers of one plan, so that they can be read.
func TestViews(t *testing.T) {
	c := collect(t,
		added{"kv_cache", 0, PagedKV{NumKVHeads: 2, HeadDim: 8, DType: windows.Float16}},
		added{"kv_cache", 1, PagedKV{NumKVHeads: 2, HeadDim: 8, DType: windows.Float16}},
		added{"ssm_state", 2, SSM{2, 3, 4, windows.Float32}},
		added{"conv_state", 2, CausalConv{14, 4, windows.Float16}},
		added{"rows", 2, Unpaged{TokenShape: []int{5}, DType: windows.Float32}},
	)
	o := options(false)
	o.Cache.TokensPerBlock, o.MaxSeqLen = 4, 8
	plan, err := c.Plan(o)
	require.NoError(t, err)
	view := func(name string) View { v, _ := plan.View(name); return v }
	// A layer has 2 × 2 heads × 4 tokens × 16 bytes.
	assert.Equal(t,
		View{Name: "kv_cache_1", Managed: true, Pool: "wfullh2", Layer: 1, PageBytes: 512, Offset: 256,
			Shape: []int{2, 2, 4, 8}, Strides: []int64{128, 64, 16, 2}}, view("kv_cache_1"))
	// Of the 192 bytes, 84 are the state, behind 96.
	assert.Equal(t, View{Name: "conv_state_2", Managed: true, Pool: "state", PageBytes: 192, Offset: 96,
		Shape: []int{14, 3}, Strides: []int64{6, 2}}, view("conv_state_2"))
	assert.Equal(t, View{Name: "rows_2", PageBytes: 256, Shape: []int{8, 5}, Strides: []int64{20, 4}},
		view("rows_2"))
}

// Rows of NVFP4 have their scales beside them, in pages and in slots alike.
func TestViewsOfScales(t *testing.T) {
	kv := PagedKV{NumKVHeads: 2, HeadDim: 32, DType: windows.NVFP4}
	other := kv
	other.HeadDim, other.Layout = 64, windows.NHD
	o := options(true)
	o.Cache.TokensPerBlock, o.MaxSeqLen = 4, 8
	plan, err := collect(t, added{"kv", 0, kv}, added{"kv", 1, other}).Plan(o)
	require.NoError(t, err)
	view := func(name string) View { v, _ := plan.View(name); return v }
	// Keys and values of 2 heads × 4 tokens × 16 bytes each, then a byte for 16 elements.
	assert.Equal(t,
		View{Name: "kv_0.key_scales", Managed: true, Pool: "wfullh2", PageBytes: 288, Offset: 256,
			Shape: []int{2, 4, 2}, Strides: []int64{8, 2, 1}}, view("kv_0.key_scales"))
	assert.EqualValues(t, 256+16, view("kv_0.value_scales").Offset)
	// In the slot 8 tokens of 2 × 2 heads × 32 bytes.
	assert.Equal(t, View{Name: "kv_1.key_scales", PageBytes: 1280, Offset: 1024,
		Shape: []int{8, 2, 4}, Strides: []int64{16, 4, 1}}, view("kv_1.key_scales"))
	assert.EqualValues(t, 1024+8, view("kv_1.value_scales").Offset)
	_, ok := plan.View("kv_0.values")
	assert.False(t, ok)
}

// The memory of the local resources is a page for each slot.
func TestLocal(t *testing.T) {
	d, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	plan, err := collect(t, added{"kv_cache", 0, kv},
		added{"delta", 1, State{Shape: []int{100}, DType: windows.Float32}}).Plan(options(false))
	require.NoError(t, err)
	local, err := plan.Allocate(d)
	require.NoError(t, err)
	_, exists := local.Pool()
	assert.True(t, exists)
	memory, err := d.Memory()
	require.NoError(t, err)
	assert.EqualValues(t, 4*512, memory.Total-memory.Free)
	require.NoError(t, local.Close())
	require.NoError(t, local.Close())

	o := options(false)
	o.MaxSequences = 1 << 20
	plan, err = collect(t, added{"kv_cache", 0, kv},
		added{"delta", 1, State{Shape: []int{100}, DType: windows.Float32}}).Plan(o)
	require.NoError(t, err)
	_, err = plan.Allocate(d)
	assert.ErrorContains(t, err, "1048576 slots of 512 bytes")

	plan, err = collect(t, added{"kv_cache", 0, kv}).Plan(options(false))
	require.NoError(t, err)
	local, err = plan.Allocate(d)
	require.NoError(t, err)
	_, exists = local.Pool()
	assert.False(t, exists, "nothing is local")
	require.NoError(t, local.Close())
	require.NoError(t, d.Close())
}

func TestMeasured(t *testing.T) {
	bytes, err := Measured{Free: 1000, NonPaged: 100, Forward: 300}.PageBytes(400, 0.9)
	require.NoError(t, err)
	assert.EqualValues(t, 900, bytes)
	bytes, err = Measured{Free: 1000, Fraction: 0.5}.PageBytes(400, 0.9)
	require.NoError(t, err)
	assert.EqualValues(t, 700, bytes)
	for _, m := range []Measured{{Free: -1}, {NonPaged: -1}, {Forward: -1}, {Fraction: 1.5},
		{Fraction: math.NaN()}, {Free: 5, Forward: 500}, {Free: math.MaxInt64}} {
		_, err := m.PageBytes(400, 0.9)
		assert.ErrorIs(t, err, messages.ErrBadRequest, "%+v", m)
		assert.NotContains(t, err.Error(), "%!")
	}
}

// A plan fills in what a cache configuration of some fields leaves out.
func TestACacheOfSomeFields(t *testing.T) {
	var c Collection
	require.NoError(t, c.Add("kv", 0, PagedKV{NumKVHeads: 1, HeadDim: 8, DType: windows.Float16}))
	plan, err := c.Plan(Options{
		Cache: windows.Config{TokensPerBlock: 4}, MaxSeqLen: 64, MaxSequences: 1,
	})
	require.NoError(t, err)
	assert.Equal(t, 4, plan.Cache.TokensPerBlock)
	assert.True(t, plan.Cache.EnableBlockReuse)
}
