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
//
// The package is separate from hfconfig so that only hosts that read GGUF files
// depend on a parser of them.
package gguf

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"strings"

	parser "github.com/gpustack/gguf-parser-go"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows/hfconfig"
)

// Open reads the header of a GGUF file. Errors are those of hfconfig.Read; a file
// that is not GGUF is an ErrBadRequest refusal. The tensors are not read, so that a file
// of many gigabytes is read as fast as a small one.
func Open(path string, o hfconfig.Options) (hfconfig.Model, error) {
	// A path that does not exist is the error of the file system, not a file that is no GGUF.
	if _, err := os.Stat(path); err != nil {
		return hfconfig.Model{}, err
	}
	file, err := parse(path)
	if err != nil {
		return hfconfig.Model{}, refusals.New(messages.ErrBadRequest, "%s is not a GGUF file: %v", path,
			err)
	}
	arch, values := "", make(map[string]any)
	for _, kv := range file.Header.MetadataKV {
		if kv.Key == "general.architecture" {
			arch, _ = kv.Value.(string)
		}
	}
	for _, kv := range file.Header.MetadataKV {
		if key, ok := strings.CutPrefix(kv.Key, arch+"."); ok {
			values[key] = plain(kv.Value)
		}
	}
	o.StateDType = cmp.Or(o.StateDType, "float32")
	o.ConvDType = cmp.Or(o.ConvDType, "float32")
	return hfconfig.ReadHeader(arch, values, o)
}

// parse calls the library, which panics on some broken files. The file is read, not
// mapped: a mapped file that becomes shorter meanwhile ends the process.
func parse(path string) (file *parser.GGUFFile, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%v", reason)
		}
	}()
	return parser.ParseGGUFFile(path)
}

// plain converts a value of the library to those that hfconfig takes: integers of any
// size to int, lists to []any. The writers of GGUF files do not agree on the sizes of
// integers.
func plain(value any) any {
	if list, ok := value.(parser.GGUFMetadataKVArrayValue); ok {
		out := make([]any, len(list.Array))
		// Elements have types of their own, as values have.
		for i, element := range list.Array {
			out[i] = plain(element)
		}
		return out
	}
	switch v := reflect.ValueOf(value); {
	case v.CanInt():
		return int(v.Int())
	case v.CanUint():
		return int(v.Uint())
	default:
		return value
	}
}

// IsFile reports whether a path names a GGUF file, by its ending.
func IsFile(path string) bool { return strings.HasSuffix(strings.ToLower(path), ".gguf") }
