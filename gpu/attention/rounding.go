package attention

import "math"

// ToBFloat16 rounds to the upper half of a float32, ties to even.
func ToBFloat16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40 // a NaN stays one
	}
	// Half a unit less one, and the last bit that stays: ties go to even. A carry into the
	// exponent is right, up to infinity.
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromBFloat16 is exact.
func FromBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToFloat16 rounds to IEEE half precision, ties to even; what is too large
// becomes infinite.
func ToFloat16(x float32) uint16 {
	b := math.Float32bits(x)
	sign, abs := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00
	// The least of what rounds to infinity is 65520; the normal case carries it there.
	case abs >= 0x47800000: // 65536 and above
		return sign | 0x7c00
	case abs >= 0x38800000: // normal: 2⁻¹⁴ and above
		abs += 0xfff + abs>>13&1
		return sign | uint16((abs-0x38000000)>>13)
	case abs < 0x33000000: // below half of the least subnormal
		return sign
	}
	// A subnormal counts units of 2⁻²⁴.
	exponent := abs >> 23
	// With the leading one that float32 does not store.
	mantissa := abs&0x7fffff | 0x800000
	shift := 126 - exponent // 24-bit mantissa → units
	half := uint32(1)<<(shift-1) - 1
	return sign | uint16((mantissa+half+mantissa>>shift&1)>>shift)
}

// FromFloat16 is exact.
func FromFloat16(h uint16) float32 { return halfValues[h] }

// halfValues has the value of each float16: 256 KiB, and reading one costs less
// than taking its bits apart.
var halfValues = func() (t [1 << 16]float32) {
	for i := range t {
		t[i] = halfValue(uint16(i))
	}
	return t
}()

// halfValue is the value of a float16, from its bits. A NaN keeps its mantissa.
func halfValue(h uint16) float32 {
	sign, exponent, mantissa := uint32(h&0x8000)<<16, uint32(h>>10&31), uint32(h&0x3ff)
	switch exponent {
	case 0:
		// A subnormal or zero, in units of 2⁻²⁴.
		x := float32(mantissa) / (1 << 24)
		return math.Float32frombits(math.Float32bits(x) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | mantissa<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | mantissa<<13)
}

// toInt8 rounds to nearest, ties to even, and saturates.
func toInt8(x float32) int8 {
	switch y := math.RoundToEven(float64(x)); {
	// int8 would wrap around; a NaN becomes 0, since 8-bit integers have none.
	case y >= 127:
		return 127
	case y <= -128:
		return -128
	case y != y:
		return 0
	default:
		return int8(y)
	}
}

// maxFP8 is the largest number of E4M3, which has no infinity.
// E4M3 has a sign, four bits of exponent with bias 7 and three of mantissa.
const maxFP8 = 448

// ToFP8 rounds to E4M3, ties to even, saturating at 448. A NaN is 0x7f.
func ToFP8(x float32) byte {
	b := math.Float32bits(x)
	sign, abs := byte(b>>24&0x80), math.Float32frombits(b&0x7fffffff)
	switch {
	case abs != abs:
		return sign | 0x7f
	case abs >= maxFP8:
		return sign | 0x7e
	case abs < 1.0/64: // subnormal: units of 2⁻⁹; 8 units are the least normal
		return sign | byte(math.RoundToEven(float64(abs)*512))
	}
	// Rounded to three bits of mantissa; 120 is the difference of the biases 127 and 7.
	a := math.Float32bits(abs)
	a += 0x7ffff + a>>20&1
	return sign | byte((a-120<<23)>>20)
}

// FromFP8 is exact.
func FromFP8(b byte) float32 { return fp8Values[b] }

// fp8Values has the value of each byte of E4M3.
var fp8Values = func() (t [256]float32) {
	for i := range t {
		exponent, mantissa := i>>3&15, float64(i&7)
		x := math.Ldexp(mantissa, -9)
		if exponent > 0 {
			x = math.Ldexp(8+mantissa, exponent-10)
		}
		if i&0x7f == 0x7f {
			x = math.NaN()
		}
		if i&0x80 != 0 {
			x = math.Copysign(x, -1)
		}
		t[i] = float32(x)
	}
	return t
}()
