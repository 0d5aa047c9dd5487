package kvconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/parser"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// ReadJSON reads one JSON object over the defaults. The error is a refusal:
// ErrBadRequest if the text is no object or has values of the wrong type, else
// ErrConfigInvalid. The configuration holds what could be read in either case.
func ReadJSON(r io.Reader) (windows.Config, error) {
	entries, err := readJSON(r, configText)
	if err != nil {
		return windows.DefaultConfig(), err
	}
	return build(windows.DefaultConfig(), entries)
}

// MergeSection reads one JSON object of any length, the section alone, over a configuration.
// path, such as "cache.", stands before names in errors. Errors are as in ReadJSON.
func MergeSection(c *windows.Config, path string, text []byte) error {
	entries, err := jsonEntries(text, configText)
	if err != nil {
		return err
	}
	return merge(c, path, entries)
}

// merge reads the entries of the section over a configuration.
func merge(c *windows.Config, path string, entries []entry) error {
	r := &reading{config: *c}
	r.object(path, entries, names)
	*c = r.config
	return r.err()
}

// readJSON reads one JSON object. what names the text in errors.
func readJSON(r io.Reader, what string) ([]entry, error) {
	raw, err := read(r, what)
	if err != nil {
		return nil, err
	}
	return jsonEntries(raw, what)
}

// jsonEntries decodes one JSON object.
func jsonEntries(raw []byte, what string) ([]entry, error) {
	value, err := decodeJSON(raw)
	if err != nil {
		return nil, refusals.New(messages.ErrBadRequest, "%s is not JSON: %v", what, err)
	}
	return object(value, what)
}

// decodeJSON reads the text into the values of an entry. JSON is YAML, and the tree of the YAML
// parser has the order of the names, by which problems are reported, names that are given twice,
// which are one of the problems, and numbers as they are written: float64 would lose digits of
// byte counts above 2⁵³.
func decodeJSON(raw []byte) (any, error) {
	// What is wrong with the text is said in the words of JSON.
	if err := json.Unmarshal(raw, new(json.RawMessage)); err != nil {
		return nil, err
	}
	var text bytes.Buffer // without tabs, with which YAML does not indent
	if err := json.Compact(&text, raw); err != nil {
		return nil, err
	}
	return decodeYAML(text.Bytes(), parser.AllowDuplicateMapKey())
}

// jsonNumber distinguishes integers from other numbers by how they are written: 32.0
// is not an integer, and neither is 1e3. Numbers that do not fit are kept as text, so
// that the error shows them as the author wrote them.
func jsonNumber(s string) any {
	if !strings.ContainsAny(s, ".eE") {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return tooLarge(s)
		}
		return n
	}
	// A number that is too small for a float64 becomes 0, which the rule of its field refuses or
	// takes.
	f, err := strconv.ParseFloat(s, 64)
	if errors.Is(err, strconv.ErrRange) && math.IsInf(f, 0) {
		return tooLarge(s)
	}
	return f
}
