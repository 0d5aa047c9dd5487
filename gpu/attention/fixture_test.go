package attention_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/windows"
)

// array is one tensor of the fixtures.
type array struct {
	shape []int
	x     []float32
	bytes []byte
}

// fixture is one case of testdata/attention.json.
type fixture struct {
	Name   string
	Params struct {
		Scale, QScaling, Softcap, Base float64
		Window, SinkTokens             int
		Slopes                         []float32
		Heads, Buckets, MaxDistance    int
		Bidirectional                  bool
		New, Cached                    []int
		NumContexts                    int
		KVScale                        float32
		Prompt, N, S, Context          int
		Positions                      []int
		RotaryDim                      int
	}
	arrays map[string]array
	raw    json.RawMessage
}

// fixtures reads all cases.
func fixtures(t testing.TB) map[string]*fixture {
	t.Helper()
	file, err := os.ReadFile("testdata/attention.safetensors")
	require.NoError(t, err)
	size := binary.LittleEndian.Uint64(file)
	var header map[string]struct {
		DType   string
		Shape   []int
		Offsets [2]int `json:"data_offsets"`
	}
	require.NoError(t, json.Unmarshal(file[8:8+size], &header))
	text, err := os.ReadFile("testdata/attention.json")
	require.NoError(t, err)
	var raws []json.RawMessage
	require.NoError(t, json.Unmarshal(text, &raws))
	all := map[string]*fixture{}
	for _, raw := range raws {
		f := readCase(t, raw)
		for name := range f.arrays {
			h := header[f.Name+"."+name]
			f.arrays[name] = newArray(h.DType, h.Shape, file[8+int(size):][h.Offsets[0]:h.Offsets[1]])
		}
		all[f.Name] = f
	}
	return all
}

func readCase(t testing.TB, raw json.RawMessage) *fixture {
	var c struct {
		Name    string
		Params  json.RawMessage
		Tensors map[string][]int
	}
	require.NoError(t, json.Unmarshal(raw, &c))
	f := &fixture{Name: c.Name, arrays: map[string]array{}, raw: c.Params}
	var p map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(c.Params, &p))
	for key, to := range map[string]any{
		"scale": &f.Params.Scale, "q_scaling": &f.Params.QScaling, "softcap": &f.Params.Softcap,
		"base":   &f.Params.Base,
		"window": &f.Params.Window, "sink_tokens": &f.Params.SinkTokens, "slopes": &f.Params.Slopes,
		"heads":   &f.Params.Heads,
		"buckets": &f.Params.Buckets, "max_distance": &f.Params.MaxDistance,
		"bidirectional": &f.Params.Bidirectional,
		"new":           &f.Params.New, "cached": &f.Params.Cached, "num_contexts": &f.Params.NumContexts,
		"kv_scale": &f.Params.KVScale,
		"prompt":   &f.Params.Prompt, "N": &f.Params.N, "S": &f.Params.S, "context": &f.Params.Context,
		"positions": &f.Params.Positions, "rotary_dim": &f.Params.RotaryDim,
	} {
		if p[key] != nil {
			require.NoError(t, json.Unmarshal(p[key], to), key)
		}
	}
	for name := range c.Tensors {
		f.arrays[name] = array{}
	}
	return f
}

func newArray(dtype string, shape []int, bytes []byte) array {
	a := array{shape: shape, bytes: bytes}
	switch dtype {
	case "F32":
		for i := 0; i < len(bytes); i += 4 {
			a.x = append(a.x, math.Float32frombits(binary.LittleEndian.Uint32(bytes[i:])))
		}
	case "I32":
		for i := 0; i < len(bytes); i += 4 {
			a.x = append(a.x, float32(int32(binary.LittleEndian.Uint32(bytes[i:]))))
		}
	case "U16":
		for i := 0; i < len(bytes); i += 2 {
			a.x = append(a.x, float32(binary.LittleEndian.Uint16(bytes[i:])))
		}
	}
	return a
}

// near compares with a tolerance: the fixtures are float64 rounded to float32.
func near(t testing.TB, want, got []float32, tolerance float64, about string) {
	t.Helper()
	require.Len(t, got, len(want), about)
	assert.LessOrEqual(t, distance(want, got), tolerance, about)
}

// distance is the largest difference.
func distance(a, b []float32) float64 {
	worst := 0.0
	for i := range a {
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		worst = max(worst, d)
	}
	return worst
}

// same compares bits.
func same(t testing.TB, want, got []float32, about string) {
	t.Helper()
	require.Len(t, got, len(want), about)
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			require.Failf(t, "bits differ", "%s: number %d is %g, want %g", about, i, got[i], want[i])
		}
	}
}

// rig runs one layer of one sequence over a cache, in steps of chosen sizes.
type rig struct {
	layer   attention.Layer
	kernel  *attention.Kernel
	q, k, v []float32 // of all tokens
	context int       // tokens of the prompt; the rest are generated
}

func newRig(t testing.TB, l attention.Layer, q, k, v []float32) *rig {
	w := attention.NewWorkers(2)
	t.Cleanup(w.Close)
	return &rig{layer: l, kernel: attention.NewKernel(w), q: q, k: k, v: v}
}

// run gives the output of all tokens, computed in steps of so many tokens; 0 is
// all at once. Inputs are copied, for a step changes them in place.
func (r *rig) run(t testing.TB, c attention.Cache, step int) []float32 {
	t.Helper()
	l := &r.layer
	qd, kd := l.Heads*l.HeadDim, l.KVHeads*l.HeadDim
	total := len(r.q) / qd
	prompt := r.context
	if prompt == 0 {
		prompt = total
	}
	var out []float32
	for at := 0; at < total; {
		n := total - at
		if step > 0 {
			n = min(n, step)
		}
		m := attention.Metadata{NumContexts: 1}
		if at < prompt {
			n = min(n, prompt-at)
		} else {
			m.NumContexts, n = 0, 1
		}
		m.Sequences = []attention.Sequence{{Prompt: prompt, Cached: at, New: n}}
		out = append(out, r.step(t, m, c, r.q[at*qd:(at+n)*qd], r.k[at*kd:(at+n)*kd],
			r.v[at*kd:(at+n)*kd])...)
		at += n
	}
	return out
}

func (r *rig) step(
	t testing.TB, m attention.Metadata, c attention.Cache, q, k, v []float32,
) []float32 {
	t.Helper()
	l := &r.layer
	var plan attention.Plan
	require.NoError(t, plan.Prepare(m))
	out := make([]float32, len(q))
	in := attention.Input{Q: clone(q), K: clone(k), V: clone(v), QStride: l.Heads * l.HeadDim,
		KVStride: l.KVHeads * l.HeadDim}
	require.NoError(t, r.kernel.Forward(l, &plan, c, in, out))
	return out
}

func clone(x []float32) []float32 { return append([]float32(nil), x...) }

// paged makes a cache of one stream with pages for so many tokens, in an order
// of their own, filled with poison.
func paged(l attention.Layer, tokensPerBlock, tokens int, dtype windows.DType) *attention.Paged {
	p := &attention.Paged{Layout: attention.Layout{Layers: 3, KVHeads: l.KVHeads,
		TokensPerBlock: tokensPerBlock, HeadDim: l.HeadDim, DType: dtype}, Layer: 1}
	blocks := make([][]byte, (tokens+tokensPerBlock-1)/tokensPerBlock)
	for i := range blocks {
		blocks[i] = poisoned(p.Layout.PageBytes())
	}
	p.Blocks = [][][]byte{blocks}
	return p
}

// poisoned is memory that reads as NaN in every type but int8.
func poisoned(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 0xff
	}
	return b
}
