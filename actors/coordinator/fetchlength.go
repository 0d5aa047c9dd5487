package coordinator

import (
	"math"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// needed says which blocks a match of so many blocks claims in a pool: those before sinks
// and those from first on. It is the rule of the match itself: all blocks with full
// attention, with a window those that the position behind the prefix attends to, and the
// checkpoint at the end for states. Any other page would take room in host memory, and no
// match of this length would claim it.
func (f *fetch) needed(p, length int) (sinks, first int) {
	pool := &f.config.Pools[p]
	position := length * f.config.TokensPerBlock
	switch {
	case pool.Kind == windows.KindState && pool.Checkpoints:
		return 0, max(0, length-1)
	case pool.Kind == windows.KindState:
		return 0, length
	}
	sinks = min(pool.SinkBlocks(), length)
	// A position that begins a chunk of attention needs nothing before it.
	if pool.Reach().First(position) >= position {
		return sinks, length
	}
	return sinks, max(sinks, pool.FirstNeeded(position))
}

// needs tells whether a match of so many blocks claims the page of one of them.
func (f *fetch) needs(p, b, length int) bool {
	sinks, first := f.needed(p, length)
	return b < sinks || b >= first && b < length
}

// measure asks the offloader for how much there is room. The priority is the default: so
// nothing is displaced that a host has marked as worth more, for no request has asked for
// these contents yet.
func (f *fetch) measure() {
	m := &f.room
	m.Epoch, m.Priority = f.kernel.epoch, messages.DefaultPriority
	m.Tenant = f.config.Tenants[f.request.Prefix.Namespace.Salt]
	m.Blocks = make([][]protocol.BlockID, len(f.config.Pools))
	for p := f.pools.first; p < f.pools.end; p++ {
		for b := range f.inTree.Blocks {
			if f.at(p, b).InHost() {
				m.Blocks[p] = append(m.Blocks[p], f.inTree.Blocks[b])
			}
		}
	}
	f.wait(f, "fetch: measuring", (*fetch).measured)
	f.kernel.toOffloader(m)
}

// costs counts, for one pool, the host pages that a load needs for the blocks before each block
// of the prefix: the cost of [i, j) is the difference of two entries. So a length is looked at
// without a look at its blocks, and a prefix that does not fit takes time in proportion to its
// length and not to the square of it.
//
// Displaceable has an entry for each block that measure has listed, in that order. The
// loop walks the same blocks by the same condition, so next names the entry of a block.
func (f *fetch) costs(p int) []int {
	sums, next := make([]int, f.blocks()+1), 0
	for b := range f.blocks() {
		cost := 0
		switch {
		case f.at(p, b).InHost():
			if f.room.Displaceable[p][next] {
				cost = 1
			}
			next++
		case f.at(p, b) != protocol.Nowhere:
		case f.request.Stored[p][b]:
			cost = 1
		default:
			cost = math.MaxInt32 // no room is enough
		}
		sums[b+1] = sums[b] + cost
	}
	return sums
}

// longest is the greatest number of blocks of which every page that a match claims is in a
// tier or in the store, and for whose missing pages host memory has room. All lengths are
// looked at, since a longer prefix may be covered where a shorter one is not: the window or
// the checkpoint of the shorter one may be missing. Of an encoder's input only the whole
// length is.
//
// A stored page counts against the room in full. Pages of the prefix in host memory that
// could be displaced count, too: they belong to this match, so the load must not take them.
// These alone are no more than there is room for.
func (f *fetch) longest() int {
	var costs [][]int
	for p := f.pools.first; p < f.pools.end; p++ {
		costs = append(costs, f.costs(p))
	}
	least := 1
	if f.isInput() {
		least = f.blocks()
	}
	for length := f.blocks(); length >= least; length-- {
		fits := true
		for i, sums := range costs {
			p := f.pools.first + i
			sinks, first := f.needed(p, length)
			cost := sums[sinks] + sums[length] - sums[first]
			fits = fits && cost <= max(0, f.room.Pages[p])
		}
		if fits {
			return length
		}
	}
	return 0
}

// measured goes on with the longest length: with its pages if all are there, else with what
// is to be read. A load takes all of its pages or none, so nothing is displaced before the
// host has read what is missing.
//
// With Count the caller wants the number only (a lookup), and the request ends before
// anything has changed.
func (f *fetch) measured() {
	f.length = f.longest()
	f.request.Length = f.length
	if f.length == 0 || f.request.Count {
		f.finish()
		return
	}
	f.plan()
	pages := slices.Concat(f.load.Bytes...)
	switch {
	case len(pages) == 0:
		// All pages are in a tier already: attach leaves a use on them.
		f.attach()
	case slices.ContainsFunc(pages, func(bytes []byte) bool { return bytes == nil }):
		// Not what is in the request already: the host sends that again, and reads nothing twice.
		f.request.Wanted = f.grid(func(p, b int) bool {
			return f.loads(p, b) && f.request.Bytes[p][b] == nil
		})
		f.finish()
	default:
		f.wait(f, "fetch: loading", (*fetch).attach)
		f.kernel.toOffloader(f.load)
	}
}

// loads tells whether the page of a block comes from the store: a match claims it, and no tier has
// it.
func (f *fetch) loads(p, b int) bool {
	return f.needs(p, b, f.length) && f.at(p, b) == protocol.Nowhere
}

// plan makes the load of f.length: what comes from the store, and what must not be
// displaced for it.
func (f *fetch) plan() {
	// A new record each time: the offloader has the last one until the host has written the
	// bytes, also when an actor fails meanwhile.
	n := len(f.config.Pools)
	m := &protocol.LoadPages{
		Header: protocol.Header{Epoch: f.kernel.epoch}, Priority: f.room.Priority, Tenant: f.room.Tenant,
		Keep: make([][]protocol.BlockID, n), Bytes: make([][][]byte, n),
	}
	f.load = m
	for p := f.pools.first; p < f.pools.end; p++ {
		for b := range f.length {
			switch {
			case f.loads(p, b):
				m.Bytes[p] = append(m.Bytes[p], f.request.Bytes[p][b])
			case f.needs(p, b, f.length) && f.at(p, b).InHost():
				// A load displaces pages of host memory only, so a page on the device needs no
				// protection.
				m.Keep[p] = append(m.Keep[p], f.inTree.Blocks[b])
			}
		}
	}
}
