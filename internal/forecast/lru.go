package forecast

import (
	"math"
	"slices"
)

// lru is the list of the sampled blocks that LRU would have cached, with references of 16 bits or of 32.
type lru interface {
	hits(g *guard, signatures []uint64, of leading, drawn []int32) (lead float64)
	use(g *guard, signatures []uint64, drawn []int32)
	check(g *guard) []error
	bytes() int
}

// leading is how many signatures of a request are those of its prompt, and of what the policy had cached.
//
// The request itself is not passed to an lru, or each would be allocated.
type leading struct{ prompt, cached int }

// lruList is an lru. Its calls are those for a whole request: one for each block would take some percent of a request.
type lruList[T reference] struct {
	index   table[T]
	list    []neighbours[T] // by entry
	weight  []uint16        // by entry of the table: blocks that it stands for
	weights int             // of all entries of the table
	head    T               // used least recently
	tail    T
	free    T // the first of the free entries
}

// neighbours are the entries before and behind one in a list, −1: none.
type neighbours[T reference] struct{ prev, next T }

// newLRU makes a list with room for n blocks.
func newLRU(n int) lru {
	if n <= narrowMost {
		return newLRUList[int16](n)
	}
	return newLRUList[int32](n)
}

func newLRUList[T reference](n int) *lruList[T] {
	l := &lruList[T]{index: newTable[T](n), list: make([]neighbours[T], n), weight: make([]uint16, n), head: -1, tail: -1}
	for i := range l.list {
		l.list[i].next = T(i) + 1
	}
	l.list[n-1].next = -1
	return l
}

// hits counts what the policy and LRU hit of the sampled blocks of a request, and returns LRU's lead. Blocks that are listed are moving
// from then on, and drawn has the complements of their entries.
func (l *lruList[T]) hits(g *guard, signatures []uint64, of leading, drawn []int32) (lead float64) {
	// Only leading blocks count, as in the cache: LRU hits a sampled block if it has all those in front of it.
	whole := true
	for k, i := range drawn {
		at := l.index.find(hashOf(signatures[i]))
		if at >= 0 && l.list[at].prev == moving {
			at = -1 // the request has the block twice
		}
		if int(i) < of.prompt {
			// Where all that have signatures are sampled, they stand for different numbers of blocks.
			n := max(1, float64(g.size(i))/float64(g.every))
			g.lookups += n
			if int(i) < of.cached {
				lead -= n
			}
			whole = whole && at >= 0
			if whole {
				lead += n
			}
		}
		if at >= 0 {
			l.unlink(T(at))
			l.list[at].prev, drawn[k] = moving, ^at
		}
	}
	return lead
}

// moving is what an entry has in front of it while it is in the table, but not in the list: its block is used now.
const moving = -2

// use makes the sampled blocks of a request the latest used, and takes out what LRU would evict for them. Drawn has their indexes, or
// the complements of their entries if they have any, which then are moving.
//
// The deepest block goes first among those of one request, so it is used first.
func (l *lruList[T]) use(g *guard, signatures []uint64, drawn []int32) {
	end := signedBlocks(g.span, len(signatures))
	for k, i := range slices.Backward(drawn) {
		if i < 0 {
			l.append(T(^i))
			end = 0
			continue
		}
		at := g.span.Block(int(i))
		begin := at + 1 - max(g.every, g.size(i))
		if k > 0 && drawn[k-1] >= 0 {
			begin = (at+g.span.Block(int(drawn[k-1])))/2 + 1
		}
		if h := hashOf(signatures[i]); l.index.find(h) < 0 {
			l.push(h, uint16(min(max(end, at+1)-begin, math.MaxUint16)))
			end = begin
		}
	}
	for l.exceeded(g) {
		l.evict()
	}
}

// exceeded tells whether the list would weigh nearer to the capacity without its least recently used entry.
func (l *lruList[T]) exceeded(g *guard) bool {
	return l.head >= 0 && l.weights-g.blocks.signedOf(g.capacity) > int(l.weight[l.head])/2
}

// push adds a block as the latest used. If no entry is free, the least recently used one becomes so.
//
// If all entries are moving, they are appended behind the block, which would be lost to the last of them.
func (l *lruList[T]) push(hash uint64, weight uint16) {
	if l.free < 0 {
		if l.head < 0 {
			return
		}
		l.evict()
	}
	at := l.free
	l.free = l.list[at].next
	l.weight[at] = weight
	l.weights += int(weight)
	l.append(at)
	l.index.put(hash, int32(at))
}

// evict frees the least recently used entry.
func (l *lruList[T]) evict() {
	at := l.head
	l.index.remove(int32(at))
	l.unlink(at)
	l.weights -= int(l.weight[at])
	l.list[at].next, l.free = l.free, at
}

// append makes an entry, which is not in the list, the latest used.
func (l *lruList[T]) append(at T) {
	l.list[at] = neighbours[T]{l.tail, -1}
	if l.tail >= 0 {
		l.list[l.tail].next = at
	} else {
		l.head = at
	}
	l.tail = at
}

// unlink takes an entry out of the list; its place and its block are the caller's to free.
func (l *lruList[T]) unlink(at T) {
	e := &l.list[at]
	if e.prev >= 0 {
		l.list[e.prev].next = e.next
	} else {
		l.head = e.next
	}
	if e.next >= 0 {
		l.list[e.next].prev = e.prev
	} else {
		l.tail = e.prev
	}
}
