// Package streams numbers the streams of a device. A device has a bounded
// number of places for streams; a place is used again when its stream has been
// destroyed, under another number, so that a ticket of the old stream is never
// taken for one of the new stream.
//
//	number − 1 = generation × gpu.MaxStreams + place
//
// A Table is not safe for concurrent use.
package streams

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
)

// IndexOf is the index of a stream's place, in [0, gpu.MaxStreams).
func IndexOf(s gpu.Stream) int { return int((s - 1) % gpu.MaxStreams) }

// generation counts the streams that had the place before.
func generation(s gpu.Stream) uint32 { return uint32((s - 1) / gpu.MaxStreams) }

// place holds a live stream, or none and the generation of the next.
type place[T any] struct {
	live       bool
	generation uint32
	value      T
}

// Table holds what a device knows of each of its streams.
type Table[T any] struct {
	places []place[T]
	free   []int
}

// Add gives a stream a number; ok is false when all places are taken.
func (t *Table[T]) Add(value T) (s gpu.Stream, ok bool) {
	var i int
	switch n := len(t.free); {
	case n > 0:
		i = t.free[n-1]
		t.free = t.free[:n-1]
	case len(t.places) < gpu.MaxStreams:
		i = len(t.places)
		t.places = append(t.places, place[T]{})
	default:
		return 0, false
	}
	p := &t.places[i]
	p.live, p.value = true, value
	return gpu.Stream(p.generation*gpu.MaxStreams + uint32(i) + 1), true
}

// Find returns a live stream. The error tells a destroyed stream from one that
// never was.
func (t *Table[T]) Find(s gpu.Stream) (value T, err error) {
	switch {
	case t.live(s):
		return t.places[IndexOf(s)].value, nil
	case t.Destroyed(s):
		return value, fmt.Errorf("stream %d was destroyed", s)
	default:
		return value, fmt.Errorf("no stream %d", s)
	}
}

// Destroyed tells whether a stream existed and has been removed.
func (t *Table[T]) Destroyed(s gpu.Stream) bool {
	if s == 0 || IndexOf(s) >= len(t.places) {
		return false
	}
	return generation(s) < t.places[IndexOf(s)].generation
}

// Remove ends a live stream and frees its place.
func (t *Table[T]) Remove(s gpu.Stream) {
	if !t.live(s) {
		panic(fmt.Sprintf("streams: removal of stream %d, which is not live", s))
	}
	i := IndexOf(s)
	t.places[i] = place[T]{generation: t.places[i].generation + 1}
	t.free = append(t.free, i)
}

// All yields the live streams in the order of their places.
func (t *Table[T]) All(yield func(gpu.Stream, T) bool) {
	for i := range t.places {
		p := &t.places[i]
		if p.live && !yield(gpu.Stream(p.generation*gpu.MaxStreams+uint32(i)+1), p.value) {
			return
		}
	}
}

// live tells whether a stream is in the table. The place of a destroyed one is used again with
// another generation, so its number never names the new stream.
func (t *Table[T]) live(s gpu.Stream) bool {
	if s == 0 || IndexOf(s) >= len(t.places) {
		return false
	}
	p := &t.places[IndexOf(s)]
	return p.live && p.generation == generation(s)
}
