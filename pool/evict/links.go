package evict

import "slices"

// Links say which page has the block, or the checkpoint, in front of that of a page, and which
// pages have those behind it, for policies that ask for it.
type Links []Neighbours // by page

// Neighbours are the links of one page: it is in Behind of the one in Front.
type Neighbours struct {
	Front  int32 // None: there is none, or it is not known
	Behind []int32
}

// Resize changes the number of pages. Those that go have no links.
func (l *Links) Resize(pages int) {
	old := *l
	*l = make(Links, pages)
	for p := copy(*l, old); p < pages; p++ {
		(*l)[p].Front = None
	}
}

// Put puts a page, which has none in front, behind another one, or None.
func (l Links) Put(p, front int32) {
	if front != None {
		l[p].Front = front
		l[front].Behind = append(l[front].Behind, p)
	}
}

// Cut undoes Put.
func (l Links) Cut(p int32) {
	if front := l[p].Front; front != None {
		behind := &l[front].Behind
		last := len(*behind) - 1
		(*behind)[slices.Index(*behind, p)] = (*behind)[last]
		*behind = (*behind)[:last]
		l[p].Front = None
	}
}

// Move gives the links of a page to one that has none.
func (l Links) Move(from, to int32) {
	front := l[from].Front
	l.Cut(from)
	l.Put(to, front)
	for len(l[from].Behind) > 0 {
		p := l[from].Behind[0]
		l.Cut(p)
		l.Put(p, to)
	}
}

// Check verifies that links are the same from both sides, and lead to blocks that are stored,
// from lesser to greater depths.
func (l Links) Check(c *Core, say func(format string, args ...any)) {
	n := 0
	for p := range l {
		n -= len(l[p].Behind)
		front := l[p].Front
		if front == None {
			continue
		}
		n++
		if !slices.Contains(l[front].Behind, int32(p)) {
			say("page %d is not behind page %d", p, front)
		}
		a, b := &c.pages[p], &c.pages[front]
		if !a.Stored || !b.Stored || a.Depth <= b.Depth {
			say("page %d of depth %d follows page %d of depth %d", p, a.Depth, front, b.Depth)
		}
	}
	if n != 0 {
		say("%d pages are behind others, or the other way round", n)
	}
}
