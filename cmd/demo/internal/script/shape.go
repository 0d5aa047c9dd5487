package script

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// object reads the fields of one JSON object by name and type and remembers the
// first thing that is wrong with its shape. Null stands for absent.
type object struct {
	op     string // of the line, for messages
	path   string // of this object in the line, with a dot behind it; empty for the line
	fields []field
	taken  []bool
	shape  *shape
}

// shape is the first fault of a line's shape; all objects of a line share it.
type shape struct{ err error }

// newObject reads an object. A value of another kind is a fault.
func newObject(op, path string, r raw, s *shape) *object {
	o := &object{op: op, path: path, shape: s}
	if r.kind() != kindObject {
		o.fail("%s: %s is %s, not an object", op, trimDot(path), r.kind())
		return o
	}
	fields, twice := r.fields()
	if twice != nil {
		o.fail("%s: field %q stands twice", op, path+*twice)
		return o
	}
	o.fields, o.taken = fields, make([]bool, len(fields))
	return o
}

func trimDot(path string) string {
	if path == "" {
		return "the line"
	}
	return "field " + path[:len(path)-1]
}

func (o *object) fail(format string, args ...any) {
	if o.shape.err == nil {
		o.shape.err = refusals.New(messages.ErrBadRequest, format, args...)
	}
}

func (o *object) wrong(name string, is raw, want string) {
	o.fail("%s: field %s%s is %s, not %s", o.op, o.path, name, is.kind(), want)
}

func (o *object) missing(name string) { o.fail("%s: field %s%s is missing", o.op, o.path, name) }

// take finds a field; ok is false if it is absent or null.
func (o *object) take(name string) (value raw, ok bool) {
	i := slices.IndexFunc(o.fields, func(f field) bool { return f.name == name })
	if i < 0 {
		return nil, false
	}
	o.taken[i] = true
	return o.fields[i].value, o.fields[i].value.kind() != kindNull
}

// has reports whether a field is there and not null.
func (o *object) has(name string) bool {
	_, ok := o.take(name)
	return ok
}

// end refuses the fields that no one took.
func (o *object) end() {
	for i, f := range o.fields {
		if !o.taken[i] {
			o.fail("%s: unknown field %q", o.op, o.path+f.name)
			return
		}
	}
}

func (o *object) optText(name string) *string {
	value, ok := o.take(name)
	if !ok {
		return nil
	}
	if value.kind() != kindText {
		o.wrong(name, value, "a string")
		return nil
	}
	s := text(value)
	return &s
}

func (o *object) text(name string) string {
	if s := o.optText(name); s != nil {
		return *s
	}
	o.missing(name) // is passed over if the type was wrong
	return ""
}

func (o *object) optInt(name string) *int64 {
	value, ok := o.take(name)
	if !ok {
		return nil
	}
	n, ok := integer(value)
	if !ok {
		o.wrong(name, value, "an integer")
		return nil
	}
	return &n
}

func (o *object) int(name string) int64 {
	if n := o.optInt(name); n != nil {
		return *n
	}
	o.missing(name)
	return 0
}

// intOr is an optional integer with a default.
func (o *object) intOr(name string, absent int64) int64 {
	if n := o.optInt(name); n != nil {
		return *n
	}
	return absent
}

func (o *object) flagOr(name string, absent bool) bool {
	value, ok := o.take(name)
	if !ok {
		return absent
	}
	if value.kind() != kindFlag {
		o.wrong(name, value, "true or false")
		return absent
	}
	return value[0] == 't'
}

func (o *object) optNumber(name string) *float64 {
	value, ok := o.take(name)
	if !ok {
		return nil
	}
	if value.kind() != kindNumber {
		o.wrong(name, value, "a number")
		return nil
	}
	// Out of range gives an infinity, which every rule for values refuses.
	f, _ := strconv.ParseFloat(string(value), 64)
	return &f
}

// numbers is an object of numbers; nil if there is none.
func (o *object) numbers(name string) map[string]float64 {
	child := o.child(name)
	if child == nil {
		return nil
	}
	out := make(map[string]float64, len(child.fields))
	for _, f := range child.fields {
		if n := child.optNumber(f.name); n != nil {
			out[f.name] = *n
		}
	}
	return out
}

// list visits the items of a list; false if there is none.
func (o *object) list(name string, visit func(at string, item raw)) bool {
	value, ok := o.take(name)
	if !ok {
		return false
	}
	if value.kind() != kindList {
		o.wrong(name, value, "a list")
		return false
	}
	_ = value.each(func(i int, item raw) error {
		visit(fmt.Sprintf("%s[%d]", name, i), item)
		return o.shape.err
	})
	return true
}

// objects visits the objects of a list; false if there is none.
func (o *object) objects(name string, visit func(*object)) bool {
	return o.list(name, func(at string, item raw) {
		visit(newObject(o.op, o.path+at+".", item, o.shape))
	})
}

// child is an object in a field; nil if there is none.
func (o *object) child(name string) *object {
	value, ok := o.take(name)
	if !ok {
		return nil
	}
	return newObject(o.op, o.path+name+".", value, o.shape)
}
