// Package gguf reads the geometry of a model's cache from the header of a GGUF
// file:
//
//	model, err := gguf.Open("Qwen3-8B-Q4_K_M.gguf", hfconfig.Options{})
//
// What each architecture keeps are lines of hfconfig's architectures.txt, in the language
// of its rules for config.json: most files do not say which layers have windows. Keys
// that no line names are refused or noted; those outside of the architecture's, such as
// those of the tokenizer, are not looked at. Of a file in several parts the first one is
// named.
//
// The keys and values of the cache are assumed to be float16 and recurrent states
// float32, as llama.cpp keeps them; a GGUF file names the types of its weights
// only.
package gguf

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	header "github.com/kvactor/kvactor/internal/gguf"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows/hfconfig"
)

// Open reads the header of a GGUF file. Errors are those of hfconfig.Read; a file
// that is not GGUF is an ErrBadRequest refusal. The tensors are not read, so that a file
// of many gigabytes is read as fast as a small one.
func Open(path string, o hfconfig.Options) (hfconfig.Model, error) {
	f, err := os.Open(path)
	if err != nil {
		return hfconfig.Model{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return hfconfig.Model{}, err
	}
	h, err := header.Read(f, info.Size())
	if err != nil {
		return hfconfig.Model{}, refusals.New(messages.ErrBadRequest, "%s is not a GGUF file: %v", path,
			err)
	}
	arch, _ := h.Meta["general.architecture"].(string)
	values := make(map[string]any)
	for key, v := range h.Meta {
		if key, ok := strings.CutPrefix(key, arch+"."); ok {
			values[key] = plain(v)
		}
	}
	o.StateDType = cmp.Or(o.StateDType, "float32")
	o.ConvDType = cmp.Or(o.ConvDType, "float32")
	return hfconfig.ReadHeader(arch, values, o)
}

// maxList is the length of the longest list that can be of layers. A longer one becomes a text, so
// that its key is not lost.
const maxList = 8192

// plain converts a value to those that hfconfig takes: integers of any size to int. The writers of
// GGUF files do not agree on the sizes of integers.
func plain(value any) any {
	switch v := value.(type) {
	case uint64:
		return int(v)
	case int64:
		return int(v)
	case []any:
		if len(v) > maxList {
			return fmt.Sprintf("a list of %d", len(v))
		}
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return value
}

// IsFile reports whether a path names a GGUF file, by its ending.
func IsFile(path string) bool { return strings.HasSuffix(strings.ToLower(path), ".gguf") }
