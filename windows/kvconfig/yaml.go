package kvconfig

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// ReadYAML reads one YAML mapping over the defaults; an empty text is an empty
// mapping. Errors are as in ReadJSON. Aliases are refused: nothing here is
// worth repeating, and a few of them can stand for gigabytes.
func ReadYAML(r io.Reader) (windows.Config, error) {
	entries, err := readYAML(r, configText)
	if err != nil {
		return windows.DefaultConfig(), err
	}
	return build(entries)
}

// readYAML reads one YAML mapping. what names the text in errors.
func readYAML(r io.Reader, what string) ([]entry, error) {
	raw, err := read(r, what)
	if err != nil {
		return nil, err
	}
	value, err := decodeYAML(raw)
	if err != nil {
		// The library draws the place in the text below its first line.
		line, _, _ := strings.Cut(err.Error(), "\n")
		return nil, refusals.New(messages.ErrBadRequest, "%s is not YAML: %s", what, line)
	}
	// An empty text asks for the defaults. An empty JSON text is no JSON.
	if value == nil {
		return nil, nil
	}
	entries, ok := value.([]entry)
	if !ok {
		return nil, refusals.New(messages.ErrBadRequest, "%s is %s, not an object", what, describe(value))
	}
	return entries, nil
}

// decodeYAML parses the text once for its structure, to refuse what one mapping
// cannot have, and once for its values. The ordered maps of the library keep the order
// of the names; names that are given twice are an error of its parser.
func decodeYAML(raw []byte) (any, error) {
	file, err := parser.ParseBytes(raw, 0)
	if err != nil {
		return nil, err
	}
	// The library would read the first and drop the others.
	if len(file.Docs) > 1 {
		return nil, fmt.Errorf("%d documents instead of one", len(file.Docs))
	}
	for _, doc := range file.Docs {
		if doc.Body == nil { // an empty text, which the library's walk cannot take
			return nil, nil
		}
		// Before the values are made, since making them expands the aliases.
		if aliases := ast.Filter(ast.AliasType, doc.Body); len(aliases) > 0 {
			return nil, fmt.Errorf("alias %s", aliases[0])
		}
	}
	var value any
	if err := yaml.UnmarshalWithOptions(raw, &value, yaml.UseOrderedMap()); err != nil {
		return nil, err
	}
	return yamlValue(value), nil
}

// yamlValue converts the values of the library to those of an entry, the same that
// decodeJSON makes, so that both forms are read by the same setters. The library has
// unsigned integers for all that have no sign.
func yamlValue(value any) any {
	switch v := value.(type) {
	case yaml.MapSlice:
		entries := make([]entry, len(v))
		for i, item := range v {
			// YAML allows keys of any type; as text they are unknown names and are reported.
			entries[i] = entry{fmt.Sprint(item.Key), yamlValue(item.Value)}
		}
		return entries
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = yamlValue(item)
		}
		return list
	case uint64:
		// As written, so that the error shows the author's number.
		if v > math.MaxInt64 {
			return tooLarge(strconv.FormatUint(v, 10))
		}
		return int64(v)
	default:
		return v // nil, bool, int64, float64, string
	}
}
