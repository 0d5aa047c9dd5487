package evict

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// Check verifies the invariants of a Core and joins everything that is wrong:
//
//  1. A page that may be evicted has contents, and is counted for its tenant and in one queue.
//  2. What the queues and the policy say of themselves.
func (c *Core) Check() error {
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	waiting := map[[2]int]int{} // by tenant and level
	for p := range c.pages {
		g := &c.pages[p]
		wrong := int(g.Tenant) >= len(c.tenants) || g.Priority > messages.MaxPriority
		if wrong || g.waiting && !g.Stored {
			say("page %d of tenant %d has priority %d, is stored: %v, may be evicted: %v",
				p, g.Tenant, g.Priority, g.Stored, g.waiting)
			continue
		}
		if g.waiting {
			waiting[[2]int{int(g.Tenant), int(g.level())}]++
		}
	}
	sum := 0
	for t := range c.tenants {
		a := &c.tenants[t]
		queued := 0
		for i, l := range a.levels {
			if i > 0 && a.levels[i-1].number >= l.number {
				say("tenant %d: level %d follows level %d", t, l.number, a.levels[i-1].number)
			}
			queued += l.waiting
			at := [2]int{t, int(l.number)}
			if n := waiting[at]; l.waiting != n {
				say("tenant %d, level %d: %d pages in the order, counted %d", t, l.number, l.waiting, n)
			}
			delete(waiting, at)
			if q, ok := l.queue.(Checked); ok {
				if err := q.Check(l.waiting); err != nil {
					say("tenant %d, level %d: %w", t, l.number, err)
				}
			}
		}
		if queued != a.waiting || a.pages < a.waiting {
			say("tenant %d has %d pages, %d of them in the order, %d queued", t, a.pages, a.waiting, queued)
		}
		sum += a.waiting
	}
	if sum != c.waiting || len(waiting) > 0 {
		say("%d pages may be evicted, counted %d, and by tenant and level beyond that %v",
			c.waiting, sum, waiting)
	}
	if policy, ok := c.policy.(Inspected); ok {
		errs = append(errs, policy.Check())
	}
	return errors.Join(errs...)
}

// Check verifies pieces:
//
//  1. A piece counts the pages that belong to it, which have contents, and the pieces that hang
//     on it. It is in a queue exactly if pages of it may be evicted.
//  2. A number is used exactly if it has pages or pieces hang on it.
//  3. A checkpoint follows a shorter one, which lists it, and its piece says what it saves.
func (s *pieces) Check() error {
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	pages, children := make([]int32, len(s.all)), make([]int32, len(s.all))
	listed, unused := make([]int32, len(s.all)), make([]bool, len(s.all))
	for _, n := range s.unused {
		unused[n] = true
	}
	for p, n := range s.of {
		pages[n]++
		g := &s.core.pages[p]
		if n != noPiece && !g.Stored || n == noPiece && g.waiting && !g.Copy {
			say("page %d belongs to piece %d, is stored: %v, may be evicted: %v",
				p, n, g.Stored, g.waiting)
		}
		if g.waiting {
			listed[n]++
		}
	}
	for n := range s.all {
		children[s.all[n].parent]++
	}
	for n := 1; n < len(s.all); n++ {
		q := &s.all[n]
		counted := q.pages == pages[n] && q.children == children[n]
		if !counted || q.branches < 0 || q.branches > q.children {
			say("piece %d has %d pages, %d children and %d branches, counted %d and %d",
				n, q.pages, q.children, q.branches, pages[n], children[n])
		}
		if (listed[n] > 0) != (q.queue != nil) || (q.head != None) != (q.queue != nil) {
			say("piece %d begins with page %d, %d pages of it may be evicted, in a queue: %v",
				n, q.head, listed[n], q.queue != nil)
		}
		if used := q.pages > 0 || q.children > 0; used == unused[n] {
			say("piece %d with %d pages and %d children is not in use: %v",
				n, q.pages, q.children, unused[n])
		}
	}
	if s.model != nil {
		if err := s.model.Check(); err != nil {
			errs = append(errs, err)
		}
	}
	if s.links != nil {
		s.checkLinks(say)
	}
	return errors.Join(errs...)
}

// checkLinks verifies which checkpoints follow which.
func (s *pieces) checkLinks(say func(format string, args ...any)) {
	s.links.Check(s.core, say)
	for p, n := range s.of {
		if n == noPiece {
			continue
		}
		if f := s.all[n].features; f.Saved != s.saved(int32(p)) {
			say("checkpoint %d saves %d blocks, its piece %d says %d", p, s.saved(int32(p)), n, f.Saved)
		}
	}
}

// Draw draws what is known of the contents of a page.
func (c *Core) Draw(p int32) string {
	g := &c.pages[p]
	out := fmt.Sprintf("depth %d priority %d use %d", g.Depth, g.Priority, g.Use)
	if g.Copy {
		out = fmt.Sprintf("copy depth %d use %d", g.Depth, g.Use)
	}
	if g.Useless {
		out += " useless"
	}
	if c.quotas {
		out += fmt.Sprintf(" tenant %d", g.Tenant)
	}
	if g.waiting {
		out += c.DrawKnown(p)
	}
	return out
}

// DrawKnown draws what the policy knows of the contents of a page.
func (c *Core) DrawKnown(p int32) string {
	if policy, ok := c.policy.(Inspected); ok {
		return policy.Draw(p)
	}
	return ""
}

// Sorted lists the pages that may be evicted as LRU would evict them if there were no quotas.
func (c *Core) Sorted() (list []int32) {
	for p := range int32(len(c.pages)) {
		if c.pages[p].waiting {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b int32) int {
		x, y := c.pages[a].level(), c.pages[b].level()
		if x < y || x == y && c.Before(a, b) {
			return -1
		}
		return 1
	})
	return list
}
