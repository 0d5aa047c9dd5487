package attention

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever the build uses has the bits of the plain functions.
func TestDotAndAddRowsAreThePlainOnes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	numbers := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64() * math.Exp(3*rng.NormFloat64()))
		}
		return x
	}
	for n := 1; n < 70; n++ {
		a, b := numbers(n), numbers(n)
		require.Equal(t, math.Float32bits(plainDot(a, b)), math.Float32bits(Dot(a, b)), "%d numbers", n)
		for rows := range 10 {
			values, weights, out := numbers(max(rows, 1)*(n+3)), numbers(rows), numbers(n)
			want := append([]float32(nil), out...)
			plainAddRows(want, weights, values, n+3)
			addRows(out, weights, values, n+3)
			for i := range want {
				require.Equal(t, math.Float32bits(want[i]), math.Float32bits(out[i]), "%d rows of %d", rows, n)
			}
		}
	}
}

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
