package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
)

// field is a parameter: a name in a JSON object, and what becomes of its value. A null is
// as if it was not there.
type field struct {
	name string
	// into is a pointer that the value is decoded into, a reader, unserved or ignored.
	into any
	// rule says what is wrong with a number that was decoded; "": nothing. nil: nothing can be.
	rule func(x float64) string
}

// reader reads a value that is an object or a list of objects. The path is its name.
type reader = func(path string, value []byte) *apiError

// unserved are the values, as JSON, of a parameter that is not served: those that change
// nothing. All others are refused.
type unserved []string

// ignored is a parameter that changes no answer.
type ignored struct{}

// badParam refuses the value of a parameter.
func badParam(param, format string, args ...any) *apiError {
	e := badRequest("%s: %s", param, fmt.Sprintf(format, args...))
	e.param = param
	return e
}

func badRequest(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: invalid,
		message: fmt.Sprintf(format, args...)}
}

// object is a JSON object that was not looked into.
type object map[string]json.RawMessage

// fill reads the fields of an object. A name that is none of theirs is refused. The prefix is
// the path of the object, with a dot at its end unless it is the body.
func (o object) fill(prefix string, fields []field) *apiError {
	known := map[string]bool{}
	for _, f := range fields {
		known[f.name] = true
	}
	var unknown []string
	for name := range o {
		if !known[name] {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return badParam(prefix+slices.Min(unknown), "there is no such parameter here")
	}
	for i := range fields {
		value := bytes.TrimSpace(o[fields[i].name])
		if len(value) == 0 || string(value) == "null" {
			continue
		}
		if e := fields[i].fill(prefix+fields[i].name, value); e != nil {
			return e
		}
	}
	return nil
}

// fill reads the value of one field.
func (f *field) fill(path string, value []byte) *apiError {
	switch into := f.into.(type) {
	case ignored:
		return nil
	case unserved:
		for _, neutral := range into {
			if equal([]byte(neutral), value) {
				return nil
			}
		}
		return badParam(path, "not supported")
	case reader:
		return into(path, value)
	}
	if err := json.Unmarshal(value, f.into); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return badParam(path, "%s", mistaken(kind))
		}
		return badParam(path, "%v", err)
	}
	if f.rule != nil {
		number := reflect.ValueOf(f.into).Elem().Convert(reflect.TypeFor[float64]()).Float()
		if wrong := f.rule(number); wrong != "" {
			return badParam(path, "%s", wrong)
		}
	}
	return nil
}

// mistaken says what is there instead of a value of another type, in the words of JSON.
func mistaken(e *json.UnmarshalTypeError) string {
	want := "an object"
	switch e.Type.Kind() {
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Slice:
		want = "a list"
	case reflect.Float64:
		want = "a number"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint64:
		want = "an integer"
	}
	number, ok := strings.CutPrefix(e.Value, "number ")
	switch {
	case ok && (want == "a number" || !strings.ContainsAny(number, ".eE")):
		return number + " is too large"
	case ok:
		return fmt.Sprintf("%s is not %s", number, want)
	}
	return fmt.Sprintf("it is %s, not %s", words[e.Value], want)
}

// words are the kinds of JSON values, by their names in package json.
var words = map[string]string{
	"array": "a list", "object": "an object", "string": "a string", "number": "a number",
	"bool": "true or false",
}

// equal compares two JSON values.
func equal(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// between is the rule of a number with bounds that are allowed.
func between(low, high float64) func(float64) string {
	return func(x float64) string {
		if x < low || x > high {
			return fmt.Sprintf("%g is not within %g and %g", x, low, high)
		}
		return ""
	}
}

// above is the rule of a number that must be more than low, and at most high.
func above(low, high float64) func(float64) string {
	return func(x float64) string {
		if x <= low || x > high {
			return fmt.Sprintf("%g is not above %g and at most %g", x, low, high)
		}
		return ""
	}
}

// least is the rule of a number with a lower bound.
func least(low float64) func(float64) string {
	return func(x float64) string {
		if x < low {
			return fmt.Sprintf("%g is less than %g", x, low)
		}
		return ""
	}
}

// read decodes the body of a request, which is one object.
func read(w http.ResponseWriter, r *http.Request) (object, *apiError) {
	// A deadline of the whole connection would cancel requests that take longer.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(slowClient)) // not supported: a test
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	var o object
	err := d.Decode(&o)
	var large *http.MaxBytesError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &large):
		e := badRequest("the body has more than %d bytes", maxBody)
		e.status = http.StatusRequestEntityTooLarge
		return nil, e
	case errors.Is(err, io.EOF):
		err = errors.New("it is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("its JSON ends too early")
	case errors.As(err, &kind):
		err = fmt.Errorf("it is %s, not an object", words[kind.Value])
	case err == nil && d.More():
		err = errors.New("more than one JSON value")
	case err == nil && o == nil:
		err = errors.New("it is null, not an object")
	}
	if err != nil {
		return nil, badRequest("the body cannot be read: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return o, nil
}

// list reads a list of objects.
func list(path string, value []byte, each func(path string, o object) *apiError) *apiError {
	var all []object
	if err := json.Unmarshal(value, &all); err != nil {
		return badParam(path, "it is not a list of objects")
	}
	for i, o := range all {
		if e := each(fmt.Sprintf("%s[%d].", path, i), o); e != nil {
			return e
		}
	}
	return nil
}
