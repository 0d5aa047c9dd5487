package model

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu/attention"
)

// panel is the number of outputs that are computed together.
const panel = 8

// linear is y = W·x + b. Weights lie in panels of eight outputs, [panel][in][8],
// so that eight sums run at a time and each adds along the inputs in their order:
// one order of additions for every output, whatever else is computed beside it.
type linear struct {
	in, out   int
	panels    []float32
	quantized *quantized // nil: the weights are panels
	bias      []float32  // nil: none
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

// partPanels is how many panels one part of a product has: enough work to be
// worth a worker's turn, few enough that two workers share small matrices.
const partPanels = 8

// product is one matrix product of a batch of rows.
type product struct {
	l       *linear
	x, y    []float32
	rows    int
	xStride int
	yStride int
}

// Do computes a part: some panels, all rows.
func (p *product) Do(_, part int) {
	count := (p.l.out + panel - 1) / panel
	p.panels(part*partPanels, min((part+1)*partPanels, count))
}

// weights are those of a panel.
func (p *product) weights(i int) []float32 {
	n := panel * p.l.in
	return p.l.panels[i*n : (i+1)*n]
}

// row is the input of a row.
func (p *product) row(r int) []float32 { return p.x[r*p.xStride:][:p.l.in] }

// store puts the sums of a row and a panel, and the bias, where they belong.
func (p *product) store(r, i int, sums *[panel]float32) {
	n := min(panel, p.l.out-i*panel)
	y := p.y[r*p.yStride+i*panel:][:n]
	copy(y, sums[:])
	if p.l.bias != nil {
		for k, b := range p.l.bias[i*panel:][:n] {
			y[k] += b
		}
	}
}

// plainPanels computes the panels [from, to) for rows from one on.
func (p *product) plainPanels(from, to, firstRow int) {
	for i := from; i < to; i++ {
		w := p.weights(i)
		for r := firstRow; r < p.rows; r++ {
			var sums [panel]float32
			plainMulPanel(&sums, p.row(r), w)
			p.store(r, i, &sums)
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
	p := product{l: l, x: x, y: y, rows: rows, xStride: xStride, yStride: yStride}
	if l.quantized != nil {
		l.quantized.apply(w, p)
		return
	}
	w.Run(&p, ((l.out+panel-1)/panel+partPanels-1)/partPanels)
}

// plainMulPanel adds the products of one row with a panel to sums. The compiler
// puts the additions that a loop carries behind all else of their basic block. Two
// slices of four, each with a check of its bounds, are two blocks; all eight
// products in one would not fit into the registers beside the sums.
func plainMulPanel(sums *[panel]float32, x, weights []float32) {
	s0, s1, s2, s3, s4, s5, s6, s7 := sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6],
		sums[7]
	k := 0
	for _, v := range x {
		w := weights[k : k+4 : k+4]
		s0 += float32(v * w[0])
		s1 += float32(v * w[1])
		s2 += float32(v * w[2])
		s3 += float32(v * w[3])
		w = weights[k+4 : k+8 : k+8]
		s4 += float32(v * w[0])
		s5 += float32(v * w[1])
		s6 += float32(v * w[2])
		s7 += float32(v * w[3])
		k += panel
	}
	*sums = [panel]float32{s0, s1, s2, s3, s4, s5, s6, s7}
}
