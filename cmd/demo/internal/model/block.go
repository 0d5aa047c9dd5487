package model

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
