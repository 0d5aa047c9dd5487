// Package arraypool keeps memory that is not in use, sorted by size, for whoever asks for
// about that size next. An owner whose arrays come and go at one rate then allocates nothing.
//
// A value is anything that stands for an array, such as a pointer to it; its room is the
// number of elements of the array. Values are stacked by room, in four classes for each
// doubling:
//
//	room   0  1  2  3  4  5  6  7  8–9  10–11  12–13  14–15  16–19  …
//	class  0  1  2  3  4  5  6  7   8     9     10     11     12    …
//
// So the values of the class of n and of the next one have room for at most about half as
// much again as n.
//
// # Invariants
//
//  1. A value is in the stack of the class of its room.
//  2. For each class the room of its values is counted; the sum is Room.
//  3. The bit of a class is set if and only if it has values.
//
// # Costs
//
// Take looks at no more than eight values, Put at none. A Put over the limit looks at the
// classes that have values for each value that it drops.
package arraypool

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
)

const (
	// classes is the number of classes of rooms up to 2³¹.
	classes = 124
	// tries is how many values of a class are looked at for one that is large enough: of
	// random sizes every other value is.
	tries = 4
	// longerClasses is how far above the class that is asked for TakeLonger goes: two
	// doublings.
	longerClasses = 8
)

// Pool has values of one type. The zero Pool is empty, and costs a slice header for each
// class.
type Pool[T any] struct {
	stacks [classes][]entry[T]
	roomOf [classes]int // room of the values of each class
	room   int          // sum of roomOf
	filled [2]uint64    // a bit for each class, set if it has values
}

// entry is a value with its room, which stands beside it so that no search calls the owner.
type entry[T any] struct {
	value T
	room  int
}

// classOf is the class of values with this room.
func classOf(room int) int {
	if room < 4 {
		return room
	}
	e := bits.Len(uint(room)) - 1
	return 4*(e-1) + room>>(e-2)&3
}

// Room is the room of all values.
func (p *Pool[T]) Room() int { return p.room }

// Take takes out a value with room for at least n elements and at most so many, of the class
// of n or the next one. It returns false if none is found: it tries a few of each class.
func (p *Pool[T]) Take(n, most int) (value T, ok bool) {
	first := classOf(n)
	for class := first; class < min(first+2, classes); class++ {
		stack := p.stacks[class]
		for i := len(stack) - 1; i >= max(0, len(stack)-tries); i-- {
			if room := stack[i].room; room >= n && room <= most {
				return p.remove(class, i), true
			}
		}
	}
	return value, false
}

// TakeLonger takes out a value with room for n elements or up to about four times that, the
// shortest class first. It is for those who need the memory for a short time only: they would
// waste most of it.
func (p *Pool[T]) TakeLonger(n int) (value T, ok bool) {
	first := classOf(n) + 1 // every value of it has room for n
	for class := first; class < min(first+longerClasses-1, classes); class++ {
		if top := len(p.stacks[class]) - 1; top >= 0 {
			return p.remove(class, top), true
		}
	}
	return value, false
}

// remove takes out value i of a class. The last one fills its place: the order in a stack has
// no meaning. The place of the last one is cleared, so that nothing stays reachable from it.
func (p *Pool[T]) remove(class, i int) T {
	stack := p.stacks[class]
	top := len(stack) - 1
	taken := stack[i]
	stack[i], stack[top] = stack[top], entry[T]{}
	if p.stacks[class] = stack[:top]; top == 0 {
		p.filled[class/64] &^= 1 << (class % 64)
	}
	p.count(class, -taken.room)
	return taken.value
}

// Put adds a value that is not in use. While the values have more room than limit, it drops
// some of the class that has the most room, for the garbage collector: that is the class which
// is asked for least. So no class fills the pool, and few values are dropped.
func (p *Pool[T]) Put(value T, room, limit int) {
	class := classOf(room)
	p.stacks[class] = append(p.stacks[class], entry[T]{value, room})
	p.filled[class/64] |= 1 << (class % 64)
	p.count(class, room)
	for p.room > limit {
		most := p.largest()
		p.remove(most, len(p.stacks[most])-1)
	}
}

// largest returns the class whose values have the most room. A pool that is full asks for it
// at each Put, and few classes have values.
func (p *Pool[T]) largest() (most int) {
	for word, set := range p.filled {
		for ; set != 0; set &= set - 1 {
			if class := 64*word + bits.TrailingZeros64(set); p.roomOf[class] > p.roomOf[most] {
				most = class
			}
		}
	}
	return most
}

// count adds room to that of a class; it may be negative.
func (p *Pool[T]) count(class, room int) {
	p.roomOf[class] += room
	p.room += room
}

// All are the values with their rooms, by class.
func (p *Pool[T]) All() iter.Seq2[T, int] {
	return func(yield func(T, int) bool) {
		for _, stack := range p.stacks {
			for _, e := range stack {
				if !yield(e.value, e.room) {
					return
				}
			}
		}
	}
}

// Check verifies the invariants and returns everything that is wrong.
func (p *Pool[T]) Check() error {
	var wrong []error
	sum := 0
	for class, stack := range p.stacks {
		room := 0
		for _, e := range stack {
			if classOf(e.room) != class {
				wrong = append(wrong, fmt.Errorf("a value with room for %d is in class %d", e.room, class))
			}
			room += e.room
		}
		if set := p.filled[class/64]>>(class%64)&1 == 1; set != (len(stack) > 0) {
			wrong = append(wrong, fmt.Errorf("class %d has %d values, its bit is %t", class, len(stack), set))
		}
		if room != p.roomOf[class] {
			wrong = append(wrong, fmt.Errorf("class %d has room for %d, counted as %d", class, room, p.roomOf[class]))
		}
		sum += room
	}
	if sum != p.room {
		wrong = append(wrong, fmt.Errorf("the pool has room for %d, counted as %d", sum, p.room))
	}
	return errors.Join(wrong...)
}
