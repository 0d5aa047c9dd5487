package model

import (
	"github.com/kvactor/kvactor/cmd/demo/internal/model/weights"
	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/messages"
)

// encoder turns the encoder's tokens into rows that the decoder's cross
// attention reads. Every token sees every other, so it runs for a whole input.
type encoder struct {
	embed     *weights.Tensor
	positions []float32
	offset    int
	embedNorm *norm
	blocks    []block // without a cache
	finalNorm *norm
}

// encode runs the encoder for the sequences of the step that need it and writes
// the keys and values of their tokens.
func (e *Executor) encode() error {
	for i, s := range e.step {
		if s.EncodeFrom >= len(s.Encoder) {
			continue
		}
		x, err := e.model.encoder.run(e, e.model, s.Encoder)
		if err != nil {
			return err
		}
		if e.Trace != nil {
			e.Trace(-1, x)
		}
		for b := range e.model.blocks {
			e.storeCross(i, s, e.model.blocks[b].cross, x)
		}
	}
	return nil
}

// storeCross writes what one layer's cross attention reads.
func (e *Executor) storeCross(stream int, s *Sequence, c *crossAttention, x []float32) {
	n, hidden := len(s.Encoder)-s.EncodeFrom, e.model.Hidden
	kv := e.buffer(bufferQKV, n*c.kv.out)
	c.kv.apply(e.workers, kv, x[s.EncodeFrom*hidden:], n)
	if e.TraceKV != nil {
		for i := range n {
			e.TraceKV(-1-c.number, attention.Keys, kv[i*c.kv.out:][:c.kv.out/2])
			e.TraceKV(-1-c.number, attention.Values, kv[i*c.kv.out+c.kv.out/2:][:c.kv.out/2])
		}
	}
	in := attention.Input{K: kv, V: kv[c.kv.out/2:], KVStride: c.kv.out}
	attention.Store(e.crossCache(c.number), &c.layer, stream, s.EncodeFrom, n, in)
}

// run gives the rows of an input.
func (c *encoder) run(e *Executor, m *Model, tokens []messages.Token) ([]float32, error) {
	rows := len(tokens)
	x := make([]float32, rows*m.Hidden)
	for i, t := range tokens {
		row := x[i*m.Hidden : (i+1)*m.Hidden]
		c.embed.Row(row, int(t))
		if c.positions != nil {
			addTo(row, c.positions[(i+c.offset)*m.Hidden:][:m.Hidden])
		}
	}
	if c.embedNorm != nil {
		c.embedNorm.rows(x, x)
	}
	var plan attention.Plan
	if err := plan.Prepare(attention.Metadata{NumContexts: 1,
		Sequences: []attention.Sequence{{Prompt: rows, New: rows}}}); err != nil {
		return nil, err
	}
	e.encoding = &plan
	defer func() { e.encoding = nil }()
	for i := range c.blocks {
		if err := c.blocks[i].run(e, x, rows); err != nil {
			return nil, err
		}
	}
	if c.finalNorm != nil {
		c.finalNorm.rows(x, x)
	}
	return x, nil
}
