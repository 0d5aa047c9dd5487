package evict

// list is pages in some order, by their links.
type list struct{ head, tail int32 }

// empty is the list of no pages.
var empty = list{None, None}

// link inserts a page in front of one of the list, or at its end: None.
func (l *list) link(pages []Page, p, next int32) {
	prev := l.tail
	if next != None {
		prev = pages[next].Prev
	}
	l.join(pages, prev, p)
	l.join(pages, p, next)
}

// unlink removes a page.
func (l *list) unlink(pages []Page, p int32) { l.join(pages, pages[p].Prev, pages[p].Next) }

// join makes two pages neighbours. None is in front of the head and behind the tail.
func (l *list) join(pages []Page, prev, next int32) {
	if prev == None {
		l.head = next
	} else {
		pages[prev].Next = next
	}
	if next == None {
		l.tail = prev
	} else {
		pages[next].Prev = prev
	}
}
