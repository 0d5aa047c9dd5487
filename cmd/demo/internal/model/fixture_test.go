package model

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/weights"
	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// fixtures are the folders of testdata.
var fixtures = []string{
	"llama_gqa", "llama_mha", "llama_mqa", "mistral_swa", "gemma3_hybrid", "gpt_oss",
	"deepseek_v3_mla",
	"bamba_mamba2", "qwen3_next", "bloom_alibi", "gptj_rope", "gpt_neox_rope", "t5_cross",
	"bart_cross",
}

// fixtureCase is one prompt and what another implementation answers.
type fixtureCase struct {
	Name            string
	Tokens, Encoder []messages.Token
	Greedy          []messages.Token
}

// fixture is a model of testdata.
type fixture struct {
	name  string
	model *Model
	Cases []fixtureCase
	Beams *struct {
		Width  int
		Prompt string
		Steps  []struct {
			Parents []int
			Tokens  []messages.Token
		}
		Sequences [][]messages.Token
	}
	expected weights.Set
}

func (f *fixture) tolerance() float64 {
	if f.name == "qwen3_next" || f.name == "t5_cross" {
		return 1e-3
	}
	return 1e-4
}

// expect gives a tensor of what is expected.
func (f *fixture) expect(t testing.TB, name string) []float32 {
	t.Helper()
	require.Contains(t, f.expected, name)
	return f.expected[name].Numbers()
}

func loadFixture(t testing.TB, name string) *fixture {
	t.Helper()
	folder := filepath.Join("testdata", name)
	m, _, err := Load(folder)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(folder, "fixture.json"))
	require.NoError(t, err)
	f := &fixture{name: name, model: m}
	require.NoError(t, json.Unmarshal(withoutPython(text), f))
	f.expected, err = weights.ReadSafetensors(os.DirFS(folder), "expected.safetensors")
	require.NoError(t, err)
	return f
}

// distance is the largest difference.
func distance(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
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

// bench runs a model over pages that no engine manages: one sequence, all pages.
type bench struct {
	m      *Model
	e      *Executor
	pools  []windows.Pool
	pages  [][][]byte
	tokens int
	prompt int
}

const benchLen = 128

func newBench(t testing.TB, m *Model, dtype windows.DType) *bench {
	t.Helper()
	g, limits := m.Geometry(benchLen, dtype)
	config := windows.DefaultConfig()
	config.TokensPerBlock, config.MaxAttentionWindow = 4, limits
	if m.Encodes() {
		config.CrossKVCacheFraction = 0.5
	}
	pools, err := windows.Pools(g, config)
	require.NoError(t, err)
	if cross, ok := windows.CrossPool(g, config); ok {
		pools = append(pools, cross)
	}
	workers := attention.NewWorkers(2)
	t.Cleanup(workers.Close)
	e, err := NewExecutor(m, pools, workers)
	require.NoError(t, err)
	b := &bench{m: m, e: e, pools: pools}
	for _, p := range pools {
		var blocks [][]byte
		for range benchLen / 4 {
			page := make([]byte, p.PageBytes())
			for i := range page {
				if p.Kind != windows.KindState { // a working page begins with zeros
					page[i] = 0xff
				}
			}
			blocks = append(blocks, page)
		}
		if p.Kind == windows.KindState {
			blocks = blocks[:1] // the working page, without drafts
		}
		b.pages = append(b.pages, blocks)
	}
	return b
}

// feed computes tokens in steps of so many, 0 all at once, and gives their logits.
func (b *bench) feed(t testing.TB, tokens, encoder []messages.Token, step int) [][]float32 {
	t.Helper()
	var out [][]float32
	if b.tokens == 0 {
		b.prompt = len(tokens)
	}
	for len(tokens) > 0 {
		n := len(tokens)
		if step > 0 {
			n = min(n, step)
		}
		s := &Sequence{Tokens: tokens[:n], Cached: b.tokens, Prompt: b.prompt, Pages: b.pages,
			Encoder: encoder}
		if b.tokens > 0 {
			s.EncodeFrom = len(encoder)
		}
		require.NoError(t, b.e.Run([]*Sequence{s}))
		out = append(out, s.Logits...)
		tokens, b.tokens = tokens[n:], b.tokens+n
	}
	return out
}

// flat joins rows.
func flat(rows [][]float32) []float32 {
	var out []float32
	for _, r := range rows {
		out = append(out, r...)
	}
	return out
}
