package pool

const (
	// frontSize is how many candidates a level keeps from one choice to the next. With 24 the mean share of docs/policies.md is
	// 0.1 points lower.
	frontSize = 32
	// A choice adds to the comparisons that are due: one for each evicted page up to fewPages, or one for every sweepTokens evicted tokens up
	// to mostSwept, whichever is more. To find a better victim costs nanoseconds, to compute its tokens again milliseconds, so long blocks are
	// worth more comparisons. With two for each choice the mean share is 25.0, with four 25.2, with this rule 25.4, with the least value of all
	// leaves 25.6 %.
	fewPages    = 4
	sweepTokens = 128
	mostSwept   = 64
	// sweptCheckpoints is how many comparisons are due after a checkpoint was evicted. With one instead of 16, 1 % fewer blocks are saved
	// on the traces.
	sweptCheckpoints = 16
	// wholeSet is up to how many pieces each choice compares all.
	wholeSet = 4
	// If a front has fewer than leastFront candidates, or surveyLimit comparisons are due since no request has ended, the choice itself makes
	// some, frontSize at most.
	leastFront = 8
	// freshShare is the part of its age for which the value of a candidate counts as that of this moment. A bin of the hazard is
	// half of an age wide, so the value has barely changed by then. The mean share is 0.1 points lower than with values of each moment.
	freshShare = 1.0 / 16
	// surveyLimit is up to which length a survey compares all pieces of a set, and about as many of a longer one. With 256
	// the shares are the same but for what seeds do.
	surveyLimit = 1024
)

// front is the candidates of least value that were found in the set that victims of a level are
// chosen from, with the values that they had then, the least one last. Candidates may have
// been used or evicted since.
type front struct {
	list  [frontSize]candidate
	n     int
	sweep int  // index in the set of the next piece that is compared
	due   int  // pieces that are to be compared
	lru   bool // the values are those of plain LRU
}

// add adds a candidate, to a full list instead of the one of most value, unless it is worth more than
// all of them. A candidate that is in the list gets the new value.
//
// Most pieces that are compared are worth more, which takes one comparison.
func (f *front) add(c candidate) {
	if f.n == frontSize && !c.before(f.list[0]) {
		return
	}
	for k := range f.list[:f.n] {
		if f.list[k].piece == c.piece {
			f.put(k, c)
			return
		}
	}
	f.insert(c)
}

// insert is add for a candidate that is not in the list.
func (f *front) insert(c candidate) {
	switch {
	case f.n < frontSize:
		f.n++
		f.put(f.n-1, c)
	case c.before(f.list[0]):
		f.put(0, c)
	}
}

// remove removes the candidate of a piece, if there is one.
//
// Pieces that change are often those that were chosen, the least one.
func (f *front) remove(piece int32) {
	for k := f.n - 1; k >= 0; k-- {
		if f.list[k].piece == piece {
			copy(f.list[k:], f.list[k+1:f.n])
			f.n--
			return
		}
	}
}

// drop removes the candidate of a piece that has been chosen, if it is the least one. Otherwise update removes it when its turn comes.
func (f *front) drop(piece int32) {
	if f != nil && f.n > 0 && f.list[f.n-1].piece == piece {
		f.n--
	}
}

// replace gives a piece another value, whether it is a candidate or not.
func (f *front) replace(c candidate) {
	if f != nil {
		f.remove(c.piece)
		f.insert(c)
	}
}

// swept is how many comparisons are due for evicted pages.
func swept(pages, tokensPerBlock int) int {
	return max(min(pages, fewPages), min(pages*tokensPerBlock/sweepTokens, mostSwept))
}

// compare compares the next n pieces of a set with those that are kept.
func (f *front) compare(s *pieces, set []int32, n int) {
	for range min(n, len(set)) {
		if f.sweep >= len(set) {
			f.sweep = 0
		}
		f.add(s.candidate(set[f.sweep]))
		f.sweep++
	}
	f.due = max(0, f.due-n)
}

// update gives the least candidate its value of this moment, and removes it if it is no longer in the set.
// It tells whether the candidate has kept its place.
func (f *front) update(s *pieces, set []int32) bool {
	k := f.n - 1
	c := &f.list[k]
	spot := s.all[c.piece].spot
	// Another set has something else at this index.
	if int(spot) >= len(set) || set[spot] != c.piece {
		f.n--
		return false
	}
	if s.uses[c.piece].time != c.last || !c.fresh(s.now()) {
		return f.put(k, s.candidate(c.piece)) == k
	}
	return true
}

// put replaces candidate k, and returns the index of the new one.
func (f *front) put(k int, c candidate) int {
	for k+1 < f.n && c.before(f.list[k+1]) {
		f.list[k] = f.list[k+1]
		k++
	}
	for k > 0 && f.list[k-1].before(c) {
		f.list[k] = f.list[k-1]
		k--
	}
	f.list[k] = c
	return k
}
