// Package cost models the time a GPU takes to serve a language model, well
// enough to tell what reuse saves. The formulas are those of dense
// transformers; each function states its own.
//
// Prefill of the tokens [c, T) multiplies every weight twice and makes each
// token attend to those before it:
//
//	FLOPs = 2·P·(T−c) + Σ layers 2·Hq·D·(T²−c²)       full attention
//	                    Σ layers 4·Hq·D·w·(T−c)       window w, once T is beyond it
//
// and takes FLOPs / (peak · efficiency). A decode step reads the weights once
// and the KV of every sequence: (weights + KV) / (0.8 · HBM bandwidth).
package cost

import (
	"slices"
	"time"
)

// Model is what the formulas need to know of a model.
type Model struct {
	Name         string
	Parameters   float64 // active in one token
	WeightBytes  float64 // read by one decode step
	QueryHeads   float64
	HeadDim      float64
	Windows      []int   // by layer; 0 is full attention
	KVLayerBytes float64 // of K and V of one token in one layer
}

// GPU is what the formulas need to know of a device.
type GPU struct {
	Name       string
	FLOPs      float64       // dense bf16 per second, datasheet
	Efficiency float64       // share of it that prefill reaches
	HBM        float64       // bytes per second, datasheet
	Step       time.Duration // the least time of a step, launch and sampling included
}

// hbmShare is what real kernels reach of the datasheet's memory bandwidth.
const hbmShare = 0.8

// H100 is an H100 SXM at the efficiency that prefill usually reaches.
func H100() GPU {
	return GPU{Name: "H100", FLOPs: 989e12, Efficiency: 0.5, HBM: 3.35e12, Step: 5 * time.Millisecond}
}

// Llama8B is Llama-3.1-8B in bf16: full attention in all 32 layers.
func Llama8B() Model {
	return Model{
		Name: "Llama-3.1-8B", Parameters: 8e9, WeightBytes: 16e9,
		QueryHeads: 32, HeadDim: 128, Windows: make([]int, 32), KVLayerBytes: 8 * 128 * 2 * 2,
	}
}

// Gemma12B is Gemma-3-12B in bf16: every sixth of 48 layers has full
// attention, the others a window of 1024 tokens.
func Gemma12B() Model {
	return Model{
		Name: "Gemma-3-12B", Parameters: 11.8e9, WeightBytes: 23.6e9,
		QueryHeads: 16, HeadDim: 256, KVLayerBytes: 8 * 256 * 2 * 2,
		Windows: slices.Repeat([]int{1024, 1024, 1024, 1024, 1024, 0}, 8),
	}
}

// Mistral7B is Mistral-7B-v0.1 in bf16: a window of 4096 tokens in all 32 layers.
func Mistral7B() Model {
	return Model{
		Name: "Mistral-7B-v0.1", Parameters: 7.24e9, WeightBytes: 14.5e9,
		QueryHeads: 32, HeadDim: 128, KVLayerBytes: 8 * 128 * 2 * 2,
		Windows: slices.Repeat([]int{4096}, 32),
	}
}

// Span is a run of tokens [From, To) of one sequence.
type Span struct{ From, To int }

// Prefill is the time to compute the KV of a span whose beginning, [0, From),
// is there already. The floor of a step is not in it.
func Prefill(m *Model, g *GPU, s Span) time.Duration {
	if s.To <= s.From {
		return 0
	}
	tokens := float64(s.To - s.From)
	flops := 2 * m.Parameters * tokens
	for _, w := range m.Windows {
		flops += 4 * m.QueryHeads * m.HeadDim * attended(w, s)
	}
	return seconds(flops / (g.FLOPs * g.Efficiency))
}

// attended sums, over the tokens of a span, how many tokens each attends to,
// itself counted half: (T²−c²)/2 under full attention.
func attended(window int, s Span) float64 {
	from, to, w := float64(s.From), float64(s.To), float64(window)
	if window == 0 || to <= w {
		return (to*to - from*from) / 2
	}
	if from >= w {
		return w * (to - from)
	}
	return (w*w-from*from)/2 + w*(to-w)
}

// Decode is the time of one step that computes a token for each sequence that
// has as many tokens as given; no sequence, no time.
func Decode(m *Model, g *GPU, lengths []int) time.Duration {
	if len(lengths) == 0 {
		return 0
	}
	bytes := m.WeightBytes
	for _, n := range lengths {
		for _, w := range m.Windows {
			if w == 0 {
				w = n
			}
			bytes += m.KVLayerBytes * float64(min(n, w))
		}
	}
	return seconds(bytes / (hbmShare * g.HBM))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
