package model

import (
	"math"
)

// run computes one layer in place.
func (b *block) run(e *Executor, x []float32, rows int) error {
	switch b.shape {
	case parallel:
		return b.runParallel(e, x, rows)
	case postNorm:
		return b.runPostNorm(e, x, rows)
	}
	h, y := e.buffer(bufferNormed, len(x)), e.buffer(bufferMixed, len(x))
	b.in.rows(h, x)
	if err := b.mixer.run(e, y, h, rows); err != nil {
		return err
	}
	if b.mixerNorm != nil {
		b.mixerNorm.rows(y, y)
	}
	addTo(x, y)
	if b.cross != nil {
		b.crossNorm.rows(h, x)
		if err := b.cross.run(e, y, h, rows); err != nil {
			return err
		}
		addTo(x, y)
	}
	b.mlpNorm.rows(h, x)
	b.mlp.run(e, y, h, rows)
	if b.outNorm != nil {
		b.outNorm.rows(y, y)
	}
	addTo(x, y)
	return nil
}

// runParallel adds mixer and MLP of the same rows.
func (b *block) runParallel(e *Executor, x []float32, rows int) error {
	h, y := e.buffer(bufferNormed, len(x)), e.buffer(bufferMixed, len(x))
	b.in.rows(h, x)
	if err := b.mixer.run(e, y, h, rows); err != nil {
		return err
	}
	if b.mlpNorm != nil {
		b.mlpNorm.rows(h, x)
	}
	addTo(x, y)
	b.mlp.run(e, y, h, rows)
	addTo(x, y)
	return nil
}

// runPostNorm scales after each sum.
func (b *block) runPostNorm(e *Executor, x []float32, rows int) error {
	y := e.buffer(bufferMixed, len(x))
	if err := b.mixer.run(e, y, x, rows); err != nil {
		return err
	}
	addTo(x, y)
	b.mixerNorm.rows(x, x)
	if b.cross != nil {
		if err := b.cross.run(e, y, x, rows); err != nil {
			return err
		}
		addTo(x, y)
		b.crossNorm.rows(x, x)
	}
	b.mlp.run(e, y, x, rows)
	addTo(x, y)
	b.outNorm.rows(x, x)
	return nil
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
