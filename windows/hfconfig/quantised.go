package hfconfig

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvactor/kvactor/windows"
)

// quantisedFile is what TensorRT-LLM's checkpoints have beside a config.json.
const quantisedFile = "hf_quant_config.json"

// quantised reads the file beside a config.json; nil: there is none.
func quantised(folder string) (*config, error) {
	file, err := os.Open(filepath.Join(folder, quantisedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	return parse(file)
}

// cacheTypes are the element types of caches by the names of algorithms.
var cacheTypes = map[string]windows.DType{
	"FP8": windows.FP8, "INT8": windows.Int8, "NVFP4": windows.NVFP4,
}

// cacheType is the element type that a quantised checkpoint asks for its cache: by
// kv_cache_scheme of the config.json, else by kv_cache_quant_algo of the file beside it. ""
// stands for that of the model.
func (r *reading) cacheType(top, beside *config) windows.DType {
	key, name := "kv_cache_scheme", ""
	if q := top.part("quantization_config"); q != nil {
		name = q.scheme(key)
	}
	if name == "" && beside != nil {
		key = "kv_cache_quant_algo"
		if q := beside.part("quantization"); q != nil {
			name = q.text(key)
		}
		*top.problems = append(*top.problems, *beside.problems...)
	}
	if name == "" {
		return ""
	}
	d := cacheTypes[strings.ToUpper(name)]
	if d == "" {
		r.note(key + " asks for a cache of " + name + ", which is not known: " +
			"it is planned with " + string(r.dtype))
		return ""
	}
	r.note(key + " asks for a cache of " + string(d) + "; dtype says another")
	return d
}

// scheme is the name of the elements of a scheme: FP8 for floats of 8 bits.
func (c *config) scheme(key string) string {
	s := c.part(key)
	if s == nil {
		return ""
	}
	kind := s.text("type")
	bits, _ := s.value("num_bits")
	n, ok := integer(bits)
	switch {
	case ok && n == 8 && kind == "float":
		return "FP8"
	case ok && n == 8 && kind == "int":
		return "INT8"
	default:
		return "another scheme"
	}
}
