//go:build goexperiment.simd && amd64

package attention

import "simd/archsimd"

// hasAVX2 tells whether eight numbers can be computed at a time.
var hasAVX2 = archsimd.X86.AVX2()

// Dot is the dot product of two vectors of one length. See plainDot for the
// order of its additions, which is part of what it promises: the eight partial
// sums are the lanes of one register. Products are not fused with sums.
func Dot(a, b []float32) float32 {
	n := len(a)
	if !hasAVX2 || n < lanes {
		return plainDot(a, b)
	}
	b = b[:n]
	var s archsimd.Float32x8
	i := 0
	for ; i+lanes <= n; i += lanes {
		s = s.Add(archsimd.LoadFloat32x8Slice(a[i:]).Mul(archsimd.LoadFloat32x8Slice(b[i:])))
	}
	if i < n {
		// The lanes behind the end add 0, which changes no bit of a sum that began
		// with +0.
		s = s.Add(archsimd.LoadFloat32x8SlicePart(a[i:]).Mul(archsimd.LoadFloat32x8SlicePart(b[i:])))
	}
	var t [lanes]float32
	s.Store(&t)
	archsimd.ClearAVXUpperBits()
	return ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7]))
}

// addRows is plainAddRows, eight elements at a time.
func addRows(out, weights, rows []float32, stride int) {
	n := len(out)
	if !hasAVX2 || n < lanes {
		plainAddRows(out, weights, rows, stride)
		return
	}
	for d := 0; d+lanes <= n; d += lanes {
		x := archsimd.LoadFloat32x8Slice(out[d:])
		for i, w := range weights {
			x = x.Add(archsimd.BroadcastFloat32x8(w).Mul(archsimd.LoadFloat32x8Slice(rows[i*stride+d:])))
		}
		x.StoreSlice(out[d:])
	}
	archsimd.ClearAVXUpperBits()
	if d := n / lanes * lanes; d < n {
		plainAddRows(out[d:], weights, rows[d:], stride)
	}
}
