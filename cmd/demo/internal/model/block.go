package model

import (
	"math"
)

// run computes one layer in place.
func (b *block) run(e *Executor, x []float32, rows int) error {
	y := e.buffer(bufferMixed, len(x))
	in := b.input(e, b.in, x)
	if err := b.mixer.run(e, y, in, rows); err != nil {
		return err
	}
	if b.shape == parallel {
		if b.mlpNorm != nil {
			b.mlpNorm.rows(in, x)
		}
		addTo(x, y)
		b.mlp.run(e, y, in, rows)
		addTo(x, y)
		return nil
	}
	b.add(x, y, b.mixerNorm)
	if b.cross != nil {
		if err := b.cross.run(e, y, b.input(e, b.crossNorm, x), rows); err != nil {
			return err
		}
		if b.shape == postNorm {
			b.add(x, y, b.crossNorm)
		} else {
			b.add(x, y, nil)
		}
	}
	b.mlp.run(e, y, b.input(e, b.mlpNorm, x), rows)
	b.add(x, y, b.outNorm)
	return nil
}

// input is what a part of the block reads: the scaled rows, or with postNorm the rows.
func (b *block) input(e *Executor, n *norm, x []float32) []float32 {
	if b.shape == postNorm {
		return x
	}
	h := e.buffer(bufferNormed, len(x))
	n.rows(h, x)
	return h
}

// add adds what a part of the block gave, scaled if there is a norm; with postNorm the sum is
// scaled.
func (b *block) add(x, y []float32, n *norm) {
	if n != nil && b.shape == preNorm {
		n.rows(y, y)
	}
	addTo(x, y)
	if b.shape == postNorm {
		n.rows(x, x)
	}
}

// norm scales rows: by their root mean square, or, with subtractMean, by their
// standard deviation after the mean was subtracted (LayerNorm).
type norm struct {
	weight, bias []float32 // bias nil: none
	eps          float64
	subtractMean bool
}

// apply writes the scaled row to y, which may be x. Sums are of float64: they
// cost nothing beside a matrix product.
func (n *norm) apply(y, x []float32) {
	mean := 0.0
	if n.subtractMean {
		for _, v := range x {
			mean += float64(v)
		}
		mean /= float64(len(x))
	}
	square := 0.0
	for _, v := range x {
		d := float64(v) - mean
		square += float64(d * d)
	}
	scale := 1 / math.Sqrt(square/float64(len(x))+n.eps)
	for i, v := range x {
		z := float32((float64(v) - mean) * scale)
		z = float32(z * n.weight[i])
		if n.bias != nil {
			z += n.bias[i]
		}
		y[i] = z
	}
}

// rows scales rows of the norm's length that lie one behind the other.
func (n *norm) rows(y, x []float32) {
	d := len(n.weight)
	for i := 0; i < len(x); i += d {
		n.apply(y[i:i+d], x[i:i+d])
	}
}

// unit scales a row by its Euclidean length, as the gated delta rule does.
func unit(x []float32, eps float64) {
	square := 0.0
	for _, v := range x {
		square += float64(float64(v) * float64(v))
	}
	scale := 1 / math.Sqrt(square+eps)
	for i, v := range x {
		x[i] = float32(float64(v) * scale)
	}
}
