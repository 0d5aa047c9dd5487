package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// settings is a model's configuration with Hugging Face's names. Keys that are
// missing or wrong are collected and refused together.
type settings struct {
	values   map[string]any
	problems []string
}

// parseSettings reads a configuration. Python writes Infinity and NaN into its
// JSON, which Go's parser refuses: they become the largest number and null.
func parseSettings(text []byte) (*settings, error) {
	s := &settings{}
	if err := json.Unmarshal(withoutPython(text), &s.values); err != nil {
		return nil, err
	}
	return s, nil
}

// constants are strings, which stay as they are, and Python's constants outside of them.
var constants = regexp.MustCompile(`(?s)"(?:[^"\\]|\\.)*"|Infinity|NaN`)

// withoutPython replaces what is no JSON outside of strings.
func withoutPython(text []byte) []byte {
	return constants.ReplaceAllFunc(text, func(found []byte) []byte {
		switch string(found) {
		case "Infinity":
			return []byte("1.7976931348623157e308")
		case "NaN":
			return []byte("null")
		}
		return found
	})
}

func (s *settings) refuse(key, format string, args ...any) {
	s.problems = append(s.problems, key+": "+fmt.Sprintf(format, args...))
}

// err joins what was refused.
func (s *settings) err() error {
	if len(s.problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(s.problems, "; "))
}

// has tells whether a key is there and not null.
func (s *settings) has(key string) bool { return s.values[key] != nil }

func (s *settings) number(key string) float64 {
	x, ok := s.values[key].(float64)
	if !ok {
		s.refuse(key, "%v is no number", s.values[key])
	}
	return x
}

func (s *settings) numberOr(key string, otherwise float64) float64 {
	if !s.has(key) {
		return otherwise
	}
	return s.number(key)
}

// maxSetting bounds every whole number of a configuration: no model has more of
// anything, and products of two fit into an int.
const maxSetting = 1 << 30

func (s *settings) whole(key string) int {
	x := s.number(key)
	if x != float64(int(x)) || x < 0 || x > maxSetting {
		s.refuse(key, "%v is not a whole number", x)
		return 1
	}
	return int(x)
}

func (s *settings) wholeOr(key string, otherwise int) int {
	if !s.has(key) {
		return otherwise
	}
	return s.whole(key)
}

// positive is a whole number above 0; it gives 1 if there is none.
func (s *settings) positive(key string) int {
	if n := s.whole(key); n > 0 {
		return n
	}
	s.refuse(key, "it is not 1 or more")
	return 1
}

func (s *settings) yes(key string, otherwise bool) bool {
	if !s.has(key) {
		return otherwise
	}
	x, ok := s.values[key].(bool)
	if !ok {
		s.refuse(key, "%v is not true or false", s.values[key])
	}
	return x
}

func (s *settings) text(key, otherwise string) string {
	if !s.has(key) {
		return otherwise
	}
	x, ok := s.values[key].(string)
	if !ok {
		s.refuse(key, "%v is no text", s.values[key])
	}
	return x
}

// oneOf is a text that must be one of those given; the first one is the default.
func (s *settings) oneOf(key string, known ...string) string {
	x := s.text(key, known[0])
	if !slices.Contains(known, x) {
		s.refuse(key, "%q is not supported, only %s", x, strings.Join(known, ", "))
	}
	return x
}

// only refuses a key that has another value than the one that is implemented.
func (s *settings) only(key string, known any) {
	if s.has(key) && s.values[key] != known {
		s.refuse(key, "%v is not supported, only %v", s.values[key], known)
	}
}

func (s *settings) list(key string) []any {
	x, ok := s.values[key].([]any)
	if s.has(key) && !ok {
		s.refuse(key, "%v is no list", s.values[key])
	}
	return x
}

// sub is a nested object; nil if there is none.
func (s *settings) sub(key string) *settings {
	x, ok := s.values[key].(map[string]any)
	if !ok {
		return nil
	}
	return &settings{values: x}
}

// merge takes over what a nested object refused.
func (s *settings) merge(key string, sub *settings) {
	for _, p := range sub.problems {
		s.problems = append(s.problems, key+"."+p)
	}
}
