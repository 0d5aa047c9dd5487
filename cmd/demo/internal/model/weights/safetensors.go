package weights

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
)

// Set is the tensors of a model by name.
type Set map[string]*Tensor

var errTruncated = errors.New("the file ends too early")

// ReadSafetensors reads a .safetensors file: the length of a JSON header, the
// header with types, shapes and offsets, the bytes.
func ReadSafetensors(files fs.FS, name string) (Set, error) {
	file, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, err
	}
	set, err := parseSafetensors(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return set, nil
}

func parseSafetensors(file []byte) (Set, error) {
	if len(file) < 8 {
		return nil, errTruncated
	}
	n := binary.LittleEndian.Uint64(file)
	if n > uint64(len(file)-8) {
		return nil, errTruncated
	}
	var header map[string]json.RawMessage
	if json.Unmarshal(file[8:8+n], &header) != nil {
		return nil, errors.New("the header is not a JSON object")
	}
	bytes, set, end := file[8+n:], Set{}, 0
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if name == "__metadata__" {
			continue
		}
		t, last, err := safetensor(name, header[name], bytes)
		if err != nil {
			return nil, err
		}
		set[name], end = t, max(end, last)
	}
	if end < len(bytes) {
		return nil, fmt.Errorf("%d bytes are behind the last tensor", len(bytes)-end)
	}
	return set, nil
}

// safetensor reads a tensor, and where its bytes end.
func safetensor(name string, text json.RawMessage, bytes []byte) (t *Tensor, end int, err error) {
	var h struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	if json.Unmarshal(text, &h) != nil {
		const want = "tensor %s: its header has not a dtype, a shape and data_offsets"
		return nil, 0, fmt.Errorf(want, name)
	}
	t = &Tensor{Name: name, Shape: h.Shape}
	switch h.DType {
	case "F32":
		t.Type = F32
	case "F16":
		t.Type = F16
	case "BF16":
		t.Type = BF16
	default:
		return nil, 0, fmt.Errorf("tensor %s: dtype %q is not one of F32, F16, BF16", name, h.DType)
	}
	begin, end := h.Offsets[0], h.Offsets[1]
	switch {
	case begin < 0 || end < begin:
		return nil, 0, fmt.Errorf("tensor %s: data_offsets %v are no range", name, h.Offsets)
	case end > len(bytes):
		return nil, 0, fmt.Errorf("tensor %s: bytes %v: %w", name, h.Offsets, errTruncated)
	}
	t.bytes = bytes[begin:end]
	return t, end, t.check()
}
