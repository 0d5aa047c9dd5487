package pool

const (
	// frontSize is how many candidates a level keeps from one choice to the next. A set of no
	// more pieces is compared as a whole.
	frontSize = 16
	// draws is how many pieces are drawn at random for a choice. With two or six, and with 64 and
	// none that are kept, the mean share of docs/policies.md is the same but for what seeds do.
	draws = 4
)

// front is the candidates of least value that were found in the set that victims of a level are
// chosen from, with the values that they had then, the least one last. Every choice draws a
// few, and those that are kept from many choices make up for many draws. Candidates may have
// been used or evicted since.
type front struct {
	list [frontSize]candidate
	n    int
	turn int  // the next candidate whose value is computed again
	lru  bool // the values are those of plain LRU
}

// add adds a candidate, to a full list instead of the one of most value, and returns its index,
// or −1 if it is worth more than all of them. A candidate that is in the list gets
// the new value.
//
// Most pieces that are drawn are worth more, which takes one comparison.
func (f *front) add(c candidate) int {
	if f.n == frontSize && !c.before(f.list[0]) {
		return -1
	}
	for k := range f.n {
		if f.list[k].piece == c.piece {
			f.remove(k)
			break
		}
	}
	at := f.n
	if f.n == frontSize {
		at = 0
		for ; at+1 < f.n && c.before(f.list[at+1]); at++ {
			f.list[at] = f.list[at+1]
		}
	} else {
		for ; at > 0 && f.list[at-1].before(c); at-- {
			f.list[at] = f.list[at-1]
		}
		f.n++
	}
	f.list[at] = c
	return at
}

// remove removes a candidate and returns it.
func (f *front) remove(k int) candidate {
	c := f.list[k]
	f.n--
	copy(f.list[k:f.n], f.list[k+1:f.n+1])
	return c
}
