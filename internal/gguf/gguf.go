// Package gguf reads the header of a GGUF file: its metadata, and where its tensors lie.
package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Header is what a file says before the bytes of its tensors.
type Header struct {
	// Meta has uint64, int64, float64, bool, string, and []any of these.
	Meta    map[string]any
	Tensors []Tensor
	Data    int64 // where the bytes of tensors begin
}

// Tensor is where a tensor lies.
type Tensor struct {
	Name   string
	Shape  []int  // the last one is contiguous
	Type   uint32 // of its elements, by llama.cpp's numbers
	Offset uint64 // of its bytes, from Data
}

// ErrTruncated is the error of a file that ends before what it says is in it.
var ErrTruncated = errors.New("the file ends too early")

const (
	magic      = 0x46554747 // "GGUF"
	alignment  = 32         // of the bytes of tensors, unless the file says another
	maxEntries = 1 << 24    // of an array, of keys, of tensors: a bound for broken files
)

// Read reads the header of a file of so many bytes, of versions 2 and 3. What a broken file claims
// takes no more memory than a few times what is there.
func Read(r io.Reader, size int64) (*Header, error) {
	c := &cursor{r: bufio.NewReader(r), size: size}
	if c.u32() != magic {
		return nil, errors.New("no GGUF file")
	}
	if v := c.u32(); v != 2 && v != 3 {
		return nil, fmt.Errorf("GGUF version %d is not 2 or 3", v)
	}
	tensors, keys := c.count(), c.count()
	h := &Header{Meta: map[string]any{}}
	for range keys {
		key := c.text()
		h.Meta[key] = c.value(c.u32())
		if c.err != nil {
			return nil, fmt.Errorf("key %q: %w", key, c.err)
		}
	}
	for range tensors {
		t, err := c.tensor()
		if err != nil {
			return nil, err
		}
		h.Tensors = append(h.Tensors, t)
	}
	align := int64(alignment)
	if a, ok := h.Meta["general.alignment"].(uint64); ok && a > 0 && a < maxEntries {
		align = int64(a)
	}
	if h.Data = (c.at + align - 1) / align * align; c.err == nil && h.Data > size {
		return nil, ErrTruncated
	}
	return h, c.err
}

// cursor reads numbers until something is wrong.
type cursor struct {
	r        *bufio.Reader
	at, size int64
	room     [8]byte // of numbers
	err      error
}

// read fills b, with zeros where there is nothing.
func (c *cursor) read(b []byte) []byte {
	if c.err == nil {
		if _, err := io.ReadFull(c.r, b); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			c.err = ErrTruncated
		} else {
			c.err = err
		}
		c.at += int64(len(b))
	}
	if c.err != nil {
		clear(b)
	}
	return b
}

func (c *cursor) u8() byte    { return c.read(c.room[:1])[0] }
func (c *cursor) u16() uint16 { return binary.LittleEndian.Uint16(c.read(c.room[:2])) }
func (c *cursor) u32() uint32 { return binary.LittleEndian.Uint32(c.read(c.room[:4])) }
func (c *cursor) u64() uint64 { return binary.LittleEndian.Uint64(c.read(c.room[:8])) }

// count reads a number of things that have at least a byte each.
func (c *cursor) count() int {
	n := c.u64()
	if c.err == nil && (n > maxEntries || n > uint64(c.size-c.at)) { //nolint:gosec // not negative
		c.err = fmt.Errorf("a count of %d", n)
	}
	if c.err != nil {
		return 0
	}
	return int(n)
}

func (c *cursor) text() string { return string(c.read(make([]byte, c.count()))) }

// value reads a value of a type.
func (c *cursor) value(kind uint32) any {
	switch kind {
	case 0:
		return uint64(c.u8())
	case 1:
		return int64(int8(c.u8()))
	case 2:
		return uint64(c.u16())
	case 3:
		return int64(int16(c.u16()))
	case 4:
		return uint64(c.u32())
	case 5:
		return int64(int32(c.u32()))
	case 6:
		return float64(math.Float32frombits(c.u32()))
	case 7:
		return c.u8() != 0
	case 8:
		return c.text()
	case 9:
		return c.list()
	case 10:
		return c.u64()
	case 11:
		return int64(c.u64())
	case 12:
		return math.Float64frombits(c.u64())
	}
	if c.err == nil {
		c.err = fmt.Errorf("a metadata value of type %d", kind)
	}
	return nil
}

// list reads an array.
func (c *cursor) list() (out []any) {
	kind := c.u32()
	if kind == 9 {
		c.err = errors.New("an array of arrays")
	}
	for range c.count() {
		if out = append(out, c.value(kind)); c.err != nil {
			return nil
		}
	}
	return out
}

// tensor reads where a tensor lies.
func (c *cursor) tensor() (Tensor, error) {
	t := Tensor{Name: c.text()}
	dims := c.u32()
	if dims > 4 {
		return t, fmt.Errorf("tensor %s: %d dimensions", t.Name, dims)
	}
	t.Shape = make([]int, dims)
	for i := range t.Shape { // the file has the contiguous one first
		t.Shape[len(t.Shape)-1-i] = int(min(c.u64(), math.MaxInt32))
	}
	t.Type, t.Offset = c.u32(), c.u64()
	if c.err != nil {
		return t, fmt.Errorf("tensor %q: %w", t.Name, c.err)
	}
	return t, nil
}
