package script

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// reader reads a line into the struct of its op, whose json tags name the fields, and remembers
// the first thing that is wrong with the line's shape. A field must be there unless it is a
// pointer or has the option omitempty. Null stands for absent but in lists, and an integer has
// neither fraction nor exponent.
type reader struct {
	op  string // of the line, for messages
	err error
}

// shaped is a value with more than one form, which reads itself.
type shaped interface {
	read(r *reader, path string, value []byte)
}

// checked is a struct with rules about which of its fields go together.
type checked interface {
	check(r *reader, path string)
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = refusals.New(messages.ErrBadRequest, r.op+": "+format, args...)
	}
}

func (r *reader) wrong(path string, value []byte, want string) {
	where := "the line"
	if path != "" {
		where = "field " + path
	}
	r.fail("%s is %s, not %s", where, kind(value), want)
}

func (r *reader) missing(path string) { r.fail("field %s is missing", path) }

// parse checks that a line is one JSON value in UTF-8.
func parse(line []byte) ([]byte, error) {
	if !utf8.Valid(line) {
		return nil, fmt.Errorf("the line is not UTF-8")
	}
	// Unmarshal into RawMessage checks syntax and depth and says where it broke.
	var value json.RawMessage
	if err := json.Unmarshal(line, &value); err != nil {
		return nil, fmt.Errorf("the line is no JSON: %v", err)
	}
	return bytes.TrimSpace(value), nil
}

// kind is the type of a JSON value, as messages call it.
func kind(value []byte) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}

// unmarshal decodes a part of a line that parse has accepted.
func unmarshal(value []byte, into any) {
	if err := json.Unmarshal(value, into); err != nil {
		panic(fmt.Sprintf("script: %.100q was valid JSON before: %v", value, err))
	}
}

// object gives the fields of an object. A name may not stand twice: readers differ in which of
// the two they take, so neither is taken.
func (r *reader) object(path string, value []byte) map[string]json.RawMessage {
	if kind(value) != "an object" {
		r.wrong(path, value, "an object")
		return nil
	}
	fields := map[string]json.RawMessage{}
	d := json.NewDecoder(bytes.NewReader(value)) // parse has accepted it: it fails nowhere
	_, _ = d.Token()                             // the brace
	for d.More() {
		token, _ := d.Token()
		name, _ := token.(string)
		if _, twice := fields[name]; twice {
			r.fail("field %q stands twice", join(path, name))
			return nil
		}
		var member json.RawMessage
		_ = d.Decode(&member)
		fields[name] = member
	}
	return fields
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// read reads a value that is not null, unless it is in a list.
func (r *reader) read(path string, value []byte, into reflect.Value) {
	if s, ok := into.Addr().Interface().(shaped); ok {
		s.read(r, path, value)
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		r.read(path, value, into.Elem())
	case reflect.Struct:
		fields := r.object(path, value)
		r.fill(path, fields, into)
		r.end(path, fields)
	case reflect.Slice:
		items := r.list(path, value, "a list")
		into.Set(reflect.MakeSlice(into.Type(), len(items), len(items)))
		for i, item := range items {
			r.read(fmt.Sprintf("%s[%d]", path, i), item, into.Index(i))
		}
	case reflect.Map:
		into.Set(reflect.MakeMap(into.Type()))
		fields := r.object(path, value)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if kind(fields[name]) != "null" {
				member := reflect.New(into.Type().Elem()).Elem()
				r.read(join(path, name), fields[name], member)
				into.SetMapIndex(reflect.ValueOf(name), member)
			}
		}
	default:
		r.scalar(path, value, into)
	}
}

func (r *reader) scalar(path string, value []byte, into reflect.Value) {
	want := map[reflect.Kind]string{
		reflect.String: "a string", reflect.Bool: "true or false", reflect.Float64: "a number",
	}[into.Kind()]
	switch {
	case into.CanInt():
		n, ok := integer(value)
		if !ok {
			r.wrong(path, value, "an integer")
		}
		into.SetInt(n)
	case kind(value) != want:
		r.wrong(path, value, want)
	case into.CanFloat():
		// Out of range gives an infinity, which every rule for values refuses.
		x, _ := strconv.ParseFloat(string(value), 64)
		into.SetFloat(x)
	default:
		unmarshal(value, into.Addr().Interface())
	}
}

// integer decodes a number that is written as an integer, without fraction or exponent. One that
// 64 bits cannot hold becomes the nearest they can: it has the right type, and its value is for
// others to refuse.
func integer(value []byte) (int64, bool) {
	if kind(value) != "a number" || bytes.ContainsAny(value, ".eE") {
		return 0, false
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil && value[0] == '-' {
		return math.MinInt64, true
	} else if err != nil {
		return math.MaxInt64, true
	}
	return n, true
}

// list gives the items of a list.
func (r *reader) list(path string, value []byte, want string) (items []json.RawMessage) {
	if kind(value) != "a list" {
		r.wrong(path, value, want)
		return nil
	}
	unmarshal(value, &items)
	return items
}

// fill reads those of an object's fields that a struct has, and takes them out.
func (r *reader) fill(path string, fields map[string]json.RawMessage, into reflect.Value) {
	for i := range into.NumField() {
		f := into.Type().Field(i)
		if f.Anonymous {
			r.fill(path, fields, into.Field(i))
			continue
		}
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch value, ok := fields[name]; {
		case ok && kind(value) != "null":
			r.read(join(path, name), value, into.Field(i))
		case option == "" && f.Type.Kind() != reflect.Pointer:
			r.missing(join(path, name))
		}
		delete(fields, name)
	}
	if into.CanInterface() {
		if c, ok := into.Addr().Interface().(checked); ok {
			c.check(r, path)
		}
	}
}

// end refuses the fields that were not taken.
func (r *reader) end(path string, fields map[string]json.RawMessage) {
	if len(fields) > 0 {
		r.fail("unknown field %q", join(path, slices.Min(slices.Collect(maps.Keys(fields)))))
	}
}
