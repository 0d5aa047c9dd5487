// Package failpoint makes an actor panic on request, as a bug in it would.
//
// Each actor has a Point and calls its methods where it may fail. A Set knows the
// points of one engine by the names of their actors; it is how a test arms them.
// A point that is not armed costs one atomic load.
package failpoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Point is where one actor fails. The zero Point is not armed. Set.Arm may run on
// any goroutine; the other methods belong to the actor.
type Point struct {
	// state is off, next, or inside plus the parts of a change that are still to
	// be done before the panic.
	state atomic.Int64
}

const (
	off    = 0
	next   = 1
	inside = 2
)

// Take tells whether the actor is to panic at its next message, and disarms the point then.
func (p *Point) Take() bool { return p.state.Load() == next && p.state.CompareAndSwap(next, off) }

// Hit panics if the actor is to panic at its next message, and disarms the point.
func (p *Point) Hit(actor string) {
	if p.Take() {
		Panic(actor)
	}
}

// Change makes a change. If it is to break off, it panics instead: before the change with an
// even number of parts, behind it with an odd one. What is left half done would look no
// different to a recovery, which uses neither.
func (p *Point) Change(actor string, change func()) {
	parts, breaks := p.Within()
	if !breaks || parts%2 == 1 {
		change()
	}
	if breaks {
		Panic(actor)
	}
}

// Within tells whether a change that begins now is to break off, and after how
// many of its parts; it disarms the point.
func (p *Point) Within() (parts int, breaks bool) {
	n := p.state.Load()
	return int(n - inside), n >= inside && p.state.CompareAndSwap(n, off)
}

// Step counts one part of a change, and panics when there have been enough.
func (p *Point) Step(actor string) {
	switch n := p.state.Load(); {
	case n < inside:
	case n > inside:
		p.state.CompareAndSwap(n, n-1)
	case p.state.CompareAndSwap(inside, off):
		Panic(actor)
	}
}

// Disarm ends what is armed: the actor stops.
func (p *Point) Disarm() { p.state.Store(off) }

// Panic panics as an armed point does.
func Panic(actor string) { panic(fmt.Sprintf("%s: panic on request", actor)) }

// Set knows the failpoints of one engine by the names of their actors. The zero
// Set is empty; the engine that it is given to fills it. All methods may be called
// by any number of goroutines, and on a nil Set, which stays empty.
type Set struct {
	mu     sync.Mutex
	points map[string]*Point
}

// Add tells the set of an actor's point.
func (s *Set) Add(actor string, p *Point) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.points == nil {
		s.points = map[string]*Point{}
	}
	s.points[actor] = p
}

// Arm makes an actor panic at its next message.
func (s *Set) Arm(actor string) error { return s.set(actor, next) }

// ArmWithin makes an actor panic in its next change, when so many parts of it are done:
// messages for the coordinator, submissions for the offloader. For the others see Change. A
// change of the coordinator that has fewer parts is done as usual.
func (s *Set) ArmWithin(actor string, parts int) error {
	return s.set(actor, int64(max(0, parts))+inside)
}

func (s *Set) set(actor string, state int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.points[actor]
	if !ok {
		names := slices.Sorted(maps.Keys(s.points))
		return refusals.New(messages.ErrBadRequest, "no actor %q: there are %s", actor,
			strings.Join(names, ", "))
	}
	p.state.Store(state)
	return nil
}
