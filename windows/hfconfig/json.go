package hfconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// MaxBytes is the size of the largest file that is read. A config.json has some
// kilobytes; a larger file is something else.
const MaxBytes = 4 << 20

// config is a JSON object with a record of what was wrong with its values. Its methods
// return a value that does no harm for one that is wrong, and record the problem with
// the key's name; err reports them all at the end. A reader can therefore be written as
// a sequence of plain expressions.
type config struct {
	// values are those of one object. problems are shared by all parts of a file. defaults are
	// those of the model type, set for the text part only, and nil without any.
	values   map[string]any
	parent   *config // of a nested part; nil
	defaults map[string]any
	problems *[]string
}

// parse reads one JSON object. Numbers are kept as text until they are used: most keys
// of a file are not, and a number that is out of range in one of those is no problem.
func parse(r io.Reader) (*config, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	switch {
	case err != nil:
		return nil, refusals.New(messages.ErrBadRequest, "cannot read the model's configuration: %v", err)
	case len(text) > MaxBytes:
		return nil,
			refusals.New(messages.ErrBadRequest, "the model's configuration is longer than %d bytes",
				MaxBytes)
	}
	d := json.NewDecoder(bytes.NewReader(withoutConstants(text)))
	// Without it each number would be a float64, and one out of range an error of the file.
	d.UseNumber()
	c := &config{problems: new([]string)}
	if err := d.Decode(&c.values); err != nil {
		return nil,
			refusals.New(messages.ErrBadRequest, "the model's configuration is not a JSON object: %s",
				explain(err))
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, refusals.New(messages.ErrBadRequest, "text follows the JSON object at byte %d",
			d.InputOffset())
	}
	return c, nil
}

// explain says what is wrong with the text without the names of Go's types.
func explain(err error) string {
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind):
		return "it is of type " + kind.Value
	case errors.Is(err, io.EOF):
		return "it is empty"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it ends too early"
	}
	return err.Error()
}

// constants are strings, and the constants that Python writes outside of them and JSON does not
// know. No other JSON text outside of strings has one of them in it.
var constants = regexp.MustCompile(`(?s)"(?:[^"\\]|\\.)*"|-?Infinity|NaN`)

// withoutConstants replaces Infinity, -Infinity and NaN outside of strings by null: no key that
// matters here can have them as a value. What is wrong with the text is the decoder's to say.
func withoutConstants(text []byte) []byte {
	return constants.ReplaceAllFunc(text, func(match []byte) []byte {
		if match[0] == '"' {
			return match
		}
		return []byte("null")
	})
}

// say records a problem once: most are the same for every layer.
func (c *config) say(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(*c.problems, s) {
		*c.problems = append(*c.problems, s)
	}
}

// err is one refusal for all problems.
// Problems are in the order in which they were found, which is that of the readers and the
// same for the same file.
func (c *config) err() error {
	if len(*c.problems) == 0 {
		return nil
	}
	return refusals.New(messages.ErrConfigInvalid, "%s", strings.Join(*c.problems, "; "))
}

// value looks a key up; null counts as absent, because files write null where a class
// computes a value from others. A key that the file does not have has the default of the
// model type.
func (c *config) value(key string) (any, bool) {
	v, written := c.values[key]
	if !written {
		v = c.defaults[key]
	}
	return v, v != nil
}

// has reports whether a key has a value that switches something on: not null,
// false, 0 or empty.
// Files write what is off in all of these ways.
func (c *config) has(key string) bool {
	v, ok := c.value(key)
	if !ok {
		return false
	}
	switch v := v.(type) {
	case bool:
		return v
	case json.Number:
		f, err := v.Float64()
		// A number that is out of range is not 0.
		return err != nil || f != 0
	case int:
		return v != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	default:
		return true
	}
}

// integer converts a value. Numbers beyond 2³¹ are refused, because no shape has
// them and their products could overflow.
func integer(v any) (int, bool) {
	switch v := v.(type) {
	case int:
		return v, true
	case json.Number:
		f, err := v.Float64()
		if err != nil || f != math.Trunc(f) || math.Abs(f) > math.MaxInt32 {
			return 0, false
		}
		return int(f), true
	default:
		return 0, false
	}
}

// text returns a string, "" if the key is absent.
func (c *config) text(key string) string {
	v, ok := c.value(key)
	if !ok {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		c.say("%s is not a string", key)
	}
	return s
}

// flag returns a boolean, and otherwise if the key is absent.
func (c *config) flag(key string, otherwise bool) bool {
	v, ok := c.value(key)
	if !ok {
		return otherwise
	}
	b, ok := v.(bool)
	if !ok {
		c.say("%s is not a boolean", key)
	}
	return b
}

// texts returns a list of strings, nil if the key is absent.
// One wrong element makes the whole list a problem.
func (c *config) texts(key string) (out []string) {
	v, ok := c.value(key)
	if !ok {
		return nil
	}
	values, ok := v.([]any)
	for _, v := range values {
		s, good := v.(string)
		out, ok = append(out, s), ok && good
	}
	if !ok {
		c.say("%s is not a list of strings", key)
		return nil
	}
	return out
}

// part returns a nested object, nil if the key is absent. Its problems are recorded with
// those of the whole; keys of nested objects are named without their path.
func (c *config) part(key string) *config {
	v, ok := c.value(key)
	if !ok {
		return nil
	}
	values, ok := v.(map[string]any)
	if !ok {
		c.say("%s is not an object", key)
		return nil
	}
	return &config{values: values, parent: c, problems: c.problems}
}

// keys are the names of the object, sorted.
// Defaults are not among them: they say nothing of the file.
func (c *config) keys() []string {
	keys := make([]string, 0, len(c.values))
	for key := range c.values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
