package script

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// raw is one JSON value, known to be valid, without space around it. Values
// are cut out of the line when they are looked at: a prompt of a million tokens
// costs no tree of a million nodes.
type raw []byte

// kind is the type of a JSON value.
type kind string

// The kinds, as messages call them.
const (
	kindObject kind = "an object"
	kindList   kind = "a list"
	kindText   kind = "a string"
	kindFlag   kind = "true or false"
	kindNull   kind = "null"
	kindNumber kind = "a number"
)

func (r raw) kind() kind {
	switch r[0] {
	case '{':
		return kindObject
	case '[':
		return kindList
	case '"':
		return kindText
	case 't', 'f':
		return kindFlag
	case 'n':
		return kindNull
	default:
		return kindNumber
	}
}

// parse checks that a line is one JSON value in UTF-8.
func parse(line []byte) (raw, error) {
	if !utf8.Valid(line) {
		return nil, fmt.Errorf("the line is not UTF-8")
	}
	// Unmarshal into RawMessage checks syntax and depth and says where it broke.
	var value json.RawMessage
	if err := json.Unmarshal(line, &value); err != nil {
		return nil, fmt.Errorf("the line is no JSON: %v", err)
	}
	return raw(bytes.TrimSpace(value)), nil
}

// field is one member of an object.
type field struct {
	name  string
	value raw
}

// fields gives an object's members in order, and a name that stands twice:
// readers differ in which of the two they take, so neither is taken.
func (r raw) fields() (out []field, twice *string) {
	seen := make(map[string]bool)
	for i := space(r, 1); r[i] != '}'; {
		end := skip(r, i)
		name := text(r[i:end])
		if seen[name] {
			return nil, &name
		}
		seen[name] = true
		i = space(r, space(r, end)+1) // past the colon
		end = skip(r, i)
		out = append(out, field{name, r[i:end]})
		i = next(r, end)
	}
	return out, nil
}

// each visits a list's items until one fails.
func (r raw) each(visit func(i int, item raw) error) error {
	n := 0
	for i := space(r, 1); r[i] != ']'; n++ {
		end := skip(r, i)
		if err := visit(n, r[i:end]); err != nil {
			return err
		}
		i = next(r, end)
	}
	return nil
}

// text decodes a string.
func text(r raw) string {
	if bytes.IndexByte(r, '\\') < 0 {
		return string(r[1 : len(r)-1])
	}
	var s string
	if err := json.Unmarshal(r, &s); err != nil {
		panic(fmt.Sprintf("script: %q was valid JSON before", r))
	}
	return s
}

// integer decodes a number that is written as an integer, without fraction or
// exponent. One that 64 bits cannot hold becomes the nearest they can: it has
// the right type, and its value is for others to refuse.
func integer(r raw) (int64, bool) {
	if r.kind() != kindNumber || bytes.ContainsAny(r, ".eE") {
		return 0, false
	}
	n, err := strconv.ParseInt(string(r), 10, 64)
	if err != nil && r[0] == '-' {
		return math.MinInt64, true
	} else if err != nil {
		return math.MaxInt64, true
	}
	return n, true
}

// space gives the index of the first byte at or after i that is not white.
func space(r raw, i int) int {
	for r[i] == ' ' || r[i] == '\t' || r[i] == '\n' || r[i] == '\r' {
		i++
	}
	return i
}

// next steps from the end of a member or item to the next, or to the bracket.
func next(r raw, i int) int {
	i = space(r, i)
	if r[i] == ',' {
		return space(r, i+1)
	}
	return i
}

// skip gives the index behind the value at i.
func skip(r raw, i int) int {
	switch r[i] {
	case '"':
		return skipText(r, i)
	case '{', '[':
		return skipNested(r, i)
	}
	for i < len(r) && !bytes.ContainsRune([]byte(" \t\r\n,:]}"), rune(r[i])) {
		i++
	}
	return i
}

func skipText(r raw, i int) int {
	for i++; r[i] != '"'; i++ {
		if r[i] == '\\' {
			i++
		}
	}
	return i + 1
}

func skipNested(r raw, i int) int {
	for depth := 0; ; {
		switch r[i] {
		case '"':
			i = skipText(r, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
}
