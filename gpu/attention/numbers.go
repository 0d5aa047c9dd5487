package attention

import "math"

// lanes is the number of partial sums of a dot product.
const lanes = 8

// Dot is the dot product of two vectors of one length: partial sum l adds the products l, l+8,
// l+16 … in this order, and the eight are added in pairs four, two and one apart. The order is
// part of what it promises.
func Dot(a, b []float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	n := len(a)
	b = b[:n]
	i := 0
	for ; i+lanes <= n; i += lanes {
		x, y := a[i:i+lanes:i+lanes], b[i:i+lanes:i+lanes]
		// The conversions keep a compiler from fusing product and sum, which rounds once and not
		// twice: Go allows fusing where no conversion stands between.
		s0 += float32(x[0] * y[0])
		s1 += float32(x[1] * y[1])
		s2 += float32(x[2] * y[2])
		s3 += float32(x[3] * y[3])
		s4 += float32(x[4] * y[4])
		s5 += float32(x[5] * y[5])
		s6 += float32(x[6] * y[6])
		s7 += float32(x[7] * y[7])
	}
	// The rest is added as if products with 0 were behind the end.
	if i < n {
		var t [lanes]float32
		for l := range n - i {
			t[l] = float32(a[i+l] * b[i+l])
		}
		s0, s1, s2, s3 = s0+t[0], s1+t[1], s2+t[2], s3+t[3]
		s4, s5, s6, s7 = s4+t[4], s5+t[5], s6+t[6], s7+t[7]
	}
	return ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))
}

// addRows adds weight[i] · row i to out, row by row: each element of out has
// one order of additions. Four rows go at a time, which changes no bit.
func addRows(out, weights, rows []float32, stride int) {
	n := len(out)
	i := 0
	// out[d] is loaded and stored once for four rows instead of once for each.
	for ; i+4 <= len(weights); i += 4 {
		w := weights[i : i+4 : i+4]
		w0, w1, w2, w3 := w[0], w[1], w[2], w[3]
		r0 := rows[i*stride:][:n]
		r1 := rows[(i+1)*stride:][:n]
		r2 := rows[(i+2)*stride:][:n]
		r3 := rows[(i+3)*stride:][:n]
		for d, x := range out {
			x += float32(w0 * r0[d])
			x += float32(w1 * r1[d])
			x += float32(w2 * r2[d])
			x += float32(w3 * r3[d])
			out[d] = x
		}
	}
	for ; i < len(weights); i++ {
		w, r := weights[i], rows[i*stride:][:n]
		for d, x := range out {
			out[d] = x + float32(w*r[d])
		}
	}
}

// The numbers of Exp: 1/ln 2, ln 2, and what rounds a float64 to an integer when
// it is added and subtracted.
const (
	log2e    = 1.44269504088896340735992468100189214
	ln2      = 0.693147180559945309417232121458176568
	roundInt = 3 << 51
)

// Exp is e^x, the nearest float32 but for rare ties. It is our own, in plain
// arithmetic, because math.Exp has another implementation on each machine and
// bits would depend on it; and it costs half as much.
func Exp(x float32) float32 {
	switch {
	// Below half of the least subnormal, 2⁻¹⁵⁰, and above the largest float32.
	case x < -104:
		return 0
	case x > 89:
		return float32(math.Inf(1))
	case x != x:
		return x
	}
	t := float64(float64(x) * log2e)
	// x = n·ln 2 + f, and e^x = 2ⁿ·e^f with |f| ≤ ln 2 / 2.
	n := float64(t+roundInt) - roundInt
	f := float64((t - n) * ln2)
	// Taylor's series up to f⁹ is exact to 10⁻¹¹ for |f| ≤ ln 2 / 2.
	p := float64(f*(1.0/362880)) + 1.0/40320
	p = float64(p*f) + 1.0/5040
	p = float64(p*f) + 1.0/720
	p = float64(p*f) + 1.0/120
	p = float64(p*f) + 1.0/24
	p = float64(p*f) + 1.0/6
	p = float64(p*f) + 0.5
	p = float64(p*f) + 1
	p = float64(p*f) + 1
	// 2ⁿ is made of its exponent bits; n is far within those of a float64.
	return float32(p * math.Float64frombits(uint64(1023+int64(n))<<52))
}

// Tanh is the hyperbolic tangent by Exp.
// It is for caps of scores: like Exp it gives the same bits on every machine.
func Tanh(x float32) float32 {
	switch {
	// 1 − tanh(10) is below half a unit of float32 at 1.
	case x > 10:
		return 1
	case x < -10:
		return -1
	case x > -0.25 && x < 0.25:
		// e^2x − 1 would lose digits: the continued fraction does not.
		y := float64(x)
		s := float64(y * y)
		return float32(y * (1 + float64(s*(1.0/9+float64(s/945)))) / (1 +
			float64(s*(4.0/9+float64(s/63)))))
	}
	e := float64(Exp(2 * x))
	return float32((e - 1) / (e + 1))
}
