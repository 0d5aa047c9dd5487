package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
)

// GGUF is a GGUF file: metadata by key, and tensors.
type GGUF struct {
	// Meta has uint64, int64, float64, bool, string and []any values.
	Meta    map[string]any
	Tensors Set
}

// ReadGGUF reads a GGUF file of version 2 or 3.
func ReadGGUF(path string) (*GGUF, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	g, err := parseGGUF(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return g, nil
}

const (
	ggufMagic     = 0x46554747 // "GGUF"
	ggufAlignment = 32
	maxEntries    = 1 << 24 // of an array, of keys, of tensors: a bound for broken files
)

// ggufTypes are the tensor types that are read, by their number in files.
var ggufTypes = map[uint32]Type{0: F32, 1: F16, 2: Q4_0, 3: Q4_1, 8: Q8_0, 12: Q4_K, 14: Q6_K,
	30: BF16}

// cursor reads a file from front to back; after an error it gives zeros.
type cursor struct {
	b   []byte
	at  int
	err error
}

func (c *cursor) take(n int) []byte {
	if c.err == nil && (n < 0 || n > len(c.b)-c.at) {
		c.err = errTruncated
	}
	if c.err != nil {
		return make([]byte, min(max(n, 0), 8))
	}
	c.at += n
	return c.b[c.at-n : c.at]
}

func (c *cursor) u32() uint32 { return binary.LittleEndian.Uint32(c.take(4)) }
func (c *cursor) u64() uint64 { return binary.LittleEndian.Uint64(c.take(8)) }

// count reads a count of things that take at least one byte each.
func (c *cursor) count() int {
	n := c.u64()
	if n > maxEntries || n > uint64(len(c.b)) {
		if c.err == nil {
			c.err = fmt.Errorf("a count of %d", n)
		}
		return 0
	}
	return int(n)
}

func (c *cursor) text() string { return string(c.take(c.count())) }

// value reads a metadata value of a type.
func (c *cursor) value(kind uint32) any {
	switch kind {
	case 0:
		return uint64(c.take(1)[0])
	case 1:
		return int64(int8(c.take(1)[0]))
	case 2:
		return uint64(binary.LittleEndian.Uint16(c.take(2)))
	case 3:
		return int64(int16(binary.LittleEndian.Uint16(c.take(2))))
	case 4:
		return uint64(c.u32())
	case 5:
		return int64(int32(c.u32()))
	case 6:
		return float64(math.Float32frombits(c.u32()))
	case 7:
		return c.take(1)[0] != 0
	case 8:
		return c.text()
	case 9:
		return c.list()
	case 10:
		return c.u64()
	case 11:
		return int64(c.u64())
	case 12:
		return math.Float64frombits(c.u64())
	}
	if c.err == nil {
		c.err = fmt.Errorf("a metadata value of type %d", kind)
	}
	return nil
}

func (c *cursor) list() []any {
	kind := c.u32()
	if kind == 9 {
		c.err = fmt.Errorf("an array of arrays")
	}
	out := make([]any, 0, c.count())
	for range cap(out) {
		if c.err != nil {
			return nil
		}
		out = append(out, c.value(kind))
	}
	return out
}

func parseGGUF(file []byte) (*GGUF, error) {
	c := &cursor{b: file}
	if c.u32() != ggufMagic {
		return nil, fmt.Errorf("no GGUF file")
	}
	if v := c.u32(); v != 2 && v != 3 {
		return nil, fmt.Errorf("GGUF version %d is not 2 or 3", v)
	}
	tensors, keys := c.count(), c.count()
	if c.err != nil {
		return nil, c.err
	}
	g := &GGUF{Meta: map[string]any{}, Tensors: Set{}}
	for range keys {
		key := c.text()
		g.Meta[key] = c.value(c.u32())
		if c.err != nil {
			return nil, fmt.Errorf("key %q: %w", key, c.err)
		}
	}
	offsets, err := g.infos(c, tensors)
	if err != nil {
		return nil, err
	}
	alignment := uint64(ggufAlignment)
	if a, ok := g.Meta["general.alignment"].(uint64); ok && a > 0 && a < maxEntries {
		alignment = a
	}
	start := (uint64(c.at) + alignment - 1) / alignment * alignment
	for t, offset := range offsets {
		size := uint64(t.Type.size(t.Len()))
		if start > uint64(len(file)) || offset > uint64(len(file))-start ||
			size > uint64(len(file))-start-offset {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, errTruncated)
		}
		t.bytes = file[start+offset : start+offset+size]
		if err := t.check(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// infos reads names, shapes, types and offsets. Dimensions are in the file from
// the contiguous one on.
func (g *GGUF) infos(c *cursor, n int) (map[*Tensor]uint64, error) {
	offsets := map[*Tensor]uint64{}
	for range n {
		t := &Tensor{Name: c.text()}
		dims := c.u32()
		if dims > 4 {
			return nil, fmt.Errorf("tensor %s: %d dimensions", t.Name, dims)
		}
		t.Shape = make([]int, dims)
		for i := range t.Shape {
			t.Shape[len(t.Shape)-1-i] = int(min(c.u64(), math.MaxInt32))
		}
		kind := c.u32()
		offset := c.u64()
		if c.err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, c.err)
		}
		known, ok := ggufTypes[kind]
		if !ok {
			return nil,
				fmt.Errorf("tensor %s: type %d is not one of F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K",
					t.Name, kind)
		}
		t.Type = known
		if size := known.size(product(t.Shape)); size == 0 {
			return nil, fmt.Errorf("tensor %s: shape %v is not whole blocks of %s", t.Name, t.Shape, known)
		}
		offsets[t], g.Tensors[t.Name] = offset, t
	}
	return offsets, nil
}
