package model

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Every model gives the logits, the inputs of layers, the caches and the states
// that another implementation gives, and the same bits in chunks of any size.
func TestModelsAreRight(t *testing.T) {
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			f := loadFixture(t, name)
			for _, c := range f.Cases {
				b := newBench(t, f.model, windows.Float32)
				if c.Name == "long" {
					b.e.Trace = f.compareHidden(t)
				}
				logits := flat(b.feed(t, c.Tokens, c.Encoder, 0))
				assert.LessOrEqual(t, distance(f.expect(t, c.Name+".logits"), logits), f.tolerance(), c.Name)
				if c.Name == "long" {
					f.compareCaches(t, b, c)
				}
				for _, step := range []int{4, 8, 12} {
					require.Equal(t, logits,
						flat(newBench(t, f.model, windows.Float32).feed(t, c.Tokens, c.Encoder, step)),
						"%s in chunks of %d", c.Name, step)
				}
			}
		})
	}
}

// compareHidden compares the inputs of layers.
func (f *fixture) compareHidden(t *testing.T) func(int, []float32) {
	return func(layer int, x []float32) {
		name := fmt.Sprintf("long.hidden.%d", layer)
		if layer < 0 {
			name = "long.encoder_out"
		}
		assert.LessOrEqual(t, distance(f.expect(t, name), x), f.tolerance(), name)
	}
}

// compareCaches compares keys and values as they lie in the pages, and states.
func (f *fixture) compareCaches(t *testing.T, b *bench, c fixtureCase) {
	layers := 0
	for i := range f.model.blocks {
		if f.expected[fmt.Sprintf("long.k.%d", i)] == nil {
			continue
		}
		for part, letter := range []string{"k", "v"} {
			name := fmt.Sprintf("long.%s.%d", letter, i)
			got := b.cached(layers, attention.Part(part), len(c.Tokens))
			assert.LessOrEqual(t, distance(f.expect(t, name), got), f.tolerance(), name)
		}
		layers++
		if f.model.Encodes() {
			for part, letter := range []string{"k", "v"} {
				name := fmt.Sprintf("long.cross_%s.%d", letter, i)
				cache := b.e.crossCache(i)
				cache.Blocks = [][][]byte{b.pages[len(b.pages)-1]}
				got := readCache(cache, cache.Layout, attention.Part(part), len(c.Encoder))
				assert.LessOrEqual(t, distance(f.expect(t, name), got), f.tolerance(), name)
			}
		}
	}
	assert.Equal(t, len(f.model.caches), layers)
}

// cached reads a layer's keys or values, [head][token][dim]. A latent layer's
// are the latent and the turned key.
func (b *bench) cached(layer int, part attention.Part, tokens int) []float32 {
	b.e.layer = layer
	cache := b.e.cache()
	cache.Blocks = [][][]byte{b.pages[b.e.places[layer].pool]}
	a, ok := b.m.blocks[layer].mixer.(*latentAttention)
	if !ok {
		return readCache(cache, cache.Layout, part, tokens)
	}
	scratch, out := make([]float32, a.layer.HeadDim), []float32(nil)
	for p := range tokens {
		row, _ := cache.Read(scratch, 0, attention.Keys, 0, p, 1)
		if part == attention.Keys {
			out = append(out, row[:a.layer.ValueDim]...)
		} else {
			out = append(out, row[a.layer.ValueDim:]...)
		}
	}
	return out
}

func readCache(c attention.Cache, l attention.Layout, part attention.Part, tokens int) []float32 {
	var out []float32
	scratch := make([]float32, l.HeadDim)
	for g := range l.KVHeads {
		for p := range tokens {
			row, _ := c.Read(scratch, 0, part, g, p, 1)
			out = append(out, row...)
		}
	}
	return out
}

// Recurrent layers have the expected states after some lengths.
func TestStatesAreRight(t *testing.T) {
	for _, name := range []string{"bamba_mamba2", "qwen3_next"} {
		f := loadFixture(t, name)
		c := f.Cases[2]
		require.Equal(t, "long", c.Name)
		require.True(t, f.model.Recurrent())
		b, at := newBench(t, f.model, windows.Float32), 0
		for _, n := range []int{4, 8, 16, 20, 23} {
			b.prompt = len(c.Tokens)
			s := &Sequence{Tokens: c.Tokens[at:n], Cached: at, Prompt: len(c.Tokens), Pages: b.pages}
			require.NoError(t, b.e.Run([]*Sequence{s}))
			at = n
			for i := range f.model.blocks {
				r, ok := f.model.blocks[i].mixer.(recurrent)
				if !ok {
					continue
				}
				state := make([]float32, r.stateSize())
				stateElement.Decode(state, b.e.stateBytes(b.e.statePages(s, i)[0], i, len(state)))
				conv := f.expect(t, fmt.Sprintf("long.conv.%d.after%d", i, n))
				assert.LessOrEqual(t, distance(conv, state[:len(conv)]), f.tolerance(),
					"%s, layer %d, after %d", name, i, n)
				assert.LessOrEqual(t, distance(f.expect(t, fmt.Sprintf("long.state.%d.after%d", i, n)),
					state[len(conv):]), f.tolerance(), "%s, layer %d, after %d", name, i, n)
			}
		}
	}
}

// Greedy tokens are the other implementation's.
func TestGreedyTokens(t *testing.T) {
	for _, name := range fixtures {
		f := loadFixture(t, name)
		for _, c := range f.Cases {
			b := newBench(t, f.model, windows.Float32)
			logits := b.feed(t, c.Tokens, c.Encoder, 0)
			var got []messages.Token
			for range c.Greedy {
				next := Greedy(logits[len(logits)-1])
				got = append(got, next)
				logits = b.feed(t, []messages.Token{next}, c.Encoder, 0)
			}
			assert.Equal(t, c.Greedy, got, "%s, %s", name, c.Name)
		}
	}
}

// What a fixture is for shows when it is left out: the controls.
func TestControls(t *testing.T) {
	change := map[string]map[string]func(*attention.Layer){
		"mistral_swa": {
			"one too long":  func(l *attention.Layer) { l.Window++ },
			"one too short": func(l *attention.Layer) { l.Window-- },
			"no window":     func(l *attention.Layer) { l.Window = 0 },
		},
		"gemma3_hybrid": {"no window": func(l *attention.Layer) { l.Window = 0 },
			"other scale": func(l *attention.Layer) { l.Norm = 0 }},
		"gpt_oss": {"no sinks": func(l *attention.Layer) { l.SinkLogits = nil },
			"no window": func(l *attention.Layer) { l.Window = 0 }},
		"bloom_alibi": {"no bias": func(l *attention.Layer) { l.Bias = nil }},
		"llama_mqa":   {"no RoPE": func(l *attention.Layer) { l.RoPE = nil }},
		"t5_cross":    {"scaled": func(l *attention.Layer) { l.Norm = 0 }},
	}
	for name, changes := range change {
		for about, spoil := range changes {
			f := loadFixture(t, name)
			for i := range f.model.blocks {
				l := &f.model.blocks[i].mixer.(*selfAttention).layer
				if about == "no window" || l.Window > 0 || name != "gemma3_hybrid" && name != "mistral_swa" ||
					about == "other scale" {
					spoil(l)
				}
			}
			worst := 0.0
			for _, c := range f.Cases {
				got := flat(newBench(t, f.model, windows.Float32).feed(t, c.Tokens, c.Encoder, 0))
				worst = max(worst, distance(f.expect(t, c.Name+".logits"), got))
			}
			assert.Greater(t, worst, 0.5, "%s, %s", name, about)
		}
	}
}
