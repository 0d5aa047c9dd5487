package evict

import "slices"

// links say which page has the block, or the checkpoint, in front of that of a page, and which
// pages have those behind it.
type links []neighbours // by page

// neighbours are the links of one page: it is in behind of the one in front.
type neighbours struct {
	front  int32 // None: there is none, or it is not known
	behind []int32
}

// resize changes the number of pages. Those that go have no links.
func (l *links) resize(pages int) {
	old := *l
	*l = make(links, pages)
	for p := copy(*l, old); p < pages; p++ {
		(*l)[p].front = None
	}
}

// put puts a page, which has none in front, behind another one, or None.
func (l links) put(p, front int32) {
	if front != None {
		l[p].front = front
		l[front].behind = append(l[front].behind, p)
	}
}

// cut undoes put.
func (l links) cut(p int32) {
	if front := l[p].front; front != None {
		behind := &l[front].behind
		last := len(*behind) - 1
		(*behind)[slices.Index(*behind, p)] = (*behind)[last]
		*behind = (*behind)[:last]
		l[p].front = None
	}
}

// move gives the links of a page to one that has none.
func (l links) move(from, to int32) {
	front := l[from].front
	l.cut(from)
	l.put(to, front)
	for len(l[from].behind) > 0 {
		p := l[from].behind[0]
		l.cut(p)
		l.put(p, to)
	}
}

// check verifies that links are the same from both sides, and lead to blocks that are stored,
// from lesser to greater depths.
func (l links) check(c *Core, say func(format string, args ...any)) {
	n := 0
	for p := range l {
		n -= len(l[p].behind)
		front := l[p].front
		if front == None {
			continue
		}
		n++
		if !slices.Contains(l[front].behind, int32(p)) {
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
