package model

import "math/rand/v2"

// Adapter is a LoRA adapter of the matrix that each mixer reads its input with (fused
// Q, K and V, latents, inputs of a recurrent layer): W becomes W + B·A with matrices
// of a low rank. A nil Adapter changes nothing.
type Adapter struct {
	Name   string
	layers []lowRank // by block; rank 0: none
}

// lowRank is one pair of matrices.
type lowRank struct {
	rank int
	a    []float32 // [rank][in]
	b    []float32 // [out][rank]
}

// RandomAdapter makes an adapter of random numbers for tests and demonstrations:
// another seed is another adapter.
func RandomAdapter(m *Model, name string, rank int, seed uint64) *Adapter {
	rng := rand.New(rand.NewPCG(seed, 1))
	draw := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64() * 0.2)
		}
		return x
	}
	a := &Adapter{Name: name, layers: make([]lowRank, len(m.blocks))}
	for i := range m.blocks {
		l := m.blocks[i].mixer.adapted()
		a.layers[i] = lowRank{rank, draw(rank * l.in), draw(rank * l.out)}
	}
	return a
}

// adapt adds what the sequences' adapters change to the rows of a mixer's matrix.
func (e *Executor) adapt(qkv, x []float32, l *linear) {
	row := 0
	for _, s := range e.step {
		for range s.Tokens {
			if s.Adapter != nil {
				s.Adapter.layers[e.block].add(qkv[row*l.out:(row+1)*l.out], x[row*l.in:(row+1)*l.in])
			}
			row++
		}
	}
}

func (w *lowRank) add(y, x []float32) {
	for r := range w.rank {
		sum := float32(0)
		for i, v := range x {
			sum += float32(v * w.a[r*len(x)+i])
		}
		for o := range y {
			y[o] += float32(sum * w.b[o*w.rank+r])
		}
	}
}
