package attention

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/kvactor/kvactor/windows"
)

// Element is how the numbers of a key or a value are stored.
type Element struct {
	Type windows.DType
	// Scale is what numbers were divided by before they were stored in 8 bits;
	// 0 means 1. The other types have none.
	// The page does not hold it: layers have scales, which the host gives to the engine.
	Scale float32
}

// littleEndian tells whether the machine stores numbers as pages do.
// Pages go to other machines by stores and hand-overs, so their order is fixed.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// scale is the scale of an 8-bit element.
func (e Element) scale() float32 {
	if e.Scale == 0 {
		return 1
	}
	return e.Scale
}

// Encode writes numbers as elements: rounded to nearest, ties to even. In 8
// bits x is stored as x · (1/scale), the inverse being computed first.
// A division of each number would give other bits than kernels that multiply, and cost
// several times as much.
func (e Element) Encode(dst []byte, row []float32) {
	switch e.Type {
	case windows.Float32:
		for i, x := range row {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		}
	case windows.Float16:
		for i, x := range row {
			binary.LittleEndian.PutUint16(dst[2*i:], ToFloat16(x))
		}
	case windows.BFloat16:
		for i, x := range row {
			binary.LittleEndian.PutUint16(dst[2*i:], ToBFloat16(x))
		}
	case windows.Int8:
		inverse := 1 / e.scale()
		for i, x := range row {
			dst[i] = byte(toInt8(float32(x * inverse)))
		}
	case windows.FP8:
		inverse := 1 / e.scale()
		for i, x := range row {
			dst[i] = ToFP8(float32(x * inverse))
		}
	default:
		panic("attention: element type " + string(e.Type))
	}
}

// Decode reads numbers back; len(dst) of them.
func (e Element) Decode(dst []float32, src []byte) {
	switch e.Type {
	case windows.Float32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case windows.Float16:
		for i := range dst {
			dst[i] = FromFloat16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case windows.BFloat16:
		for i := range dst {
			dst[i] = FromBFloat16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case windows.Int8:
		scale := e.scale()
		for i := range dst {
			dst[i] = float32(float32(int8(src[i])) * scale)
		}
	case windows.FP8:
		scale := e.scale()
		for i := range dst {
			dst[i] = float32(fp8Values[src[i]] * scale)
		}
	default:
		panic("attention: element type " + string(e.Type))
	}
}

// View gives stored float32 numbers without a copy, where the machine allows it.
func (e Element) View(src []byte, n int) ([]float32, bool) {
	if e.Type != windows.Float32 || !littleEndian {
		return nil, false
	}
	// An address that is no multiple of four, such as one behind rows of 8-bit elements, is
	// read by Decode.
	p := unsafe.Pointer(unsafe.SliceData(src[:4*n]))
	if uintptr(p)%unsafe.Alignof(float32(0)) != 0 {
		return nil, false
	}
	return unsafe.Slice((*float32)(p), n), true
}

// read gives n stored numbers, as a view or decoded into scratch.
// A view is of the page itself: the caller must not write to it.
func (e Element) read(scratch []float32, src []byte, n int) []float32 {
	if rows, ok := e.View(src, n); ok {
		return rows
	}
	e.Decode(scratch[:n], src)
	return scratch[:n]
}
