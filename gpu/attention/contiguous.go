package attention

import "github.com/kvactor/kvactor/windows"

// Contiguous is one tensor for all sequences, [batch · beams, 2, heads, max_len,
// dim], in any element type. It wastes what sequences do not reach; encoders use
// it for a step, tests for comparison.
type Contiguous struct {
	KVHeads, MaxLen, HeadDim int
	DType                    windows.DType
	// Bytes has the streams one after the other, each with all keys before all values.
	Scales [2]float32 // by Part; 0 means 1
	Bytes  []byte
}

// NewContiguous makes a cache for so many streams.
func NewContiguous(streams, heads, maxLen, dim int, dtype windows.DType) *Contiguous {
	c := &Contiguous{KVHeads: heads, MaxLen: maxLen, HeadDim: dim, DType: dtype}
	c.Bytes = make([]byte, streams*2*heads*maxLen*dim*dtype.Bytes())
	return c
}

// at is the offset of a row.
func (c *Contiguous) at(stream int, part Part, head, slot int) int {
	return (((stream*2+int(part))*c.KVHeads+head)*c.MaxLen + slot) * c.HeadDim * c.DType.Bytes()
}

// element says how keys or values are stored.
func (c *Contiguous) element(part Part) Element {
	return Element{Type: c.DType, Scale: c.Scales[part]}
}

// Write stores one row.
func (c *Contiguous) Write(stream int, part Part, head, position int, row []float32) {
	c.element(part).Encode(c.Bytes[c.at(stream, part, head, position):], row)
}

// Read gives as many rows as it is asked for.
func (c *Contiguous) Read(
	scratch []float32, stream int, part Part, head, position, limit int,
) ([]float32, int) {
	// Rows of a head lie one behind the other up to the end of the tensor.
	n := min(limit, c.MaxLen-position)
	return c.element(part).read(scratch, c.Bytes[c.at(stream, part, head, position):], n*c.HeadDim), n
}

// Cyclic is a rolling buffer over a Contiguous cache of Slots: token t lies in
// slot t if t < Sinks, else in Sinks + (t − Sinks) mod (Slots − Sinks). It needs
// as many slots as a step both writes and reads.
// A step writes all of its tokens before it reads, so with fewer slots its last tokens would
// overwrite keys that its first ones see.
type Cyclic struct {
	*Contiguous
	Sinks int
}

// CyclicSlot is the slot of a token.
func CyclicSlot(token, slots, sinks int) int {
	if token < sinks {
		return token
	}
	return sinks + (token-sinks)%(slots-sinks)
}

// Write stores one row over the token that had the slot before.
func (c *Cyclic) Write(stream int, part Part, head, position int, row []float32) {
	c.Contiguous.Write(stream, part, head, CyclicSlot(position, c.MaxLen, c.Sinks), row)
}

// Read gives rows up to the end of the buffer.
func (c *Cyclic) Read(
	scratch []float32, stream int, part Part, head, position, limit int,
) ([]float32, int) {
	// Behind the sinks the next slot is not that of the next token, unless the window has
	// not moved.
	if position < c.Sinks {
		limit = min(limit, c.Sinks-position)
	}
	return c.Contiguous.Read(scratch, stream, part, head, CyclicSlot(position, c.MaxLen, c.Sinks),
		limit)
}

// Indirect reads token t of beam b from the cache of beam Parents[b][t], which
// is TensorRT-LLM's cache_indirection of one sequence; streams are its beams.
type Indirect struct {
	Cache
	Parents [][]int32 // [beam][token]; tokens beyond it are the beam's own
}

// Read gives one row.
// The parents of neighbouring tokens may differ, so rows cannot be given in runs.
func (c *Indirect) Read(
	scratch []float32, stream int, part Part, head, position, _ int,
) ([]float32, int) {
	if parents := c.Parents[stream]; position < len(parents) {
		stream = int(parents[position])
	}
	return c.Cache.Read(scratch, stream, part, head, position, 1)
}
