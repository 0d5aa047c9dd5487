//go:build !(goexperiment.simd && amd64)

package attention

// Dot is the dot product of two vectors of one length. See plainDot for the
// order of its additions, which is part of what it promises.
func Dot(a, b []float32) float32 { return plainDot(a, b) }

func addRows(out, weights, rows []float32, stride int) { plainAddRows(out, weights, rows, stride) }
