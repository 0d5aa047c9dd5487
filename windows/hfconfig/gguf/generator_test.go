package gguf

import (
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/hfconfig"
)

// architectures are the lines of testdata/architectures.txt: names with what layers keep.
func architectures(t *testing.T) map[string]string {
	text, err := os.ReadFile("testdata/architectures.txt")
	require.NoError(t, err)
	all := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] != "#" {
			all[f[0]] = f[1]
		}
	}
	return all
}

// generated is a header, with its sizes and a letter for each layer.
type generated struct {
	letters                    string
	drafts                     int
	keys                       map[string]any
	kv                         []int
	key, value, keySWA, valSWA int
	listed                     bool
}

// The sizes that are the same in every header.
const (
	width, window, rank, rotary, index          = 1024, 96, 128, 32, 64
	kernel, inner, state, groups, steps, kdaDim = 4, 512, 16, 2, 8, 32
	wkv, convolution, heads                     = 64, 3, 16
)

// generate makes a header of an architecture that has such layers.
func generate(r *rand.Rand, arch, letters string) generated {
	g := generated{drafts: r.IntN(3), key: 16 << r.IntN(3), value: 16 << r.IntN(3),
		listed: r.IntN(2) == 0}
	g.keySWA, g.valSWA = g.key, g.value
	n := 8 + r.IntN(12)
	if arch == "exaone4" {
		n, letters = 64, "SSSF"
	}
	for i := range n {
		if letters == "list" {
			g.letters += string("SF"[r.IntN(2)])
			continue
		}
		g.letters += string(letters[i%len(letters)])
	}
	if arch == "minimax-m3" {
		g.letters = "FF" + strings.Repeat("X", n-2)
	}
	for _, l := range g.letters {
		g.kv = append(g.kv, 1<<r.IntN(4))
		if strings.ContainsRune("MDKVN", l) &&
			!strings.Contains("mamba mamba2 qwen3next qwen35 qwen35moe", arch) {
			g.kv[len(g.kv)-1] = 0
		}
	}
	g.keys = map[string]any{
		"block_count": n + g.drafts, "context_length": 32768, "embedding_length": width,
		"attention.head_count": heads,
		"attention.key_length": g.key, "attention.value_length": g.value,
		"nextn_predict_layers": g.drafts, "vocab_size": 99,
		"feed_forward_length": 4 * width, "rope.freq_base": 10000,
		"attention.head_count_kv": append(g.kv, make([]int, g.drafts)...),
	}
	maps.Copy(g.keys, g.optional(r, arch))
	return g
}

// optional are the keys of what the layers keep.
func (g *generated) optional(r *rand.Rand, arch string) map[string]any {
	keys := map[string]any{}
	add := func(letters string, more map[string]any) {
		if strings.ContainsAny(g.letters, letters) {
			maps.Copy(keys, more)
		}
	}
	add("S", map[string]any{"attention.sliding_window": window})
	add("LI", map[string]any{"attention.kv_lora_rank": rank, "rope.dimension_count": rotary,
		"attention.key_length_mla": 1, "attention.value_length_mla": 1})
	add("IX", map[string]any{"attention.indexer.key_length": index, "attention.indexer.head_count": 4,
		"attention.indexer.top_k": 32, "leading_dense_block_count": 2})
	add("MDHK", map[string]any{"ssm.conv_kernel": kernel})
	add("MDH", map[string]any{"ssm.inner_size": inner, "ssm.state_size": state,
		"ssm.time_step_rank": steps})
	add("DH", map[string]any{"ssm.group_count": groups})
	add("K", map[string]any{"kda.head_dim": kdaDim})
	add("W", map[string]any{"wkv.head_size": wkv, "token_shift_count": 2, "attention.head_count": 0,
		"attention.head_count_kv": 0})
	add("V", map[string]any{"shortconv.l_cache": convolution})
	pattern := make([]bool, len(g.letters), len(g.letters)+g.drafts)
	for i, l := range g.letters {
		pattern[i] = l == 'S'
	}
	if strings.Contains(g.letters, "S") && (g.listed || r.IntN(2) == 0 ||
		strings.Contains("gemma4 mimo2 step35 spark2_5 maple granite_swa dots3note", arch)) {
		keys["attention.sliding_window_pattern"] = append(pattern, make([]bool, g.drafts)...)
	}
	if arch == "gemma4" || arch == "mimo2" {
		g.keySWA, g.valSWA = 8, 24
		keys["attention.key_length_swa"], keys["attention.value_length_swa"] = g.keySWA, g.valSWA
	}
	switch arch {
	case "dots3note":
		keys["attention.kv_lora_rank_swa"] = rank / 2
	case "gemma3n":
		keys["attention.shared_kv_layers"] = 0
	case "nemotron_h", "nemotron_h_moe":
		forward := make([]int, len(g.letters)+g.drafts)
		for i, l := range g.letters {
			if l == 'N' {
				forward[i] = 64
			}
		}
		keys["feed_forward_length"] = forward
	}
	return keys
}

// keeps is what the layers keep: bytes a token without and with a window or chunk, and
// bytes of states.
func (g *generated) keeps(arch string) (full, windowed, states int) {
	for i, l := range g.letters {
		kv := g.kv[i]
		switch l {
		case 'F', 'X':
			full += 2 * kv * (g.key + g.value)
		case 'C':
			windowed += 2 * kv * (g.key + g.value)
		case 'S':
			if arch == "dots3note" {
				windowed += 2 * (rank/2 + rotary)
				continue
			}
			windowed += 2 * kv * (g.keySWA + g.valSWA)
		case 'L', 'I':
			full += 2 * (rank + rotary)
		case 'M':
			states += 4 * ((kernel-1)*inner + inner*state)
		case 'H':
			full += 2 * kv * (g.key + g.value)
			states += 4 * ((kernel-1)*(inner+2*groups*state) + inner*state)
		case 'D':
			states += 4 * ((kernel-1)*(inner+2*groups*state) + inner*state)
		case 'K':
			states += 4 * (3*(kernel-1)*heads*kdaDim + heads*kdaDim*kdaDim)
		case 'A':
			states += 4 * heads * g.key * g.key
		case 'V':
			states += 4 * width * (convolution - 1)
		case 'W':
			states += 4 * (2*width + width*wkv)
		}
		if l == 'I' || l == 'X' {
			full += 2 * index
		}
	}
	return full, windowed, states
}

// TestGenerated: every architecture of llama.cpp is read as llama.cpp keeps it, whatever
// the sizes, or refused by its name.
func TestGenerated(t *testing.T) {
	for arch, letters := range architectures(t) {
		for seed := range uint64(8) {
			r := rand.New(rand.NewPCG(seed, 1))
			if letters == "!" {
				_, err := Open(written(t, arch, generate(r, arch, "F").keys), hfconfig.Options{})
				assert.ErrorContains(t, err, arch)
				if arch != "clip" { // which the parser refuses
					assert.ErrorContains(t, err, `architecture "`+arch+`" is not supported: `)
				}
				continue
			}
			g := generate(r, arch, letters)
			m, err := Open(written(t, arch, g.keys), hfconfig.Options{Strict: true})
			if !assert.NoError(t, err, "%s, seed %d", arch, seed) {
				continue
			}
			full, windowed, states := sizesOf(t, m)
			wantFull, wantWindowed, wantStates := g.keeps(arch)
			assert.Equal(t, []int{wantFull, wantWindowed, wantStates}, []int{full, windowed, states},
				"%s, seed %d, layers %s", arch, seed, g.letters)
			assert.Equal(t, len(g.letters), m.Layers, arch)
			assert.Equal(t, g.drafts > 0, strings.Contains(strings.Join(m.Notes, ";"),
				"nextn_predict_layers"), arch)
		}
	}
}

// sizesOf are the sizes of what a model that was read keeps.
func sizesOf(t *testing.T, m hfconfig.Model) (full, windowed, states int) {
	c := m.Configure(windows.DefaultConfig())
	if m.Encodes() {
		c.CrossKVCacheFraction = 0.5
	}
	pools, err := windows.Pools(m.Model, c)
	require.NoError(t, err)
	for _, p := range pools {
		switch {
		case p.Kind == windows.KindState:
			states += int(p.PageBytes())
		case p.Window > 0 || p.Chunk > 0:
			windowed += int(p.TokenBytes())
		default:
			full += int(p.TokenBytes())
		}
	}
	return full, windowed, states
}

// TestUnknownKeys: a key that no rule names is noted, and refused by Strict.
func TestUnknownKeys(t *testing.T) {
	for arch, letters := range architectures(t) {
		if letters == "!" {
			continue
		}
		g := generate(rand.New(rand.NewPCG(3, 1)), arch, letters)
		g.keys["attention.retained_blocks"] = 7
		path := written(t, arch, g.keys)
		m, err := Open(path, hfconfig.Options{})
		require.NoError(t, err, arch)
		assert.Contains(t, strings.Join(m.Notes, "; "), "attention.retained_blocks", arch)
		_, err = Open(path, hfconfig.Options{Strict: true})
		assert.ErrorContains(t, err, "attention.retained_blocks", arch)
	}
}
