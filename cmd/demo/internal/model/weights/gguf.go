package weights

import (
	"bytes"
	"fmt"
	"os"

	"github.com/kvactor/kvactor/internal/gguf"
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

// ggufTypes are the tensor types that are read, by their number in files.
var ggufTypes = map[uint32]Type{0: F32, 1: F16, 2: Q4_0, 3: Q4_1, 8: Q8_0, 12: Q4_K, 14: Q6_K,
	30: BF16}

func parseGGUF(file []byte) (*GGUF, error) {
	h, err := gguf.Read(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return nil, err
	}
	g, data := &GGUF{Meta: h.Meta, Tensors: Set{}}, file[h.Data:]
	for _, at := range h.Tensors {
		kind, ok := ggufTypes[at.Type]
		if !ok {
			return nil,
				fmt.Errorf("tensor %s: type %d is not one of F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K",
					at.Name, at.Type)
		}
		t := &Tensor{Name: at.Name, Type: kind, Shape: at.Shape}
		size := uint64(kind.size(t.Len()))
		switch {
		case size == 0:
			return nil, fmt.Errorf("tensor %s: shape %v is not whole blocks of %s", t.Name, t.Shape, kind)
		case at.Offset > uint64(len(data)) || size > uint64(len(data))-at.Offset:
			return nil, fmt.Errorf("tensor %s: %w", t.Name, gguf.ErrTruncated)
		}
		t.bytes = data[at.Offset : at.Offset+size]
		g.Tensors[t.Name] = t
	}
	return g, nil
}
