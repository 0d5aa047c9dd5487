//go:build poison && unix

package lent

import (
	"bytes"
	"fmt"
	"reflect"
	"unsafe"
)

// clone is a deep copy of a record: of its structs and slices. What pointers,
// maps and interfaces lead to is shared, since it may be known by its identity.
type clone struct {
	value reflect.Value
	// arrays has for the first element of each copied slice the slice that it was
	// copied from, in full length: what the receiver does there is done to that.
	arrays map[unsafe.Pointer]reflect.Value
	made   []reflect.Value // the copied slices
}

// newClone copies a record.
func newClone(of reflect.Value) *clone {
	c := &clone{arrays: map[unsafe.Pointer]reflect.Value{}}
	c.value = reflect.New(of.Type()).Elem()
	c.value.Set(of)
	c.unshare(c.value)
	return c
}

// unshare replaces each slice in v by a copy of its own, capacity included.
func (c *clone) unshare(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			c.unshare(field(v, i))
		}
	case reflect.Array:
		for i := range v.Len() {
			c.unshare(v.Index(i))
		}
	case reflect.Slice:
		if v.Cap() == 0 {
			return
		}
		// With the capacity, because a receiver answers by appending to slices of length 0 that
		// have room.
		whole := v.Slice(0, v.Cap())
		own := reflect.MakeSlice(v.Type(), v.Cap(), v.Cap())
		reflect.Copy(own, whole)
		for i := 0; i < own.Len() && composite(v.Type().Elem()); i++ {
			c.unshare(own.Index(i))
		}
		c.arrays[own.UnsafePointer()] = whole
		c.made = append(c.made, own)
		v.Set(own.Slice(0, v.Len()))
	}
}

// restore puts the receiver's value into the owner's. Slices that the receiver
// was given and still uses go back to the arrays that they were copied from; others
// are the receiver's own, and the owner may read them as it could without a copy.
func (c *clone) restore(to, from reflect.Value) {
	switch from.Kind() {
	case reflect.Struct:
		for i := range from.NumField() {
			c.restore(field(to, i), field(from, i))
		}
	case reflect.Array:
		for i := range from.Len() {
			c.restore(to.Index(i), from.Index(i))
		}
	case reflect.Slice:
		whole, given := c.arrays[from.UnsafePointer()]
		if !given || from.Cap() == 0 {
			to.Set(from)
			return
		}
		own := whole.Slice(0, from.Len())
		if isBytes(own) && bytes.Equal(own.Bytes(), from.Bytes()) {
			to.Set(own) // an unchanged array may be shared
			return
		}
		// Into the owner's arrays and not beside them: the owner may know them by other slices,
		// such as the table of a sequence.
		for i := range own.Len() {
			if e := own.Index(i); composite(e.Type()) {
				c.restore(e, from.Index(i))
			} else if !e.Equal(from.Index(i)) { // an unchanged array may be shared
				e.Set(from.Index(i))
			}
		}
		to.Set(own)
	default:
		to.Set(from)
	}
}

// scrub makes the copied arrays garbage: their loan is over.
func (c *clone) scrub() {
	for _, s := range c.made {
		if isBytes(s) {
			for i := range s.Bytes() {
				s.Bytes()[i] = byte(pattern)
			}
			continue
		}
		for i := range s.Len() {
			poison(s.Index(i))
		}
	}
}

// difference names the first place where two deep copies differ; "" if nowhere.
func difference(a, b reflect.Value, at string) string {
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if d := difference(field(a, i), field(b, i), at+"."+a.Type().Field(i).Name); d != "" {
				return d
			}
		}
		return ""
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() {
			return at
		}
		if isBytes(a) && bytes.Equal(a.Bytes(), b.Bytes()) {
			return "" // pages have a million of them
		}
		for i := range a.Len() {
			// The place is named only where two elements differ: most are numbers, and equal.
			if difference(a.Index(i), b.Index(i), at) != "" {
				return difference(a.Index(i), b.Index(i), fmt.Sprintf("%s[%d]", at, i))
			}
		}
		return ""
	case reflect.Func, reflect.Map:
		return "" // shared, and not comparable
	default:
		if !a.Equal(b) {
			return at
		}
		return ""
	}
}

// field is a field of an addressable struct that may be read and set, exported or
// not.
func field(v reflect.Value, i int) reflect.Value {
	// Package reflect refuses to set a field that is not exported; one that is made of the
	// field's address does not know where it comes from.
	f := v.Field(i)
	return reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()
}

// isBytes tells whether a value is a slice of bytes, which reflect need not take one by one.
func isBytes(v reflect.Value) bool {
	return v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8
}

// composite tells whether values of a type may contain slices.
func composite(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Array || t.Kind() == reflect.Slice
}
