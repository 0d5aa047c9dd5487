package paper

import "slices"

// Distances are the stack distances of the blocks that a trace looks up, under LRU.
//
// The distance of a block is its place in the order of last use when it is looked up: 1 for
// the block used last. LRU with room for n blocks holds exactly the blocks of distance at
// most n, whatever n is (Mattson, Gecsei, Slutz and Traiger, 1970), so that one pass gives the
// hits of every capacity. It is exact for the atomic model: requests one after the other,
// of a request the deepest block the least recent, one pool, one tier, the trace's own
// blocks. No leading run is shorter for it: the block before another was used whenever that
// one was, and more recently in the order, so its distance is less.
type Distances struct {
	// Lookups are the blocks looked up, New those of them that no request had used before.
	Lookups, New int64
	// Distinct is the number of different blocks: no distance is greater.
	Distinct int

	count []int64 // by distance; the first is unused
	hits  []int64 // by capacity: the sum of count up to it
}

// Measure finds the distances of a trace.
//
// The blocks that were last used by one request follow one another in its prompt, up to
// its end: a later request that uses one of them uses all before it. So the order of last
// use is a list of such runs, one for each request, and the distance of a block is the
// number of blocks in the runs of later requests and its place in its own. A Fenwick tree
// over requests has the former in logarithmic time, and one look serves all blocks of a
// prompt that the same request used last.
func Measure(trace Trace) *Distances {
	n := trace.blocks()
	d := &Distances{count: make([]int64, n+1)}
	lastUse := make([]int32, n) // by block: one more than the request; 0: none
	first := make([]int32, len(trace.Requests))
	live := newFenwick(len(trace.Requests))
	for i, blocks := range trace.Requests {
		d.Lookups += int64(len(blocks))
		for k := 0; k < len(blocks); {
			user := int(lastUse[blocks[k]]) - 1
			if user < 0 {
				d.New += int64(len(blocks) - k)
				d.Distinct += len(blocks) - k
				break
			}
			end := k + 1
			for end < len(blocks) && int(lastUse[blocks[end]]) == user+1 {
				end++
			}
			// The k blocks before are already taken out, and they are all of later requests.
			later := k + live.sum(i) - live.sum(user+1)
			for at := k; at < end; at++ {
				d.count[later+at-int(first[user])+1]++
			}
			live.add(user, k-end)
			first[user] = int32(end)
			k = end
		}
		for _, b := range blocks {
			lastUse[b] = int32(i + 1)
		}
		live.add(i, len(blocks))
	}
	d.hits = slices.Clone(d.count)
	for c := 1; c < len(d.hits); c++ {
		d.hits[c] += d.hits[c-1]
	}
	return d
}

// Hits is what LRU hits with room for a number of blocks.
func (d *Distances) Hits(capacity int) int64 {
	return d.hits[min(max(capacity, 0), len(d.hits)-1)]
}

// Between counts the lookups whose distance is within [from, to).
func (d *Distances) Between(from, to int) int64 { return d.Hits(to-1) - d.Hits(from-1) }

// fenwick is a list of numbers with sums of its beginnings in logarithmic time.
type fenwick []int

func newFenwick(n int) fenwick { return make(fenwick, n+1) }

// add adds to the number at index i.
func (f fenwick) add(i, delta int) {
	for i++; i < len(f); i += i & -i {
		f[i] += delta
	}
}

// sum is that of the first n numbers.
func (f fenwick) sum(n int) (s int) {
	for ; n > 0; n -= n & -n {
		s += f[n]
	}
	return s
}
