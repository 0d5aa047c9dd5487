package model

import (
	"math"
	"slices"

	"github.com/kvactor/kvactor/gpu/attention"
)

// mlp is what a block computes of each row alone. y may not be x.
type mlp interface {
	run(e *Executor, y, x []float32, rows int)
}

// plainMLP is down(act(up(x))).
type plainMLP struct {
	up, down *linear
	act      activation
}

func (m *plainMLP) run(e *Executor, y, x []float32, rows int) {
	f := m.up.out
	h := e.buffer(bufferMLP, rows*f)
	m.up.apply(e.workers, h, x, rows)
	e.each(rows, func(r int) {
		for i, v := range h[r*f : (r+1)*f] {
			h[r*f+i] = m.act(v)
		}
	})
	m.down.apply(e.workers, y, h, rows)
}

// gatedMLP is down(act(gate(x)) · up(x)); gate and up are one matrix, gate first.
type gatedMLP struct {
	gateUp, down *linear
	act          activation
}

func (m *gatedMLP) run(e *Executor, y, x []float32, rows int) {
	f := m.down.in
	h := e.buffer(bufferMLP, rows*2*f)
	m.gateUp.apply(e.workers, h, x, rows)
	e.each(rows, func(r int) {
		row := h[r*2*f : (r+1)*2*f]
		for i := range f {
			row[i] = float32(m.act(row[i]) * row[f+i])
		}
	})
	m.down.applyStrided(e.workers, y, m.down.out, h, 2*f, rows)
}

// expertsMLP is gpt-oss: a router takes the best experts of each row, softmax
// weighs them. An expert computes gate · sigmoid(alpha·gate) · (up + 1) with
// clamped gate and up, which lie by turns in one matrix.
type expertsMLP struct {
	router       *linear
	gateUp, down []*linear
	take         int
	alpha, limit float32
}

func (m *expertsMLP) run(e *Executor, y, x []float32, rows int) {
	n, hidden := len(m.down), m.router.in
	scores := e.buffer(bufferRouter, rows*n)
	m.router.apply(e.workers, scores, x, rows)
	clear(y[:rows*hidden])
	// Row by row: which experts a row takes is a function of the row.
	for r := range rows {
		m.row(e, y[r*hidden:(r+1)*hidden], x[r*hidden:(r+1)*hidden], scores[r*n:(r+1)*n])
	}
}

func (m *expertsMLP) row(e *Executor, y, x, scores []float32) {
	f := m.down[0].in
	h, out := e.buffer(bufferMLP, 2*f), e.buffer(bufferExpert, len(y))
	chosen := best(scores, m.take)
	total := float32(0)
	for _, c := range chosen {
		total += attention.Exp(scores[c] - scores[chosen[0]])
	}
	for _, c := range chosen {
		weight := attention.Exp(scores[c]-scores[chosen[0]]) / total
		m.gateUp[c].apply(e.workers, h, x, 1)
		for i := range f {
			gate, up := min(h[2*i], m.limit), min(max(h[2*i+1], -m.limit), m.limit)
			h[i] = float32((up + 1) * float32(gate*sigmoid(float32(gate*m.alpha))))
		}
		m.down[c].apply(e.workers, out, h, 1)
		for i, v := range out {
			y[i] += float32(weight * v)
		}
	}
}

// best gives the indices of the n largest numbers, the largest first, the first
// of equal ones first.
func best(x []float32, n int) []int {
	var out []int
	for range n {
		top := -1
		for i, v := range x {
			if !slices.Contains(out, i) && (top < 0 || v > x[top]) {
				top = i
			}
		}
		out = append(out, top)
	}
	return out
}

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
