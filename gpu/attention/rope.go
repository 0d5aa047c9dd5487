package attention

import (
	"fmt"
	"math"
)

// RoPEStyle says which two dimensions turn together.
type RoPEStyle uint8

// The styles, by TensorRT-LLM's names, for r rotary dimensions.
const (
	GPTNeoX RoPEStyle = iota // i and i + r/2
	GPTJ                     // 2i and 2i + 1
)

// RoPE turns the first 2·len(Inverse) dimensions of a head by its position:
// dimension pair i by the angle position · Inverse[i]. Make it with NewRoPE.
type RoPE struct {
	Style   RoPEStyle
	Inverse []float64 // the inverse frequencies
	// Factor multiplies cosine and sine, so scores grow by its square.
	Factor float64

	// The table has 8 bytes for each pair and position: 2 MiB for 64 pairs at 4096.
	positions int
	cos, sin  []float32 // [position][pair] of the first positions
}

// maxPairs bounds the pairs of dimensions that turn: heads of 1024 numbers.
const maxPairs = 512

// NewRoPE makes a rotation and its table for so many positions; those beyond it
// are computed when they are asked for, with the same bits. Angles are products
// in float64: in float32 they would be off by a digit at position 10⁴ already.
func NewRoPE(style RoPEStyle, inverse []float64, factor float64, positions int) *RoPE {
	n := len(inverse)
	if n > maxPairs {
		panic(fmt.Sprintf("attention: RoPE on %d dimensions", 2*n))
	}
	r := &RoPE{Style: style, Inverse: inverse, Factor: factor, positions: positions}
	r.cos, r.sin = make([]float32, positions*n), make([]float32, positions*n)
	for p := range positions {
		r.angles(r.cos[p*n:(p+1)*n], r.sin[p*n:(p+1)*n], p)
	}
	return r
}

// angles computes the cosine and sine of each pair at a position, in float64 and rounded once.
func (r *RoPE) angles(cos, sin []float32, position int) {
	for i, f := range r.Inverse {
		s, c := math.Sincos(float64(position) * f)
		cos[i], sin[i] = float32(c*r.Factor), float32(s*r.Factor)
	}
}

// Rotate turns one head of a query or key in place.
// Dimensions behind the first 2·len(Inverse) stay as they are.
func (r *RoPE) Rotate(x []float32, position int) {
	n := len(r.Inverse)
	// On the stack, since several workers turn rows at the same time.
	var room [2 * maxPairs]float32
	cos, sin := room[:n:n], room[maxPairs:maxPairs+n]
	if position < r.positions {
		cos, sin = r.cos[position*n:(position+1)*n], r.sin[position*n:(position+1)*n]
	} else {
		r.angles(cos, sin, position)
	}
	// Each pair (a, b) turns to (a·cos − b·sin, b·cos + a·sin). Products are rounded before they
	// are added, as in dot products.
	if r.Style == GPTJ {
		for i, c := range cos {
			a, b, s := x[2*i], x[2*i+1], sin[i]
			x[2*i] = float32(a*c) - float32(b*s)
			x[2*i+1] = float32(b*c) + float32(a*s)
		}
		return
	}
	for i, c := range cos {
		a, b, s := x[i], x[i+n], sin[i]
		x[i] = float32(a*c) - float32(b*s)
		x[i+n] = float32(b*c) + float32(a*s)
	}
}

// Inverses are the inverse frequencies of plain RoPE on dim dimensions:
// base^(−2i/dim).
func Inverses(base float64, dim int) []float64 {
	out := make([]float64, dim/2)
	for i := range out {
		out[i] = math.Pow(base, -2*float64(i)/float64(dim))
	}
	return out
}

// ScaleLinear divides all frequencies, as if positions were closer by factor.
// It is rope_scaling of type linear in Hugging Face configurations.
func ScaleLinear(inverse []float64, factor float64) []float64 {
	return mapped(inverse, func(_ int, f float64) float64 { return f / factor })
}

// Llama3Scaling is the scaling of Llama 3.1: waves shorter than OriginalLen /
// HighFreq stay, those longer than OriginalLen / LowFreq are divided by Factor,
// between them it is interpolated.
type Llama3Scaling struct{ Factor, LowFreq, HighFreq, OriginalLen float64 }

// Scale gives the scaled inverse frequencies.
func (s Llama3Scaling) Scale(inverse []float64) []float64 {
	return mapped(inverse, func(_ int, f float64) float64 {
		// The wavelength in tokens.
		wave := 2 * math.Pi / f
		switch {
		case wave < s.OriginalLen/s.HighFreq:
			return f
		case wave > s.OriginalLen/s.LowFreq:
			return f / s.Factor
		}
		t := (s.OriginalLen/wave - s.LowFreq) / (s.HighFreq - s.LowFreq)
		return (1-t)*f/s.Factor + t*f
	})
}

// YaRNScaling is YaRN: pairs that turn more than BetaFast times within
// OriginalLen stay, those that turn less than BetaSlow times are divided by
// Factor, a ramp lies between.
type YaRNScaling struct {
	Base, Factor, BetaFast, BetaSlow, OriginalLen float64
	Truncate                                      bool // the ends of the ramp to whole dimensions
	// MScale and MScaleAllDim, when both are set, give the attention factor as
	// DeepSeek has it; AttentionFactor, when set, is it.
	MScale, MScaleAllDim, AttentionFactor float64
}

// Scale gives the scaled inverse frequencies.
func (s YaRNScaling) Scale(inverse []float64) []float64 {
	dim := float64(2 * len(inverse))
	// The dimension whose pair turns so many times within OriginalLen.
	at := func(turns float64) float64 {
		return dim * math.Log(s.OriginalLen/(turns*2*math.Pi)) / (2 * math.Log(s.Base))
	}
	lo, hi := at(s.BetaFast), at(s.BetaSlow)
	if s.Truncate {
		lo, hi = math.Floor(lo), math.Ceil(hi)
	}
	lo, hi = max(lo, 0), min(hi, dim-1)
	if lo == hi {
		hi += 0.001 // no division by zero
	}
	return mapped(inverse, func(i int, f float64) float64 {
		ramp := min(max((float64(i)-lo)/(hi-lo), 0), 1)
		return f*(1-ramp) + f/s.Factor*ramp
	})
}

// CosSinFactor is what cosine and sine are multiplied by.
func (s YaRNScaling) CosSinFactor() float64 {
	switch {
	case s.AttentionFactor != 0:
		return s.AttentionFactor
	case s.MScale != 0 && s.MScaleAllDim != 0:
		return YaRNMScale(s.Factor, s.MScale) / YaRNMScale(s.Factor, s.MScaleAllDim)
	}
	return YaRNMScale(s.Factor, 1)
}

// YaRNMScale is 0.1 · mscale · ln factor + 1.
func YaRNMScale(factor, mscale float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*mscale*math.Log(factor) + 1
}

// ScaleLongRoPE divides each frequency by a factor of its own, the short or the
// long ones. The choice goes by the length of the text, so that one engine must
// make it once: keys turned by one do not serve a text that uses the other.
func ScaleLongRoPE(inverse, factors []float64) []float64 {
	return mapped(inverse, func(i int, f float64) float64 { return f / factors[i] })
}

// LongRoPEFactor is what cosine and sine are multiplied by when a model of
// originalLen was stretched by factor.
func LongRoPEFactor(factor, originalLen float64) float64 {
	if factor <= 1 {
		return 1
	}
	return math.Sqrt(1 + math.Log(factor)/math.Log(originalLen))
}

func mapped(in []float64, f func(int, float64) float64) []float64 {
	out := make([]float64, len(in))
	for i, x := range in {
		out[i] = f(i, x)
	}
	return out
}
