package windows

// DType is the type of the elements of keys and values.
type DType string

// The element types. An element of fp8 or int8 needs a scale for each layer; the
// engine keeps these for the host, outside of the pages. NVFP4 has a scale for
// each 16 elements, which lies in the page, behind the elements, so that it is
// copied with them.
const (
	Float32  DType = "float32"
	Float16  DType = "float16"
	BFloat16 DType = "bfloat16"
	FP8      DType = "fp8"
	Int8     DType = "int8"
	NVFP4    DType = "nvfp4"
)

// dtypeNames are the element types in the words of an error.
const dtypeNames = "float32, float16, bfloat16, fp8, int8, nvfp4"

// AutoDType as Config.DType stands for the model's own element type.
const AutoDType = "auto"

// scaledElements is how many NVFP4 elements share a scale, an fp8 number of one
// byte.
const scaledElements = 16

// Bits is the size of one element, 0 for an unknown type.
func (d DType) Bits() int {
	switch d {
	case Float32:
		return 32
	case Float16, BFloat16:
		return 16
	case FP8, Int8:
		return 8
	case NVFP4:
		return 4
	default:
		return 0
	}
}

// Bytes is the size of one element in whole bytes: 0 for an unknown type, and
// for NVFP4, two elements of which share a byte. See RowBytes.
func (d DType) Bytes() int { return d.Bits() / 8 }

// RowBytes is the size of so many consecutive elements, without their scales.
func (d DType) RowBytes(elements int) int64 {
	// Whole bytes first, because elements×32 can overflow for absurd numbers
	// that are yet to be refused.
	if b := int64(d.Bytes()); b > 0 {
		return saturated(int64(elements), b)
	}
	return (int64(elements)*int64(d.Bits()) + 7) / 8
}

// ScaleBytes is the size of the scales of so many consecutive elements that lie
// in a page: one byte for each 16 with NVFP4, 0 with other types.
func (d DType) ScaleBytes(elements int) int64 {
	if d != NVFP4 {
		return 0
	}
	return int64(elements) / scaledElements
}

// Known reports whether the type is one of those above.
func (d DType) Known() bool { return d.Bits() > 0 }

// Layout is the order of the dimensions of keys and values within a layer.
type Layout string

// The layouts, by the names that attention kernels use: heads, then tokens, then
// elements; or tokens, then heads, then elements. "" stands for HND.
const (
	HND Layout = "HND"
	NHD Layout = "NHD"
)
