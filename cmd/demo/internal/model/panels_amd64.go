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

// start is what the offset of the weights takes away from the sums of the halves.
func (p *quantizedProduct) start(row, g int) (high, low archsimd.Int32x8) {
	i, offset := row*p.x.groups+g, -int32(p.q.offset)
	h := p.x.highs[i]
	return archsimd.BroadcastInt32x8(offset * h),
		archsimd.BroadcastInt32x8(offset * (p.x.totals[i] - h*4096))
}

// twoPanels computes two panels of a row, of 4 bits, which share what is read of
// the row. All that a group needs stays in registers.
func (p *quantizedProduct) twoPanels(row, i int) {
	var out [2][panel]float32
	var y, z archsimd.Float32x8
	mask, upper := archsimd.BroadcastUint16x16(15), archsimd.BroadcastUint16x16(upperNibble)
	for g := range p.x.groups {
		w, v, x := unsafe.SliceData(p.q.block(i, g)), unsafe.SliceData(p.q.block(i+1, g)), p.words(row, g)
		var high, low archsimd.Int32x8
		if p.q.offset != 0 {
			high, low = p.start(row, g)
		}
		high2, low2 := high, low
		for left := group/4 - 1; ; left-- {
			both, both2 := pairs(w), pairs(v)
			q, q2 := both.And(mask).AsInt16x16(), both2.And(mask).AsInt16x16()
			h, l := word(x, 0), word(x, 1)
			high, low = high.Add(q.DotProductPairs(h)), low.Add(q.DotProductPairs(l))
			high2, low2 = high2.Add(q2.DotProductPairs(h)), low2.Add(q2.DotProductPairs(l))
			q, q2 = both.MulHigh(upper).AsInt16x16(), both2.MulHigh(upper).AsInt16x16()
			h, l = word(x, 2), word(x, 3)
			high, low = high.Add(q.DotProductPairs(h)), low.Add(q.DotProductPairs(l))
			high2, low2 = high2.Add(q2.DotProductPairs(h)), low2.Add(q2.DotProductPairs(l))
			if left == 0 {
				break
			}
			w, v, x = bytesOn(w), bytesOn(v), wordsOn(x)
		}
		at, first, second := row*p.x.groups+g, (i*p.x.groups+g)*panel, ((i+1)*p.x.groups+g)*panel
		scale := archsimd.BroadcastFloat32x8(p.x.scales[at])
		y = y.Add(scale.Mul(eight(p.q.scales, first)).Mul(number(high, low)))
		z = z.Add(scale.Mul(eight(p.q.scales, second)).Mul(number(high2, low2)))
		if p.q.minima != nil {
			sum := archsimd.BroadcastFloat32x8(p.x.sums[at])
			y = y.Add(eight(p.q.minima, first).Mul(sum))
			z = z.Add(eight(p.q.minima, second).Mul(sum))
		}
	}
	y.Store(&out[0])
	z.Store(&out[1])
	archsimd.ClearAVXUpperBits()
	p.put(&out[0], row, i)
	p.put(&out[1], row, i+1)
}

// onePanel computes a panel of a row.
func (p *quantizedProduct) onePanel(row, i int) {
	var out [panel]float32
	var y archsimd.Float32x8
	mask, upper := archsimd.BroadcastUint16x16(15), archsimd.BroadcastUint16x16(upperNibble)
	for g := range p.x.groups {
		w, x := unsafe.SliceData(p.q.block(i, g)), p.words(row, g)
		high, low := p.start(row, g)
		if p.q.bits == 8 {
			for left := group/4 - 1; ; left-- {
				q := pairs(w).AsInt16x16()
				high, low = high.Add(q.DotProductPairs(word(x, 0))), low.Add(q.DotProductPairs(word(x, 1)))
				w = bytesOn(w)
				q = pairs(w).AsInt16x16()
				high, low = high.Add(q.DotProductPairs(word(x, 2))), low.Add(q.DotProductPairs(word(x, 3)))
				if left == 0 {
					break
				}
				w, x = bytesOn(w), wordsOn(x)
			}
		} else {
			for left := group/4 - 1; ; left-- {
				both := pairs(w)
				q := both.And(mask).AsInt16x16()
				high, low = high.Add(q.DotProductPairs(word(x, 0))), low.Add(q.DotProductPairs(word(x, 1)))
				q = both.MulHigh(upper).AsInt16x16()
				high, low = high.Add(q.DotProductPairs(word(x, 2))), low.Add(q.DotProductPairs(word(x, 3)))
				if left == 0 {
					break
				}
				w, x = bytesOn(w), wordsOn(x)
			}
		}
		at, first := row*p.x.groups+g, (i*p.x.groups+g)*panel
		scale := archsimd.BroadcastFloat32x8(p.x.scales[at])
		y = y.Add(scale.Mul(eight(p.q.scales, first)).Mul(number(high, low)))
		if p.q.minima != nil {
			y = y.Add(eight(p.q.minima, first).Mul(archsimd.BroadcastFloat32x8(p.x.sums[at])))
		}
	}
	y.Store(&out)
	archsimd.ClearAVXUpperBits()
	p.put(&out, row, i)
}

// number is what the sums of the halves are together, rounded once: both are less
// than 2²⁴ in size, or the largest high one is −2²⁴.
func number(high, low archsimd.Int32x8) archsimd.Float32x8 {
	return high.ConvertToFloat32().Mul(archsimd.BroadcastFloat32x8(4096)).Add(low.ConvertToFloat32())
}

// eight are eight numbers of a slice.
func eight(x []float32, at int) archsimd.Float32x8 {
	return archsimd.LoadFloat32x8((*[panel]float32)(x[at : at+panel : at+panel]))
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

// wordsOn is behind the words of four inputs.
func wordsOn(x *int32) *int32 { return (*int32)(unsafe.Add(unsafe.Pointer(x), 16)) }

// pairs are 16 bytes of weights as 16-bit numbers.
func pairs(w *uint8) archsimd.Uint16x16 {
	return archsimd.LoadUint8x16((*[16]uint8)(unsafe.Pointer(w))).ExtendToUint16()
}

// bytesOn is behind 16 bytes.
func bytesOn(w *uint8) *uint8 { return (*uint8)(unsafe.Add(unsafe.Pointer(w), 16)) }

// upperNibble is what a number is multiplied with: the upper 16 bits of the product
// are the number shifted by four bits. A shift by a constant takes an SSE instruction.
const upperNibble = 1 << 12
