package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/weights"
	"github.com/kvactor/kvactor/gpu/attention"
)

// randomGroups are weights of one type.
func randomGroups(rng *rand.Rand, out, in, bits, offset int) *weights.Groups {
	g := &weights.Groups{Bits: bits, Offset: offset, Numbers: make([]uint8, out*in),
		Scales: make([]float32, out*in/group)}
	for i := range g.Numbers {
		g.Numbers[i] = uint8(rng.Uint32() >> (32 - bits))
	}
	if offset == 0 {
		g.Minima = make([]float32, len(g.Scales))
	}
	for i := range g.Scales {
		g.Scales[i] = float32(rng.NormFloat64())
		if g.Minima != nil {
			g.Minima[i] = float32(rng.NormFloat64())
		}
	}
	return g
}

// definition is an output as the comment on quantized has it, and the sum of its
// terms in float64, with the sum of their sizes.
func definition(g *weights.Groups, o int, x []float32) (y float32, exact, size float64) {
	for k := range len(x) / group {
		var fixed [group]int32
		in, at := (*[group]float32)(x[k*group:]), o*len(x)/group+k
		scale, total := fix(&fixed, in)
		sum := int64(0)
		for i, v := range fixed {
			q := int64(g.Numbers[at*group+i]) - int64(g.Offset)
			sum += int64(v) * q
			w := float64(q) * float64(g.Scales[at])
			if g.Minima != nil {
				w += float64(g.Minima[at])
			}
			exact += w * float64(in[i])
			size += math.Abs(w * float64(in[i]))
		}
		y += float32(float32(scale*g.Scales[at]) * float32(sum))
		if g.Minima != nil {
			y += float32(g.Minima[at] * float32(float32(total)*scale))
		}
	}
	return y, exact, size
}

// inputs are rows with small and large numbers, and with groups of zeros.
func inputs(rng *rand.Rand, rows, in int) []float32 {
	x := make([]float32, rows*in)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * math.Pow(2, float64(rng.IntN(12))))
		if i/group%5 == 4 {
			x[i] = 0
		}
	}
	return x
}

// A quantized product has one result for every number of rows, worker, layout and
// build: the one of its definition, which is as good as float32 can say.
func TestQuantizedProductsAreExactSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, kind := range []struct{ bits, offset int }{{4, 0}, {4, 8}, {8, 128}} {
		for _, out := range []int{1, 7, 8, 9, 40, 2*mostOutputs + 3} {
			in := 96
			g, bias := randomGroups(rng, out, in, kind.bits, kind.offset), make([]float32, out)
			bias[out-1] = 0.5
			x := inputs(rng, 9, in)
			want := make([]float32, 9*out)
			for i := range want {
				y, exact, size := definition(g, i%out, x[i/out*in:][:in])
				require.InDelta(t, exact, float64(y), 1e-6*size)
				want[i] = y + bias[i%out]
			}
			packed := map[string]*quantized{}
			for name, pack := range map[string]func(*quantized, *weights.Groups){"build": (*quantized).pack,
				"planes": (*quantized).packPlanes} {
				packed[name] = &quantized{in: in, out: out, bits: kind.bits, offset: kind.offset}
				pack(packed[name], g)
			}
			for _, count := range []int{1, 2} {
				checkProducts(t, packed, bias, x, want, count)
			}
		}
	}
}

func checkProducts(t *testing.T, packed map[string]*quantized, bias, x, want []float32, count int) {
	t.Helper()
	workers := attention.NewWorkers(count)
	defer workers.Close()
	for name, q := range packed {
		l := &linear{in: q.in, out: q.out, quantized: q, bias: bias}
		for _, rows := range []int{1, 2, 3, 4, 5, 9} {
			y := make([]float32, rows*q.out)
			l.apply(workers, y, x, rows)
			require.Equal(t, want[:rows*q.out], y, "%s, %d rows, %d outputs of %d bits, %d workers", name,
				rows, q.out, q.bits, count)
		}
	}
}

// The largest inputs and weights of a group overflow nothing.
func TestQuantizedProductOfTheLargest(t *testing.T) {
	workers := attention.NewWorkers(1)
	defer workers.Close()
	for _, bits := range []int{4, 8} {
		for _, sign := range []float32{1, -1} {
			g := &weights.Groups{Bits: bits, Numbers: make([]uint8, 8*group), Scales: make([]float32, 8),
				Minima: make([]float32, 8)}
			for i := range g.Numbers {
				g.Numbers[i] = uint8(1<<bits - 1)
			}
			for i := range g.Scales {
				g.Scales[i] = 1
			}
			if bits == 8 {
				g.Offset, g.Minima = 128, nil
				clear(g.Numbers) // −128
			}
			x := make([]float32, 2*group)
			for i := range x {
				x[i] = sign * math.Nextafter32(2, 0)
			}
			q := &quantized{in: group, out: 8, bits: bits, offset: g.Offset}
			q.pack(g)
			y, want := make([]float32, 16), make([]float32, 16)
			(&linear{in: group, out: 8, quantized: q}).apply(workers, y, x, 2)
			for i := range want {
				want[i], _, _ = definition(g, i%8, x[:group])
			}
			require.Equal(t, want, y)
		}
	}
}

// Fixed point keeps the bits of the largest number, and rounds the others to its
// last bit; what is not finite makes no number.
func TestFixedPoint(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, unit := range []float64{1, 1e-44, 1e-38, 1e30} {
		var x [group]float32
		for i := range x {
			x[i] = float32(rng.NormFloat64() * unit)
		}
		var n [group]int32
		scale, total := fix(&n, &x)
		top, sum := 0.0, int32(0)
		for i := range x {
			top = max(top, math.Abs(float64(x[i])))
			assert.Less(t, math.Abs(float64(n[i])), float64(1<<24))
			assert.LessOrEqual(t, math.Abs(float64(n[i])*float64(scale)-float64(x[i])), float64(scale)/2,
				fmt.Sprint(x[i]))
			sum += n[i]
		}
		assert.Equal(t, sum, total)
		assert.LessOrEqual(t, float64(scale), max(top/(1<<23), math.SmallestNonzeroFloat32))
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		var n [group]int32
		scale, total := fix(&n, &[group]float32{1, float32(bad), 2})
		assert.True(t, math.IsNaN(float64(scale)))
		assert.Zero(t, total)
		assert.Zero(t, n)
	}
}
