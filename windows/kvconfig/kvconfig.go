package kvconfig

import (
	"fmt"
	"io"
	"strings"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// MaxBytes is the size of the largest text that is read: a configuration is a
// page, and what is larger is another file.
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

// reading collects what is wrong while the fields are set.
type reading struct {
	config    windows.Config
	problems  []string
	misshapen bool // a value of the wrong type, rather than an unknown name or a wrong value
}

// read reads at most MaxBytes.
func read(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	switch {
	case err != nil:
		return nil, messages.Refuse(messages.BadRequest, "cannot read the cache configuration: %v", err)
	case len(text) > MaxBytes:
		return nil, messages.Refuse(messages.BadRequest, "the cache configuration is longer than %d bytes", MaxBytes)
	}
	return text, nil
}

// build makes the configuration of the entries.
func build(entries []entry) (windows.Config, error) {
	r := &reading{config: windows.DefaultConfig()}
	if len(entries) == 1 && entries[0].name == section {
		r.section(entries[0].value)
	} else {
		r.entries(entries)
	}
	return r.config, r.err()
}

// entries sets the fields. A section within the section is an unknown name.
func (r *reading) entries(entries []entry) {
	seen := make(map[string]bool, len(entries))
	for _, e := range entries {
		if seen[e.name] {
			r.misshape("%s is given twice", e.name)
			continue
		}
		seen[e.name] = true
		set, ok := fields[e.name]
		if !ok {
			r.say("unknown name %s", e.name)
			continue
		}
		if e.value != nil {
			set(r, e)
		}
	}
}

func (r *reading) section(value any) {
	switch v := value.(type) {
	case nil:
	case []entry:
		r.entries(v)
	default:
		r.misshape("%s is %s, not an object", section, describe(v))
	}
}

// err is one refusal: BadRequest if anything is of the wrong type, because then
// the text is not what it was meant to be, else ConfigInvalid.
func (r *reading) err() error {
	switch {
	case len(r.problems) == 0:
		return nil
	case r.misshapen:
		return messages.Refuse(messages.BadRequest, "%s", strings.Join(r.problems, "; "))
	default:
		return messages.Refuse(messages.ConfigInvalid, "%s", strings.Join(r.problems, "; "))
	}
}

func (r *reading) say(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *reading) misshape(format string, args ...any) {
	r.misshapen = true
	r.say(format, args...)
}

// describe names the kind of a value in the words of the texts.
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
