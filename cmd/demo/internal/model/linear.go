package model

import (
	"fmt"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/kvactor/kvactor/gpu/attention"
)

// panel is the number of outputs that one worker computes at a time: few enough that workers share
// small matrices, and that a panel of weights stays in the second-level cache for all rows.
const panel = 64

// linear is y = W·x + b. Weights lie in panels of 64 outputs, [panel][in][64].
//
// Gonum adds the products along the inputs, in their order, each rounded to float32: one order of
// additions for every output, whatever else is computed beside it. linear_test.go holds it to that.
type linear struct {
	in, out int
	panels  []float32
	bias    []float32 // nil: none
}

// newLinear packs the rows of W, [out][in].
func newLinear(out, in int, rows, bias []float32) *linear {
	if len(rows) != out*in || bias != nil && len(bias) != out {
		panic(fmt.Sprintf("model: %d weights and %d of a bias for %d outputs of %d inputs", len(rows),
			len(bias), out, in))
	}
	l := &linear{in: in, out: out, bias: bias, panels: make([]float32, (out+panel-1)/panel*panel*in)}
	for o := range out {
		base := o/panel*panel*in + o%panel
		for k, w := range rows[o*in : (o+1)*in] {
			l.panels[base+k*panel] = w
		}
	}
	return l
}

// product is one matrix product of a batch of rows.
type product struct {
	l       *linear
	x, y    []float32
	rows    int
	xStride int
	yStride int
}

// Do computes one panel for all rows.
func (p *product) Do(_, i int) {
	l, first := p.l, i*panel
	n := min(panel, l.out-first)
	y := blas32.General{Rows: p.rows, Cols: n, Stride: p.yStride, Data: p.y[first:]}
	blas32.Gemm(blas.NoTrans, blas.NoTrans, 1,
		blas32.General{Rows: p.rows, Cols: l.in, Stride: p.xStride, Data: p.x},
		blas32.General{Rows: l.in, Cols: n, Stride: panel, Data: l.panels[first*l.in:]}, 0, y)
	if l.bias != nil {
		for r := range p.rows {
			addTo(y.Data[r*y.Stride:][:n], l.bias[first:])
		}
	}
}

// apply computes y = W·x + b for rows that lie one behind the other.
func (l *linear) apply(w *attention.Workers, y, x []float32, rows int) {
	l.applyStrided(w, y, l.out, x, l.in, rows)
}

func (l *linear) applyStrided(
	w *attention.Workers, y []float32, yStride int, x []float32, xStride, rows int,
) {
	if rows == 0 {
		return
	}
	w.Run(&product{l: l, x: x, y: y, rows: rows, xStride: xStride, yStride: yStride},
		(l.out+panel-1)/panel)
}
