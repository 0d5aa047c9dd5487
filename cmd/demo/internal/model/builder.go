package model

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/weights"
	"github.com/kvactor/kvactor/gpu/attention"
)

// builder makes the parts of a model of its tensors. Missing tensors and wrong
// shapes are collected; the parts made then are useless, and large ones are shorter than asked for.
type builder struct {
	*settings
	tensors weights.Set
	m       *Model
	missing []string
}

// err joins what was refused, at most a few tensors.
func (b *builder) err() error {
	var errs []error
	if err := b.settings.err(); err != nil {
		errs = append(errs, err)
	}
	if n := len(b.missing); n > 0 {
		errs = append(errs, fmt.Errorf("tensors: %s (%d in all)",
			strings.Join(b.missing[:min(n, 4)], "; "), n))
	}
	return errors.Join(errs...)
}

func (b *builder) there(name string) bool { return b.tensors[name] != nil }

// tensor gives a tensor of a shape.
func (b *builder) tensor(name string, shape ...int) *weights.Tensor {
	t := b.tensors[name]
	switch {
	case t == nil:
		b.missing = append(b.missing, name+" is missing")
	case !t.Is(shape...):
		b.missing = append(b.missing, fmt.Sprintf("%s has shape %v, not %v", name, t.Shape, shape))
	default:
		return t
	}
	return nil
}

// numbers gives the numbers of a tensor of a shape.
func (b *builder) numbers(name string, shape ...int) []float32 {
	if t := b.tensor(name, shape...); t != nil {
		return t.Numbers()
	}
	// The model is refused: a configuration that asks for much must not get the memory.
	n := 1
	for _, d := range shape {
		n = min(n*d, 1<<12)
	}
	return make([]float32, n)
}

// part names one matrix of several that become one.
type part struct {
	name string // without .weight
	out  int
}

// fused makes one matrix of several, one behind the other, with their biases if
// the first one has one.
func (b *builder) fused(in int, parts ...part) *linear {
	var tensors []*weights.Tensor
	var bias []float32
	total := 0
	for _, p := range parts {
		tensors = append(tensors, b.tensor(p.name+".weight", p.out, in))
		if b.there(parts[0].name + ".bias") {
			bias = append(bias, b.numbers(p.name+".bias", p.out)...)
		}
		total += p.out
	}
	if len(b.missing) > 0 {
		return &linear{in: in, out: total}
	}
	return linearOf(total, in, bias, tensors...)
}

// linearOf makes a matrix of tensors whose rows lie one behind the other.
func linearOf(out, in int, bias []float32, tensors ...*weights.Tensor) *linear {
	var rows []float32
	for _, t := range tensors {
		rows = append(rows, t.Numbers()...)
	}
	return newLinear(out, in, rows, bias)
}

// linear makes a matrix, with its bias if there is one.
func (b *builder) linear(name string, out, in int) *linear { return b.fused(in, part{name, out}) }

// rms makes a norm by the root mean square; plus is added to its weights.
func (b *builder) rms(name string, n int, eps float64, plus float32) *norm {
	w := b.numbers(name+".weight", n)
	for i := range w {
		w[i] += plus
	}
	return &norm{weight: w, eps: eps}
}

// layerNorm makes a norm with mean and bias.
func (b *builder) layerNorm(name string, n int, eps float64) *norm {
	return &norm{weight: b.numbers(name+".weight", n), bias: b.numbers(name+".bias", n), eps: eps,
		subtractMean: true}
}

// outputHead makes the output matrix, which may be the embedding again.
func (b *builder) outputHead(name string) {
	m := b.m
	if b.there(name + ".weight") {
		m.head = b.linear(name, m.Vocab, m.Hidden)
		return
	}
	if m.embed == nil || len(b.missing) > 0 {
		return
	}
	m.head = linearOf(m.Vocab, m.Hidden, nil, m.embed)
}

// cached numbers a layer that has a cache.
func (b *builder) cached(heads, dim, window int) int {
	b.m.caches = append(b.m.caches, cacheShape{heads: heads, dim: dim, window: window, factor: 2,
		layer: len(b.m.blocks)})
	return len(b.m.caches) - 1
}

// activation is the one that a key names.
func (b *builder) activation(key, otherwise string) activation {
	name := b.text(key, otherwise)
	if f := activations[name]; f != nil {
		return f
	}
	b.refuse(key, "%q is not supported", name)
	return silu
}

// ropeOf reads RoPE of dim dimensions, from rope_parameters or the keys that
// came before them.
func (b *builder) ropeOf(key string, style attention.RoPEStyle, dim int) *attention.RoPE {
	p := b.sub("rope_parameters")
	name := "rope_parameters"
	if p != nil && p.sub(key) != nil {
		p, name = p.sub(key), name+"."+key
	}
	if p == nil {
		name = "rope_scaling"
		p = &settings{values: map[string]any{}}
		if s := b.sub("rope_scaling"); s != nil {
			for k, v := range s.values {
				p.values[k] = v
			}
			if !p.has("rope_type") {
				p.values["rope_type"] = p.values["type"]
			}
		}
		if b.has("rope_theta") {
			p.values["rope_theta"] = b.values["rope_theta"]
		}
		if key == "sliding_attention" && b.has("rope_local_base_freq") {
			p = &settings{values: map[string]any{"rope_theta": b.values["rope_local_base_freq"]}}
		}
		if b.has("partial_rotary_factor") {
			p.values["partial_rotary_factor"] = b.values["partial_rotary_factor"]
		}
	}
	defer func() { b.merge(name, p) }()
	dim = turned(p, dim)
	base := p.numberOr("rope_theta", 10000)
	inverse, factor := scaledInverses(p, base, dim, b.m.MaxLen)
	inverse = b.dividedInverses(inverse)
	return spanRoPE(style, inverse, factor, b.m.MaxLen)
}

// maxTurned bounds the dimensions that RoPE turns.
const maxTurned = 1024

// turned is how many of dim dimensions RoPE turns; 2 if the factor makes no sense.
func turned(p *settings, dim int) int {
	n := float64(dim) * p.numberOr("partial_rotary_factor", 1)
	if !(n >= 0 && n < maxTurned+1) {
		p.refuse("partial_rotary_factor", "RoPE on %v dimensions, there may be %d", n, maxTurned)
		return 2
	}
	return int(n)
}

// ropeFactors is the tensor that divides RoPE's frequencies, which only GGUF has: the
// scaling of Llama 3.1 as its converter computes it.
const ropeFactors = "rope_freqs"

// dividedInverses divides the frequencies by the tensor's factors, if it is there.
func (b *builder) dividedInverses(inverse []float64) []float64 {
	if !b.there(ropeFactors + ".weight") {
		return inverse
	}
	numbers := b.numbers(ropeFactors+".weight", len(inverse))
	if len(b.missing) > 0 {
		return inverse
	}
	factors := make([]float64, len(inverse))
	for i, x := range numbers {
		if factors[i] = float64(x); !(x > 0) || math.IsInf(factors[i], 1) {
			b.missing = append(b.missing, fmt.Sprintf("%s.weight has a factor of %v", ropeFactors, x))
			return inverse
		}
	}
	return attention.ScaleLongRoPE(inverse, factors)
}

// scaledInverses applies the scaling that rope parameters name.
func scaledInverses(p *settings, base float64, dim, maxLen int) ([]float64, float64) {
	inverse := attention.Inverses(base, dim)
	switch p.oneOf("rope_type", "default", "linear", "llama3", "yarn", "longrope") {
	case "linear":
		return attention.ScaleLinear(inverse, p.number("factor")), 1
	case "llama3":
		s := attention.Llama3Scaling{
			Factor: p.number("factor"), LowFreq: p.number("low_freq_factor"),
			HighFreq:    p.number("high_freq_factor"),
			OriginalLen: p.number("original_max_position_embeddings"),
		}
		return s.Scale(inverse), 1
	case "yarn":
		s := attention.YaRNScaling{
			Base: base, Factor: p.number("factor"), BetaFast: p.numberOr("beta_fast", 32),
			BetaSlow:    p.numberOr("beta_slow", 1),
			OriginalLen: p.number("original_max_position_embeddings"), Truncate: p.yes("truncate", true),
			MScale: p.numberOr("mscale", 0), MScaleAllDim: p.numberOr("mscale_all_dim", 0),
			AttentionFactor: p.numberOr("attention_factor", 0),
		}
		return s.Scale(inverse), s.CosSinFactor()
	case "longrope":
		return longRoPE(p, inverse, maxLen)
	}
	return inverse, 1
}

// longRoPE takes the long factors: the choice is made once for an engine, or keys
// of a short text could not serve in a long one.
func longRoPE(p *settings, inverse []float64, maxLen int) ([]float64, float64) {
	var factors []float64
	for _, x := range p.list("long_factor") {
		f, _ := x.(float64)
		factors = append(factors, f)
	}
	if len(factors) != len(inverse) {
		p.refuse("long_factor", "%d factors for %d pairs", len(factors), len(inverse))
		return inverse, 1
	}
	original := p.number("original_max_position_embeddings")
	factor := p.numberOr("factor", float64(maxLen)/original)
	return attention.ScaleLongRoPE(inverse, factors), p.numberOr("attention_factor",
		attention.LongRoPEFactor(factor, original))
}

// start reads what every model has.
func (b *builder) start(hidden, layers, maxLen, embedding string) (layerCount int) {
	m := b.m
	m.Hidden, m.Vocab = b.positive(hidden), b.positive("vocab_size")
	m.MaxLen = b.wholeOr(maxLen, 2048)
	m.embed = b.tensor(embedding, m.Vocab, m.Hidden)
	return b.layers(layers)
}

// maxLayers bounds the layers, each of which takes memory before a tensor is missing.
const maxLayers = 1024

// layers is a number of layers; 1 if there are too many.
func (b *builder) layers(key string) int {
	n := b.positive(key)
	if n > maxLayers {
		b.refuse(key, "%d layers, there may be %d", n, maxLayers)
		return 1
	}
	return n
}
