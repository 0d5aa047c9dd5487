//go:build goexperiment.simd && amd64

package model

import (
	"simd/archsimd"
	"unsafe"
)

// hasAVX2 tells whether eight outputs can be computed at a time.
var hasAVX2 = archsimd.X86.AVX2()

// panels computes the panels [from, to) for all rows: a panel is one register.
// Each output still adds its products along the inputs in their order, each
// rounded before it is added, so the bits are those of plainPanels.
func (p *product) panels(from, to int) {
	if !hasAVX2 {
		p.plainPanels(from, to, 0)
		return
	}
	r := 0
	for ; r+3 <= p.rows; r += 3 {
		i := from
		for ; i+2 <= to; i += 2 {
			p.threeRows(r, i)
		}
		for ; i < to; i++ {
			for k := range 3 {
				p.onePanel(r+k, i)
			}
		}
	}
	for ; r < p.rows; r++ {
		i := from
		for ; i+4 <= to; i += 4 {
			p.fourPanels(r, i)
		}
		for ; i < to; i++ {
			p.onePanel(r, i)
		}
	}
	archsimd.ClearAVXUpperBits()
}

// at is the register's worth of numbers from an index on, without a check: the
// loops below stay within what the slices were cut to.
func at(x *float32, i int) *[panel]float32 {
	return (*[panel]float32)(unsafe.Add(unsafe.Pointer(x), 4*i))
}

// one is one number, in all lanes.
func one(x *float32, i int) archsimd.Float32x8 {
	return archsimd.BroadcastFloat32x8(*(*float32)(unsafe.Add(unsafe.Pointer(x), 4*i)))
}

// threeRows computes two panels for three rows: six sums, which with what they
// are made of fit into the sixteen registers. Eight would not.
func (p *product) threeRows(r, i int) {
	w, v := unsafe.SliceData(p.weights(i)), unsafe.SliceData(p.weights(i+1))
	x0, x1, x2 := unsafe.SliceData(p.row(r)), unsafe.SliceData(p.row(r+1)),
		unsafe.SliceData(p.row(r+2))
	var a0, a1, a2, b0, b1, b2 archsimd.Float32x8
	for k := range p.l.in {
		wk, vk := archsimd.LoadFloat32x8(at(w, k*panel)), archsimd.LoadFloat32x8(at(v, k*panel))
		x := one(x0, k)
		a0, b0 = a0.Add(x.Mul(wk)), b0.Add(x.Mul(vk))
		x = one(x1, k)
		a1, b1 = a1.Add(x.Mul(wk)), b1.Add(x.Mul(vk))
		x = one(x2, k)
		a2, b2 = a2.Add(x.Mul(wk)), b2.Add(x.Mul(vk))
	}
	var sums [panel]float32
	for k, s := range [...]archsimd.Float32x8{a0, a1, a2} {
		s.Store(&sums)
		p.store(r+k, i, &sums)
	}
	for k, s := range [...]archsimd.Float32x8{b0, b1, b2} {
		s.Store(&sums)
		p.store(r+k, i+1, &sums)
	}
}

// fourPanels computes four panels for one row.
func (p *product) fourPanels(r, i int) {
	w0, w1, w2, w3 := unsafe.SliceData(p.weights(i)), unsafe.SliceData(p.weights(i+1)),
		unsafe.SliceData(p.weights(i+2)), unsafe.SliceData(p.weights(i+3))
	row := unsafe.SliceData(p.row(r))
	var a0, a1, a2, a3 archsimd.Float32x8
	for k := range p.l.in {
		x := one(row, k)
		a0 = a0.Add(x.Mul(archsimd.LoadFloat32x8(at(w0, k*panel))))
		a1 = a1.Add(x.Mul(archsimd.LoadFloat32x8(at(w1, k*panel))))
		a2 = a2.Add(x.Mul(archsimd.LoadFloat32x8(at(w2, k*panel))))
		a3 = a3.Add(x.Mul(archsimd.LoadFloat32x8(at(w3, k*panel))))
	}
	var sums [panel]float32
	for k, s := range [...]archsimd.Float32x8{a0, a1, a2, a3} {
		s.Store(&sums)
		p.store(r, i+k, &sums)
	}
}

// onePanel computes one panel for one row.
func (p *product) onePanel(r, i int) {
	w, row := unsafe.SliceData(p.weights(i)), unsafe.SliceData(p.row(r))
	var a archsimd.Float32x8
	for k := range p.l.in {
		a = a.Add(one(row, k).Mul(archsimd.LoadFloat32x8(at(w, k*panel))))
	}
	var sums [panel]float32
	a.Store(&sums)
	p.store(r, i, &sums)
}
