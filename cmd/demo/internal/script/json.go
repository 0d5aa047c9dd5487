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
// are cut out of the line when they are looked at.
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
	d := json.NewDecoder(bytes.NewReader(r))
	_, err := d.Token() // the brace
	seen := make(map[string]bool)
	for err == nil && d.More() {
		var name json.Token
		var value json.RawMessage
		if name, err = d.Token(); err == nil {
			err = d.Decode(&value)
		}
		text, _ := name.(string)
		if seen[text] {
			return nil, &text
		}
		seen[text] = true
		out = append(out, field{text, raw(value)})
	}
	mustBeValid(r, err)
	return out, nil
}

// each visits a list's items until one fails.
func (r raw) each(visit func(i int, item raw) error) error {
	var items []json.RawMessage
	mustBeValid(r, json.Unmarshal(r, &items))
	for i, item := range items {
		if err := visit(i, raw(item)); err != nil {
			return err
		}
	}
	return nil
}

// mustBeValid panics at an error in what parse has accepted.
func mustBeValid(r raw, err error) {
	if err != nil {
		panic(fmt.Sprintf("script: %.100q was valid JSON before: %v", r, err))
	}
}

// text decodes a string.
func text(r raw) string {
	var s string
	mustBeValid(r, json.Unmarshal(r, &s))
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
