package weights

import (
	"encoding/binary"

	"github.com/kvactor/kvactor/gpu/attention"
)

// The blocks of GGUF's quantized types, as ggml's quants.c reads them: products
// and sums are of float32, each rounded, so that the numbers are the same as
// everywhere.

// half reads a float16.
func half(b []byte) float32 { return attention.FromFloat16(binary.LittleEndian.Uint16(b)) }

// readQ8_0: d, then 32 int8: d·q.
func readQ8_0(dst []float32, b []byte) {
	d := half(b)
	for i := range dst {
		dst[i] = float32(d * float32(int8(b[2+i])))
	}
}

// readQ4_0: d, then 16 bytes with numbers i and i+16: d·(q−8).
func readQ4_0(dst []float32, b []byte) {
	d := half(b)
	for i, q := range b[2:18] {
		dst[i] = float32(d * float32(int(q&15)-8))
		dst[i+16] = float32(d * float32(int(q>>4)-8))
	}
}

// readQ4_1: d and m, then 16 bytes as in Q4_0: d·q + m.
func readQ4_1(dst []float32, b []byte) {
	d, m := half(b), half(b[2:])
	for i, q := range b[4:20] {
		dst[i] = float32(d*float32(q&15)) + m
		dst[i+16] = float32(d*float32(q>>4)) + m
	}
}

// readQ4_K: d and dmin, 12 bytes of six-bit scales and minima of eight groups of
// 32, then four times 32 bytes, the low nibbles of one group and the high ones
// of the next: d·scale·q − dmin·minimum.
func readQ4_K(dst []float32, b []byte) {
	d, dmin := half(b), half(b[2:])
	scales, quants := b[4:16], b[16:144]
	for pair := range 4 {
		lowScale, lowMin := sixBits(2*pair, scales)
		highScale, highMin := sixBits(2*pair+1, scales)
		d1, m1 := float32(d*lowScale), float32(dmin*lowMin)
		d2, m2 := float32(d*highScale), float32(dmin*highMin)
		for i, q := range quants[32*pair : 32*pair+32] {
			dst[64*pair+i] = float32(d1*float32(q&15)) - m1
			dst[64*pair+32+i] = float32(d2*float32(q>>4)) - m2
		}
	}
}

// sixBits unpacks scale and minimum of group i: the first four groups have their
// own bytes, the others are in the upper bits.
func sixBits(i int, b []byte) (scale, minimum float32) {
	if i < 4 {
		return float32(b[i] & 63), float32(b[i+4] & 63)
	}
	return float32(b[i+4]&15 | b[i-4]>>6<<4), float32(b[i+4]>>4 | b[i]>>6<<4)
}

// readQ6_K: 128 bytes of low nibbles, 64 of two high bits each, 16 int8 scales of
// 16 numbers each, then d: d·scale·(q−32).
func readQ6_K(dst []float32, b []byte) {
	d := half(b[208:])
	for part := range 2 { // of 128 numbers
		low, high, scales := b[64*part:], b[128+32*part:], b[192+8*part:]
		out := dst[128*part:]
		for i := range 32 {
			h := high[i]
			q := [4]int{
				int(low[i]&15) | int(h&3)<<4,
				int(low[i+32]&15) | int(h>>2&3)<<4,
				int(low[i]>>4) | int(h>>4&3)<<4,
				int(low[i+32]>>4) | int(h>>6)<<4,
			}
			for k, v := range q {
				scale := float32(int8(scales[2*k+i/16]))
				out[32*k+i] = float32(float32(d*scale) * float32(v-32))
			}
		}
	}
}
