package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/kvactor/kvactor/gpu/attention"
)

// Type is how the numbers of a tensor are stored.
type Type uint8

// The types. Those from Q8_0 on have blocks of quantized numbers along the last
// dimension.
const (
	F32 Type = iota
	F16
	BF16
	Q8_0
	Q4_0
	Q4_1
	Q4_K
	Q6_K
)

// format is the size of a block of a type and how it is read.
type format struct {
	name    string
	numbers int // of a block
	bytes   int
	read    func(dst []float32, src []byte) // one block
}

var formats = [...]format{
	F32:  {"F32", 1, 4, nil},
	F16:  {"F16", 1, 2, nil},
	BF16: {"BF16", 1, 2, nil},
	Q8_0: {"Q8_0", 32, 34, readQ8_0},
	Q4_0: {"Q4_0", 32, 18, readQ4_0},
	Q4_1: {"Q4_1", 32, 20, readQ4_1},
	Q4_K: {"Q4_K", 256, 144, readQ4_K},
	Q6_K: {"Q6_K", 256, 210, readQ6_K},
}

// String is the name that files have for the type.
func (t Type) String() string { return formats[t].name }

// Tensor is one tensor of a file.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int // the last one is contiguous
	bytes []byte
}

// size is the number of bytes that n numbers of a type take; 0 if they are not
// whole blocks.
func (t Type) size(n int) int {
	f := formats[t]
	if n%f.numbers != 0 {
		return 0
	}
	return n / f.numbers * f.bytes
}

// Len is the count of numbers.
func (t *Tensor) Len() int { return product(t.Shape) }

// product is the count of numbers of a shape; 0 if there is no such shape.
func product(shape []int) int {
	n := 1
	for _, d := range shape {
		if d < 1 || n > math.MaxInt32/d {
			return 0
		}
		n *= d
	}
	return n
}

// check refuses a tensor whose bytes do not fit its shape.
func (t *Tensor) check() error {
	n := t.Len()
	if n == 0 {
		return fmt.Errorf("tensor %s: shape %v", t.Name, t.Shape)
	}
	if t.Type.size(n) != len(t.bytes) {
		return fmt.Errorf("tensor %s: %d bytes for shape %v of %s", t.Name, len(t.bytes), t.Shape, t.Type)
	}
	return nil
}

// Numbers gives all numbers as float32.
func (t *Tensor) Numbers() []float32 {
	out := make([]float32, t.Len())
	t.read(out, t.bytes)
	return out
}

// Row gives the numbers of one index of the first dimension.
func (t *Tensor) Row(dst []float32, i int) {
	n := t.Len() / t.Shape[0]
	size := t.Type.size(n)
	t.read(dst[:n], t.bytes[i*size:])
}

func (t *Tensor) read(dst []float32, src []byte) {
	switch t.Type {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = attention.FromFloat16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = attention.FromBFloat16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	default:
		f := formats[t.Type]
		for i := 0; i < len(dst); i += f.numbers {
			f.read(dst[i:i+f.numbers], src[i/f.numbers*f.bytes:])
		}
	}
}

// Is tells whether the shape is this one.
func (t *Tensor) Is(shape ...int) bool { return slices.Equal(t.Shape, shape) }
