package model

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu/attention"
)

// A product has one result for every number of rows, part and build: that of
// sums along the inputs.
func TestProductsAddAlongTheInputs(t *testing.T) {
	workers := attention.NewWorkers(2)
	defer workers.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	numbers := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	for _, out := range []int{1, 7, 63, 64, 65, 200} {
		for _, in := range []int{1, 5, 48} {
			w, bias := numbers(out*in), numbers(out)
			l := newLinear(out, in, w, bias)
			x := numbers(300 * in)
			want := make([]float32, 300*out)
			for r := range 300 {
				for o := range out {
					sum := float32(0)
					for k := range in {
						sum += float32(x[r*in+k] * w[o*in+k])
					}
					want[r*out+o] = sum + bias[o]
				}
			}
			for _, rows := range []int{1, 2, 3, 11, 300} {
				y := make([]float32, rows*out)
				l.apply(workers, y, x, rows)
				require.Equal(t, want[:rows*out], y, "%d rows of %d, %d outputs", rows, in, out)
			}
		}
	}
}

func benchmarkProduct(b *testing.B, rows int) {
	workers := attention.NewWorkers(1)
	defer workers.Close()
	l := newLinear(1536, 576, make([]float32, 1536*576), nil)
	x, y := make([]float32, rows*576), make([]float32, rows*1536)
	for i := range x {
		x[i] = 1 // Gonum leaves out inputs of 0
	}
	b.SetBytes(int64(rows * 1536 * 576)) // multiplications
	for b.Loop() {
		l.apply(workers, y, x, rows)
	}
}

func BenchmarkProductOneRow(b *testing.B)      { benchmarkProduct(b, 1) }
func BenchmarkProductSixteenRows(b *testing.B) { benchmarkProduct(b, 16) }
