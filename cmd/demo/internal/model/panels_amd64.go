//go:build goexperiment.simd && amd64

package model

import (
	"simd/archsimd"
	"unsafe"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/weights"
)

// With vector instructions, eight outputs are the lanes of a register. Integers of
// 25 bits do not fit into products of 16 bits: a number is 4096·high + low, and the
// sums of both halves are exact, so that S is what plain Go computes.
//
// No scalar arithmetic, clearing or copying is done before the upper halves of the
// registers are cleared: the compiler makes them SSE instructions, and a change
// between those and AVX costs some hundred cycles on some processors.

// pack makes the layout of the weights.
func (q *quantized) pack(g *weights.Groups) {
	if hasAVX2 {
		q.packPanels(g)
	} else {
		q.packPlanes(g)
	}
}

// packPanels puts the weights of eight outputs together: 16 bytes have, for each
// output, those of two inputs. With 4 bits the upper nibbles have those of the next
// two inputs.
func (q *quantized) packPanels(g *weights.Groups) {
	groups, panels := q.in/group, (q.out+panel-1)/panel
	q.panels = make([]uint8, panels*groups*panel*group*q.bits/8)
	q.scales = make([]float32, panels*groups*panel)
	if g.Minima != nil {
		q.minima = make([]float32, panels*groups*panel)
	}
	for o := range q.out {
		for k := range groups {
			from, to := o*groups+k, o/panel*groups+k
			q.scales[to*panel+o%panel] = g.Scales[from]
			if g.Minima != nil {
				q.minima[to*panel+o%panel] = g.Minima[from]
			}
			block := q.block(o/panel, k)
			for i, x := range g.Numbers[from*group:][:group] {
				if q.bits == 8 {
					block[i/2*16+o%panel*2+i%2] = x
				} else {
					block[i/4*16+o%panel*2+i%2] |= x << (i % 4 / 2 * 4)
				}
			}
		}
	}
}

// block is the weights of a panel and a group.
func (q *quantized) block(i, g int) []uint8 {
	n := panel * group * q.bits / 8
	return q.panels[(i*(q.in/group)+g)*n:][:n]
}

// split makes the halves of a row: of each two inputs a word with the two high
// halves, which are from −4096 to 4095, and a word with the low ones, 0 to 4095.
func (f *fixedRows) split(row int) {
	if !hasAVX2 {
		return
	}
	for g := range f.groups {
		x, i := f.at(row, g), row*f.groups+g
		words := f.halves[i*group:][:group]
		high := int32(0)
		for k := 0; k < group; k += 2 {
			words[k] = x[k]>>12&0xffff | x[k+1]>>12<<16
			words[k+1] = x[k]&0xfff | x[k+1]&0xfff<<16
			high += x[k]>>12 + x[k+1]>>12
		}
		f.highs[i] = high
	}
}

// tile computes a tile.
func (p *quantizedProduct) tile(t tile) {
	if p.q.panels == nil {
		p.planeTile(t)
		return
	}
	first, end := t.first/panel, (t.end+panel-1)/panel
	for r := t.row; r < t.endRow; r++ {
		i := first
		if p.q.bits == 4 {
			for ; i+2 <= end; i += 2 {
				p.twoPanels(r, i)
			}
		}
		for ; i < end; i++ {
			p.onePanel(r, i)
		}
	}
}

// panelSums are a group's sums of the two halves for a panel of a row.
type panelSums struct{ high, low [panel]int32 }

// start begins with what the offset of the weights takes away.
func (p *quantizedProduct) start(s *panelSums, row, g int) {
	i := row*p.x.groups + g
	high := p.x.highs[i]
	low := p.x.totals[i] - high*4096
	archsimd.BroadcastInt32x8(-int32(p.q.offset) * high).Store(&s.high)
	archsimd.BroadcastInt32x8(-int32(p.q.offset) * low).Store(&s.low)
}

// finishPanel adds a group to the outputs y of a panel of a row.
func (p *quantizedProduct) finishPanel(y *[panel]float32, s *panelSums, row, i, g int) {
	at, scale := (i*p.x.groups+g)*panel, p.x.scales[row*p.x.groups+g]
	sum := archsimd.LoadInt32x8(&s.high).ConvertToFloat32().Mul(archsimd.BroadcastFloat32x8(4096))
	sum = sum.Add(archsimd.LoadInt32x8(&s.low).ConvertToFloat32())
	scales := archsimd.BroadcastFloat32x8(scale).Mul(archsimd.LoadFloat32x8((*[panel]float32)(p.q.scales[at:])))
	out := archsimd.LoadFloat32x8(y).Add(scales.Mul(sum))
	if p.q.minima != nil {
		x := archsimd.BroadcastFloat32x8(p.x.sums[row*p.x.groups+g])
		out = out.Add(archsimd.LoadFloat32x8((*[panel]float32)(p.q.minima[at:])).Mul(x))
	}
	out.Store(y)
}

// onePanel computes a panel of a row.
func (p *quantizedProduct) onePanel(row, i int) {
	var y [panel]float32
	var s panelSums
	for g := range p.x.groups {
		p.start(&s, row, g)
		if w, x := unsafe.SliceData(p.q.block(i, g)), p.words(row, g); p.q.bits == 8 {
			s.bytes(w, x)
		} else {
			s.nibbles(w, x)
		}
		p.finishPanel(&y, &s, row, i, g)
	}
	archsimd.ClearAVXUpperBits()
	p.put(&y, row, i)
}

// twoPanels computes two panels of a row, of 4 bits.
func (p *quantizedProduct) twoPanels(row, i int) {
	var y, z [panel]float32
	var s, t panelSums
	for g := range p.x.groups {
		p.start(&s, row, g)
		p.start(&t, row, g)
		twoNibbles(&s, &t, unsafe.SliceData(p.q.block(i, g)), unsafe.SliceData(p.q.block(i+1, g)), p.words(row, g))
		p.finishPanel(&y, &s, row, i, g)
		p.finishPanel(&z, &t, row, i+1, g)
	}
	archsimd.ClearAVXUpperBits()
	p.put(&y, row, i)
	p.put(&z, row, i+1)
}

// words are the halves of a group of a row.
func (p *quantizedProduct) words(row, g int) *int32 {
	return unsafe.SliceData(p.x.halves[(row*p.x.groups+g)*group:][:group])
}

// put writes the outputs of a panel that there are.
func (p *quantizedProduct) put(y *[panel]float32, row, i int) {
	copy(p.y[row*p.yStride+i*panel:][:min(panel, p.q.out-i*panel)], y[:])
}

// word is a word of halves in all lanes.
func word(x *int32, i int) archsimd.Int16x16 {
	return archsimd.BroadcastFloat32x8(*(*float32)(unsafe.Add(unsafe.Pointer(x), 4*i))).AsInt16x16()
}

// pairs are 16 bytes of weights as 16-bit numbers.
func pairs(w *uint8, i int) archsimd.Uint16x16 {
	return archsimd.LoadUint8x16((*[16]uint8)(unsafe.Add(unsafe.Pointer(w), i))).ExtendToUint16()
}

// upperNibble is what a number is multiplied with: the upper 16 bits of the product
// are the number shifted by four bits. A shift by a constant takes an SSE instruction.
const upperNibble = 1 << 12

// bytes adds the products of a group of 8-bit weights.
func (s *panelSums) bytes(w *uint8, x *int32) {
	high, low := archsimd.LoadInt32x8(&s.high), archsimd.LoadInt32x8(&s.low)
	for i := 0; i < group; i += 2 {
		q := pairs(w, 8*i).AsInt16x16()
		high = high.Add(q.DotProductPairs(word(x, i)))
		low = low.Add(q.DotProductPairs(word(x, i+1)))
	}
	high.Store(&s.high)
	low.Store(&s.low)
}

// nibbles adds the products of a group of 4-bit weights.
func (s *panelSums) nibbles(w *uint8, x *int32) {
	high, low := archsimd.LoadInt32x8(&s.high), archsimd.LoadInt32x8(&s.low)
	mask, upper := archsimd.BroadcastUint16x16(15), archsimd.BroadcastUint16x16(upperNibble)
	for i := 0; i < group; i += 4 {
		both := pairs(w, 4*i)
		q := both.And(mask).AsInt16x16()
		high = high.Add(q.DotProductPairs(word(x, i)))
		low = low.Add(q.DotProductPairs(word(x, i+1)))
		q = both.MulHigh(upper).AsInt16x16()
		high = high.Add(q.DotProductPairs(word(x, i+2)))
		low = low.Add(q.DotProductPairs(word(x, i+3)))
	}
	high.Store(&s.high)
	low.Store(&s.low)
}

// twoNibbles is nibbles for two panels of a row, which share what is read of it.
func twoNibbles(s, t *panelSums, w, v *uint8, x *int32) {
	high, low := archsimd.LoadInt32x8(&s.high), archsimd.LoadInt32x8(&s.low)
	high2, low2 := archsimd.LoadInt32x8(&t.high), archsimd.LoadInt32x8(&t.low)
	mask, upper := archsimd.BroadcastUint16x16(15), archsimd.BroadcastUint16x16(upperNibble)
	for i := 0; i < group; i += 4 {
		both, both2 := pairs(w, 4*i), pairs(v, 4*i)
		q, q2 := both.And(mask).AsInt16x16(), both2.And(mask).AsInt16x16()
		h, l := word(x, i), word(x, i+1)
		high, low = high.Add(q.DotProductPairs(h)), low.Add(q.DotProductPairs(l))
		high2, low2 = high2.Add(q2.DotProductPairs(h)), low2.Add(q2.DotProductPairs(l))
		q, q2 = both.MulHigh(upper).AsInt16x16(), both2.MulHigh(upper).AsInt16x16()
		h, l = word(x, i+2), word(x, i+3)
		high, low = high.Add(q.DotProductPairs(h)), low.Add(q.DotProductPairs(l))
		high2, low2 = high2.Add(q2.DotProductPairs(h)), low2.Add(q2.DotProductPairs(l))
	}
	high.Store(&s.high)
	low.Store(&s.low)
	high2.Store(&t.high)
	low2.Store(&t.low)
}
