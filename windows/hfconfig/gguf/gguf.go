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
	"encoding/binary"
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
			if values[key], err = value(path, file, kv.Value); err != nil {
				return hfconfig.Model{}, err
			}
		}
	}
	o.StateDType = cmp.Or(o.StateDType, "float32")
	o.ConvDType = cmp.Or(o.ConvDType, "float32")
	return hfconfig.ReadHeader(arch, values, o)
}

// parse calls the library, which panics on some broken files. The file is read, not
// mapped: a mapped file that becomes shorter meanwhile ends the process. Most lists, such
// as the vocabulary, are skipped; value reads those of the architecture.
func parse(path string) (file *parser.GGUFFile, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%v", reason)
		}
	}()
	return parser.ParseGGUFFile(path, parser.SkipLargeMetadata())
}

// maxList is the length of the longest list of an architecture that is read: a list has
// an entry for each layer. sizes are the bytes of elements by type.
const maxList = 8192

var sizes = map[parser.GGUFMetadataValueType]int{
	parser.GGUFMetadataValueTypeUint8: 1, parser.GGUFMetadataValueTypeInt8: 1,
	parser.GGUFMetadataValueTypeBool:   1,
	parser.GGUFMetadataValueTypeUint16: 2, parser.GGUFMetadataValueTypeInt16: 2,
	parser.GGUFMetadataValueTypeUint32: 4, parser.GGUFMetadataValueTypeInt32: 4,
	parser.GGUFMetadataValueTypeFloat32: 4,
	parser.GGUFMetadataValueTypeUint64:  8, parser.GGUFMetadataValueTypeInt64: 8,
	parser.GGUFMetadataValueTypeFloat64: 8,
}

// value converts a value, and reads the list that the library has skipped. A list that
// cannot be of layers becomes a text, so that its key is not lost.
func value(path string, file *parser.GGUFFile, v any) (any, error) {
	list, ok := v.(parser.GGUFMetadataKVArrayValue)
	if !ok || len(list.Array) > 0 || list.Len == 0 {
		return plain(v), nil
	}
	size := sizes[list.Type]
	if size == 0 || list.Len > maxList {
		return fmt.Sprintf("a list of %d", list.Len), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	start := list.StartOffset + 4 + 8 // behind the type of the elements and their number
	if file.Header.Version <= parser.GGUFVersionV1 {
		start -= 4
	}
	var order binary.ByteOrder = binary.LittleEndian
	if file.Header.Magic == parser.GGUFMagicGGUFBe {
		order = binary.BigEndian
	}
	bytes := make([]byte, int(list.Len)*size)
	if _, err := f.ReadAt(bytes, start); err != nil {
		return nil, refusals.New(messages.ErrBadRequest, "%s: a list of %d ends early: %v", path,
			list.Len, err)
	}
	out := make([]any, list.Len)
	for i := range out {
		out[i] = element(order, list.Type, bytes[i*size:(i+1)*size])
	}
	return out, nil
}

// element is an element of a list. What is no integer becomes a text.
func element(order binary.ByteOrder, t parser.GGUFMetadataValueType, b []byte) any {
	var n uint64
	switch len(b) {
	case 1:
		n = uint64(b[0])
	case 2:
		n = uint64(order.Uint16(b))
	case 4:
		n = uint64(order.Uint32(b))
	default:
		n = order.Uint64(b)
	}
	switch t {
	case parser.GGUFMetadataValueTypeBool:
		return n != 0
	case parser.GGUFMetadataValueTypeFloat32, parser.GGUFMetadataValueTypeFloat64:
		return "a fraction"
	case parser.GGUFMetadataValueTypeInt8, parser.GGUFMetadataValueTypeInt16,
		parser.GGUFMetadataValueTypeInt32, parser.GGUFMetadataValueTypeInt64:
		shift := 64 - 8*len(b)
		return int(int64(n<<shift) >> shift)
	default:
		return int(n)
	}
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
