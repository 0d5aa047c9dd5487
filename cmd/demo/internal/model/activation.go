package model

import (
	"math"

	"github.com/kvactor/kvactor/gpu/attention"
)

// activation is a function of one number.
type activation func(float32) float32

// activations by Hugging Face's names.
var activations = map[string]activation{
	"silu": silu, "swish": silu, "relu": func(x float32) float32 { return max(x, 0) },
	"gelu": gelu, "gelu_new": geluTanh, "gelu_pytorch_tanh": geluTanh, "gelu_fast": geluTanh,
}

func sigmoid(x float32) float32 { return 1 / (1 + attention.Exp(-x)) }

func silu(x float32) float32 { return x / (1 + attention.Exp(-x)) }

// gelu is x · Φ(x).
func gelu(x float32) float32 {
	return float32(0.5 * float64(x) * (1 + math.Erf(float64(x)/math.Sqrt2)))
}

// geluTanh is the approximation of gelu with tanh.
func geluTanh(x float32) float32 {
	y := float64(x)
	inner := math.Sqrt(2/math.Pi) * (y + float64(0.044715*float64(y*y*y)))
	return float32(0.5 * y * (1 + float64(attention.Tanh(float32(inner)))))
}

// softplus is ln(1 + e^x).
func softplus(x float32) float32 {
	if x > 20 {
		return x
	}
	return float32(math.Log1p(math.Exp(float64(x))))
}
