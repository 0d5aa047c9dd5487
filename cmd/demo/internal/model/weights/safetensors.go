package weights

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sort"
)

// Set is the tensors of a model by name.
type Set map[string]*Tensor

// Names gives all names in order.
func (s Set) Names() []string {
	names := make([]string, 0, len(s))
	for name := range s {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

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
	if err := json.Unmarshal(file[8:8+n], &header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	bytes, set := file[8+n:], Set{}
	for name, text := range header {
		if name == "__metadata__" {
			continue
		}
		t, err := safetensor(name, text, bytes)
		if err != nil {
			return nil, err
		}
		set[name] = t
	}
	return set, nil
}

func safetensor(name string, text json.RawMessage, bytes []byte) (*Tensor, error) {
	var h struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", name, err)
	}
	t := &Tensor{Name: name, Shape: h.Shape}
	switch h.DType {
	case "F32":
		t.Type = F32
	case "F16":
		t.Type = F16
	case "BF16":
		t.Type = BF16
	default:
		return nil, fmt.Errorf("tensor %s: dtype %q is not one of F32, F16, BF16", name, h.DType)
	}
	if h.Offsets[0] < 0 || h.Offsets[1] < h.Offsets[0] || h.Offsets[1] > len(bytes) {
		return nil, fmt.Errorf("tensor %s: bytes %v: %w", name, h.Offsets, errTruncated)
	}
	t.bytes = bytes[h.Offsets[0]:h.Offsets[1]]
	return t, t.check()
}
