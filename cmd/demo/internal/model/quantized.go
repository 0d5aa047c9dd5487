package model

import (
	"sync"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/weights"
	"github.com/kvactor/kvactor/gpu/attention"
)

// quantized is a matrix of 4-bit or 8-bit numbers in groups of 32 inputs. With
// the inputs in fixed point, x = scale·X, an output is
//
//	y = Σ over groups  (scale·d)·S + (m·scale)·T        S = Σ X·(q − offset), T = Σ X
//
// S and T are exact integers. What is made of them is rounded to float32 at each
// step and added in the order of the groups: the same bits whatever algorithm
// computes S. There are two, with a layout each: planes for plain Go, panels for
// vector instructions.
type quantized struct {
	in, out      int
	bits, offset int

	// planes are [nibble][group][output], the upper nibble first: bit i of word b is
	// bit b of the nibble of input i. Scales and minima are [group][output].
	planes [][4]uint32
	// panels are [panel][group], of eight outputs: see packPanels. Scales and minima
	// are [panel][group][8].
	panels []uint8 //nolint:unused // by the kernel with vector instructions, under its build tag

	scales, minima []float32 // minima nil: 0
}

// newQuantized makes a matrix of parts, whose rows lie one behind the other; it
// gives nil if the parts are not quantized alike.
func newQuantized(in int, parts []*weights.Tensor) *quantized {
	q := &quantized{in: in}
	all := &weights.Groups{}
	for i, t := range parts {
		g, ok := t.Groups()
		if !ok || t.Type != parts[0].Type || in%group != 0 {
			return nil
		}
		if i == 0 {
			q.bits, q.offset = g.Bits, g.Offset
		}
		q.out += len(g.Numbers) / in
		all.Numbers, all.Scales = append(all.Numbers, g.Numbers...), append(all.Scales, g.Scales...)
		all.Minima = append(all.Minima, g.Minima...)
	}
	q.pack(all)
	return q
}

// quantizedProduct is one product of a batch of rows with a quantized matrix. Its
// parts are first the rows that become fixed point, then tiles of the result.
type quantizedProduct struct {
	product
	q      *quantized
	x      fixedRows
	fixing bool
	chunks int // of the outputs
	chunk  int // outputs of one
}

// quantizedProducts keeps the memory of products that have ended.
var quantizedProducts = sync.Pool{New: func() any { return &quantizedProduct{} }}

// apply computes a product.
func (q *quantized) apply(w *attention.Workers, from product) {
	p := quantizedProducts.Get().(*quantizedProduct)
	p.product, p.q, p.fixing = from, q, true
	p.x.grow(from.rows, q.in/group)
	w.Run(p, from.rows)
	p.fixing = false
	w.Run(p, p.divide(w.Count()))
	p.product, p.q = product{}, nil
	quantizedProducts.Put(p)
}

// Tiles are of a few rows, which share what is read of the weights, and of so many
// outputs that making tables of a row costs little beside using them.
const (
	tileRows    = 4
	mostOutputs = 2048
)

// divide chooses the parts of the result: at least one for each worker.
func (p *quantizedProduct) divide(workers int) int {
	tiles := (p.rows + tileRows - 1) / tileRows
	p.chunks = max((workers+tiles-1)/tiles, (p.q.out+mostOutputs-1)/mostOutputs)
	p.chunk = ((p.q.out+p.chunks-1)/p.chunks + panel - 1) / panel * panel
	p.chunks = (p.q.out + p.chunk - 1) / p.chunk
	return tiles * p.chunks
}

// Do does a part.
func (p *quantizedProduct) Do(_, part int) {
	if p.fixing {
		p.x.set(part, p.row(part))
		p.x.split(part)
		return
	}
	firstRow, first := part/p.chunks*tileRows, part%p.chunks*p.chunk
	t := tile{firstRow, min(firstRow+tileRows, p.rows), first, min(first+p.chunk, p.q.out)}
	p.tile(t)
	if p.l.bias != nil {
		for r := t.row; r < t.endRow; r++ {
			addTo(p.output(r, t.first, t.end), p.l.bias[t.first:t.end])
		}
	}
}

// tile is a part of a result: rows [row, endRow) and outputs [first, end).
type tile struct{ row, endRow, first, end int }

// output is where outputs of a row go.
func (p *quantizedProduct) output(row, first, end int) []float32 {
	return p.y[row*p.yStride:][first:end]
}
