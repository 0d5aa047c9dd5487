//go:build poison && unix

package lent

import (
	"reflect"
	"strings"
	"syscall"
	"unsafe"
)

// forbidden is a piece of memory that cannot be read: each access ends the
// program with a fault that names the place.
var forbidden = func() unsafe.Pointer {
	page, err := syscall.Mmap(-1, 0, 1<<20, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	return unsafe.Pointer(unsafe.SliceData(page))
}()

// many is the length of a poisoned slice: longer than any loop's first step.
const many = 1 << 12

// pattern fills poisoned numbers. It is negative, and no page, block or token.
var pattern uint64 = 0xa5a5a5a5a5a5a5a5

// poison makes a value unusable: its slices, strings and pointers lead to
// forbidden memory, its numbers are the pattern.
func poison(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			poison(field(v, i))
		}
	case reflect.Array:
		for i := range v.Len() {
			poison(v.Index(i))
		}
	// Not nil: a loop over a nil slice does nothing, and the mistake would not show.
	case reflect.Slice:
		v.Set(reflect.SliceAt(v.Type().Elem(), forbidden, many))
	case reflect.Pointer:
		v.Set(reflect.NewAt(v.Type().Elem(), forbidden))
	case reflect.String:
		v.SetString(unsafe.String((*byte)(forbidden), many))
	default:
		scramble(v)
	}
}

// scramble makes a number garbage; other values become zero.
func scramble(v reflect.Value) {
	switch {
	case v.CanInt():
		v.SetInt(int64(pattern) >> (64 - v.Type().Bits()))
	case v.CanUint():
		v.SetUint(pattern >> (64 - v.Type().Bits()))
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	default:
		v.SetZero()
	}
}

// deep is a deep copy of a value, pointers included.
func deep(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && plain(v.Type().Elem()) {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(deep(v.Elem()))
		}
	case reflect.Struct:
		if !plain(v.Type()) {
			break
		}
		for i := range out.NumField() {
			f := field(out, i)
			f.Set(deep(f))
		}
	case reflect.Array:
		for i := range out.Len() {
			out.Index(i).Set(deep(v.Index(i)))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(deep(v.Index(i)))
			}
		}
	}
	return out
}

// plain tells types of the project, which are data, from those of others: what
// they point to is not copied.
func plain(t reflect.Type) bool {
	return t.PkgPath() == "" || strings.HasPrefix(t.PkgPath(), "github.com/kvactor/kvactor")
}

// garbage scrambles the numbers behind a value, through its pointers and slices.
// The structure stays, so that what still reads it computes something wrong.
func garbage(v reflect.Value, done map[unsafe.Pointer]bool) {
	switch v.Kind() {
	// Each pointer once: a request may lead to itself, and a flag that is turned twice is what
	// it was.
	case reflect.Pointer:
		if v.IsNil() || !plain(v.Type().Elem()) || done[v.UnsafePointer()] {
			return
		}
		done[v.UnsafePointer()] = true
		garbage(v.Elem(), done)
	case reflect.Struct:
		for i := 0; plain(v.Type()) && i < v.NumField(); i++ {
			garbage(field(v, i), done)
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			garbage(v.Index(i), done)
		}
	case reflect.String:
		v.SetString("garbage")
	default:
		scramble(v)
	}
}
