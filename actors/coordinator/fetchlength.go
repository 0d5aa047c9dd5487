package coordinator

import (
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
			if f.onHost(p, b) {
				m.Blocks[p] = append(m.Blocks[p], f.inTree.Blocks[b])
			}
		}
	}
	f.wait(f, "fetch: measuring", (*fetch).measured)
	f.kernel.toOffloader(m)
}

// onHost tells whether a block of the prefix is in host memory only.
func (f *fetch) onHost(p, b int) bool {
	_, tier, ok := f.at(p, b).Page()
	return ok && tier == messages.Secondary
}

// prefixSums count, for one pool, the blocks before each block of the prefix. With them a
// length is looked at without a look at its blocks, so that a prefix that does not fit costs
// time in proportion to its length and not to the square of it.
//
// Each list has one entry more than the prefix has blocks, and entry b counts the blocks
// [0, b): the count of [i, j) is the difference of two entries.
type prefixSums struct {
	lacking []int // in no tier and not in the store
	stored  []int // in no tier, in the store
	kept    []int // in host memory, on a page that a load may not displace then
}

// sums counts the blocks of one pool.
//
// Displaceable has an entry for each block that measure has listed, in that order. The
// loop walks the same blocks by the same condition, so next names the entry of a block.
func (f *fetch) sums(p int) prefixSums {
	n := f.blocks()
	s := prefixSums{make([]int, n+1), make([]int, n+1), make([]int, n+1)}
	next := 0 // in the answer of the offloader
	for b := range n {
		s.lacking[b+1], s.stored[b+1], s.kept[b+1] = s.lacking[b], s.stored[b], s.kept[b]
		switch {
		case f.onHost(p, b):
			if f.room.Displaceable[p][next] {
				s.kept[b+1]++
			}
			next++
		case f.at(p, b) != protocol.Nowhere:
		case f.request.Stored[p][b]:
			s.stored[b+1]++
		default:
			s.lacking[b+1]++
		}
	}
	return s
}

// longest is the greatest number of blocks of which every page that a match claims is in a
// tier or in the store, and for whose missing pages host memory has room. All lengths are
// looked at, since a longer prefix may be covered where a shorter one is not: the window or
// the checkpoint of the shorter one may be missing. Of an encoder's input only the whole
// length is.
//
// A stored page counts against the room in full. Pages of the prefix in host memory that
// could be displaced count, too: they belong to this match, so the load must not take them.
// With no page to load, the room does not matter.
func (f *fetch) longest() int {
	var sums []prefixSums
	for p := f.pools.first; p < f.pools.end; p++ {
		sums = append(sums, f.sums(p))
	}
	least := 1
	if f.isInput() {
		least = f.blocks()
	}
	for length := f.blocks(); length >= least; length-- {
		fits := true
		for i, s := range sums {
			p := f.pools.first + i
			sinks, first := f.needed(p, length)
			among := func(sum []int) int { return sum[sinks] + sum[length] - sum[first] }
			stored := among(s.stored)
			if among(s.lacking) > 0 || stored > 0 && stored+among(s.kept) > f.room.Pages[p] {
				fits = false
				break
			}
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
	unread := f.plan()
	switch {
	case len(f.missing) == 0:
		// All pages are in a tier already: attach leaves a use on them.
		f.attach()
	case unread:
		f.want()
	default:
		f.wait(f, "fetch: loading", (*fetch).attach)
		f.kernel.toOffloader(f.load)
	}
}

// plan makes the load of f.length: what comes from the store, and what must not be
// displaced for it. It tells whether the bytes of any are missing.
func (f *fetch) plan() (unread bool) {
	// A new record each time: the offloader has the last one until the host has written the
	// bytes, also when an actor fails meanwhile.
	n := len(f.config.Pools)
	m := &protocol.LoadPages{
		Header: protocol.Header{Epoch: f.kernel.epoch}, Priority: f.room.Priority, Tenant: f.room.Tenant,
		Keep: make([][]protocol.BlockID, n), Bytes: make([][][]byte, n),
	}
	f.load, f.missing = m, f.missing[:0]
	for p := f.pools.first; p < f.pools.end; p++ {
		for b := range f.length {
			switch {
			case !f.needs(p, b, f.length):
			case f.onHost(p, b):
				// A load displaces pages of host memory only, so a page on the device needs no
				// protection.
				m.Keep[p] = append(m.Keep[p], f.inTree.Blocks[b])
			case f.at(p, b) == protocol.Nowhere:
				bytes := f.request.Bytes[p][b]
				m.Bytes[p] = append(m.Bytes[p], bytes)
				f.missing = append(f.missing, pageOfPrefix{p, b})
				unread = unread || bytes == nil
			}
		}
	}
	return unread
}

// want answers what is to be read, without what is in the request already: the host sends
// that again, and reads nothing twice.
func (f *fetch) want() {
	f.request.Wanted = f.grid(func(int, int) bool { return false })
	for _, at := range f.missing {
		f.request.Wanted[at.pool][at.block] = f.request.Bytes[at.pool][at.block] == nil
	}
	f.finish()
}
