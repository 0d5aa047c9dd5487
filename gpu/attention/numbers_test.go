package attention

import "testing"

func BenchmarkDot(b *testing.B) {
	x, y := make([]float32, 64), make([]float32, 64)
	for b.Loop() {
		Dot(x, y)
	}
}

func BenchmarkAddRows(b *testing.B) {
	out, weights, rows := make([]float32, 64), make([]float32, 32), make([]float32, 32*64)
	for b.Loop() {
		addRows(out, weights, rows, 64)
	}
}

func BenchmarkExp(b *testing.B) {
	x := float32(-3)
	for b.Loop() {
		x = -3 + Exp(x)*0
	}
}
