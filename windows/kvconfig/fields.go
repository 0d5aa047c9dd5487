package kvconfig

import (
	"reflect"

	"github.com/kvactor/kvactor/windows"
)

// fields are the fields of a configuration by their names. What a value may be, beyond its
// type, is checked by Config.Validate: the rules of some fields need the model, and a host
// that fills in a Config by hand needs them too.
func fields(c *windows.Config) map[string]any {
	all := make(map[string]any)
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("name"); name != "" {
			all[name] = v.Field(i).Addr().Interface()
		}
	}
	return all
}

// zero says what is wrong with a 0 in fields in which it stands for none. A text says none by
// leaving the name out. Validate cannot see the difference any more.
var zero = map[string]string{
	"max_tokens":              "0 is not 1 or more",
	"prefill_doubles_at":      "0 is not 1 or more",
	"expected_seq_len":        "0 is not 1 or more",
	"cross_kv_cache_fraction": "is for encoder-decoder models only",
	"other_salts_quota":       "0 is not greater than 0 and at most 1",
}

// set sets the field of a name from a value that is not null. Null is the same as an absent
// name in every field, as in TensorRT-LLM, where it is how a file keeps a default. A problem is
// recorded and leaves the default, so that one error reports everything that is wrong with a
// file.
func (r *reading) set(name string, e entry) {
	switch field := fields(&r.config)[name].(type) {
	case *int:
		if v, ok := r.integer(e); ok && !r.zero(name, e, v == 0) {
			*field = int(v)
		}
	case *int64:
		if v, ok := r.integer(e); ok {
			*field = v
		}
	case *float64:
		if v, ok := r.number(e); ok && !r.zero(name, e, v == 0) {
			*field = v
		}
	case *bool:
		// The numbers 0 and 1 are refused, and so are words such as yes and on, which YAML 1.1
		// took for booleans and YAML 1.2 takes for strings.
		if r.check(e, aBoolean) {
			*field = e.value.(bool)
		}
	case *string:
		v, ok := e.value.(string)
		switch {
		case name == "transfer_mode" && v == "": // deprecated, whatever its value is
			r.say("%s is deprecated", e.name)
		case ok || r.check(e, aString):
			*field = v
		}
	case *[]int:
		r.list(e, field)
	case *map[string]float64:
		r.shares(e, field)
	}
}

// zero refuses a 0 that the field of a name takes for none.
func (r *reading) zero(name string, e entry, is bool) bool {
	wrong := is && zero[name] != ""
	if wrong {
		r.say("%s %s", e.name, zero[name])
	}
	return wrong
}

// integer reads an integer. A number with a fraction of zero, such as 32.0, is not taken for
// one: more often than not it is a mistake of the program that wrote the file.
func (r *reading) integer(e entry) (int64, bool) {
	switch v := e.value.(type) {
	case int64:
		return v, true
	case tooLarge:
		r.say("%s %s is too large", e.name, string(v))
	default:
		r.misshape("%s is %s, not an integer", e.name, describe(v))
	}
	return 0, false
}

// number reads any number; an integer is one too, because a fraction of 1 is often
// written without a point. The values .inf and .nan of YAML pass; Validate refuses
// them with the field's own rule.
func (r *reading) number(e entry) (float64, bool) {
	switch v := e.value.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case tooLarge:
		r.say("%s %s is too large", e.name, string(v))
	default:
		r.misshape("%s is %s, not a number", e.name, describe(v))
	}
	return 0, false
}

// list reads a list of integers. An empty list stays empty instead of becoming nil, so that
// Validate can tell it from none and refuse it. A list with a wrong element keeps the others,
// so that Validate reports what is wrong with them.
func (r *reading) list(e entry, field *[]int) {
	list, ok := e.value.([]any)
	if !ok {
		r.misshape("%s is %s, not a list of integers", e.name, describe(e.value))
		return
	}
	*field = make([]int, 0, len(list)) // not nil, see above
	for _, value := range list {
		switch v := value.(type) {
		case int64:
			*field = append(*field, int(v))
		case tooLarge:
			r.say("%s %s is too large", e.name, string(v))
		default:
			r.misshape("%s has %s in it, not an integer", e.name, describe(v))
		}
	}
}

// shares reads what gives names their parts of a whole. A name that is given twice is a mistake
// of the text, whatever its values: JSON and YAML leave open which of them counts.
func (r *reading) shares(e entry, field *map[string]float64) {
	if !r.check(e, anObject) {
		return
	}
	*field = make(map[string]float64)
	for _, part := range e.value.([]entry) {
		// The first value counts, so that the rest is still checked.
		if _, twice := (*field)[part.name]; twice {
			r.misshape("%s has %s twice", e.name, part.name)
			continue
		}
		if part.value == nil { // as if it were not there
			continue
		}
		// The name in the problem says which part of which field.
		if f, ok := r.number(entry{e.name + " of " + part.name, part.value}); ok {
			(*field)[part.name] = f
		}
	}
}
