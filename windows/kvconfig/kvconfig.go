package kvconfig

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// MaxBytes is the size of the largest text that is read. A configuration is about a
// page long; a larger file was named by mistake.
const MaxBytes = 64 << 10

// section is the name under which TensorRT-LLM keeps the configuration.
const section = "kv_cache_config"

// entry is a name with its value, in the order of the text. The value is nil,
// bool, int64, float64, string, []any, []entry, or tooLarge.
type entry struct {
	name  string
	value any
}

// tooLarge is an integer that 64 bits do not hold, as written.
type tooLarge string

// reading is the configuration under construction with the problems found so far.
type reading struct {
	config   windows.Config
	problems []string
	// a value has the wrong type, rather than an unknown name or a wrong value
	misshapen bool
	given     map[string]entry // what has set each field, under whatever name
}

// configText names the text in errors.
const configText = "the cache configuration"

// read reads at most MaxBytes. It reads one byte more to find out whether there are
// more.
func read(r io.Reader, what string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	switch {
	case err != nil:
		return nil, refusals.New(messages.ErrBadRequest, "cannot read %s: %v", what, err)
	case len(text) > MaxBytes:
		return nil, refusals.New(messages.ErrBadRequest, "%s is longer than %d bytes", what, MaxBytes)
	}
	return text, nil
}

// object is what a text says if it is an object. null, a list and a number are no configuration.
func object(value any, what string) ([]entry, error) {
	entries, ok := value.([]entry)
	if !ok {
		return nil, refusals.New(messages.ErrBadRequest, "%s is %s, not an object", what, describe(value))
	}
	return entries, nil
}

// build makes the configuration of the entries over another one: those of the section if
// there is one, else all of them.
func build(base windows.Config, entries []entry) (windows.Config, error) {
	r := &reading{config: base}
	// A text is a whole options file or the section alone; the name of the section tells.
	if has(entries, section) {
		r.file(entries)
	} else {
		r.object("", entries, names)
	}
	return r.config, r.err()
}

// setter sets what a name stands for from a value that is not null.
type setter func(*reading, entry)

// names are all names of the section.
var names = allNames()

func allNames() map[string]setter {
	all := maps.Clone(options)
	for name := range fields(new(windows.Config)) { // no name is in both
		all[name] = alias(name)
	}
	return all
}

// Names are the names of the fields of windows.Config, in order.
func Names() []string { return slices.Sorted(maps.Keys(fields(new(windows.Config)))) }

// has reports whether a name is among the entries.
func has(entries []entry, name string) bool {
	return slices.ContainsFunc(entries, func(e entry) bool { return e.name == name })
}

// topLevel are the names that an options file has beside the section with a
// meaning of their own, although they are also names within it.
var topLevel = map[string]bool{"dtype": true}

// file reads the section out of a whole options file. The other names at its
// top level configure other parts of TensorRT-LLM and are left alone, except
// names of the cache configuration: TensorRT-LLM would refuse them there, and
// dropping them would lose what the author meant.
func (r *reading) file(entries []entry) {
	read := false
	for _, e := range entries {
		switch {
		case e.name != section:
			// dtype of the file is that of the model, and of the cache within the section.
			if names[e.name] != nil && !topLevel[e.name] {
				r.say("%s is outside %s", e.name, section)
			}
		case read:
			// The first section counts, so that the rest of the file is still checked.
			r.misshape("%s is given twice", section)
		default:
			read = true
			r.section(e.value)
		}
	}
}

// object reads the entries of an object by their names. The path of the object stands before
// each name in problems, as an author searches for it.
func (r *reading) object(path string, list []entry, setters map[string]setter) {
	seen := make(map[string]bool, len(list))
	for _, e := range list {
		name := e.name
		e.name = path + name
		// JSON leaves open which of two values counts, so neither is preferred in silence.
		if seen[name] {
			r.misshape("%s is given twice", e.name)
			continue
		}
		seen[name] = true
		set, ok := setters[name]
		switch {
		case !ok:
			// A misspelt name that was ignored would leave a default in force.
			r.say("unknown name %s", e.name)
		case e.value != nil: // null asks for the default, which the field has already
			set(r, e)
		}
	}
}

// named sets a field, and refuses a second name of it that gives it another value. A value that
// was refused sets nothing, so it contradicts nothing.
func (r *reading) named(field string, e entry, set setter) {
	problems := len(r.problems)
	set(r, e)
	if len(r.problems) > problems {
		return
	}
	if r.given == nil {
		r.given = make(map[string]entry)
	}
	first, again := r.given[field]
	switch {
	case !again:
		r.given[field] = e
	// Equal values are no contradiction: a file may be written for several versions. No field that
	// has two names has a list, so the values can be compared.
	case first.name != e.name && first.value != e.value:
		r.say("%s %v and %s %v are one option with two values", first.name, first.value, e.name, e.value)
	}
}

// section reads the value of kv_cache_config. null stands for an empty section.
func (r *reading) section(value any) {
	if value != nil && r.check(entry{section, value}, anObject) {
		r.object("", value.([]entry), names)
	}
}

// err is one refusal: ErrBadRequest if anything is of the wrong type, because then
// the text is not what it was meant to be, else ErrConfigInvalid.
func (r *reading) err() error {
	switch {
	case len(r.problems) == 0:
		return nil
	// One wrong type makes the whole refusal an ErrBadRequest: the other problems may follow from it.
	case r.misshapen:
		return refusals.New(messages.ErrBadRequest, "%s", strings.Join(r.problems, "; "))
	default:
		return refusals.New(messages.ErrConfigInvalid, "%s", strings.Join(r.problems, "; "))
	}
}

// say records a wrong value or an unknown name.
func (r *reading) say(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// misshape records a value of the wrong type.
func (r *reading) misshape(format string, args ...any) {
	r.misshapen = true
	r.say(format, args...)
}

// describe names the kind of a value in the words that JSON and YAML use, for errors
// that say what was found where something else was expected.
func describe(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case int64, tooLarge:
		return "an integer"
	case float64:
		return "a number with a fraction"
	case string:
		return "a string"
	case []any:
		return "a list"
	case []entry:
		return "an object"
	default:
		return fmt.Sprintf("a %T", value)
	}
}
