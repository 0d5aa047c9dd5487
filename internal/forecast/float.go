package forecast

import "math"

// logSeconds is ln(age + 1 s) of an age in milliseconds. The exponent of the number gives the power of two, a
// polynomial the fraction; the error is below 0.0003, a thousandth of a bin.
func logSeconds(ageMillis int64) float32 {
	bits := math.Float32bits(float32(ageMillis)*1e-3 + 1)
	exponent := int32(bits>>23) - 127
	x := math.Float32frombits(bits&(1<<23-1)|127<<23) - 1
	// ln(1+x) on [0, 1), a minimax polynomial.
	p := x * (0.9998843 + x*(-0.4974149+x*(0.3157632+x*(-0.1903543+x*(0.0826912+x*-0.0174214)))))
	return float32(exponent)*0.6931472 + p
}

// expScale is e^x by a table over quarters and a cubic for the rest: scales lie within ±20.
func expScale(x float32) float32 {
	x = max(-expRange, min(expRange-0.25, x))
	at := int((x + expRange) * 4)
	r := x + expRange - float32(at)*0.25
	return exps[at] * (1 + r*(1+r*(0.5+r*(1.0/6+r*(1.0/24)))))
}

const expRange = 20

var exps = func() (t [8 * expRange]float32) {
	for i := range t {
		t[i] = float32(math.Exp(float64(i)/4 - expRange))
	}
	return t
}()
