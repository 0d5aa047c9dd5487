package forecast

import "math/bits"

// watch follows a sample of blocks from one use to the next, whether they stay cached or not. Each bin of age that a
// block outlives teaches the model a 0, the bin of its next use a 1. A block that is dropped from the list before its
// next use is merely no longer observed: what it has outlived until then has been learned, so nothing is biased.
type watch struct {
	index  index
	tags   []uint32 // of the index, by entry; 0: free
	ring   []watched
	next   int32   // the oldest entry: the next to be replaced
	swept  int32   // where the sweep goes on
	filter *filter // that knows the tags
}

// watched is one block under watch, in 12 bytes.
type watched struct {
	low   uint32 // of the short features
	high  uint8  // of them
	bin   uint8  // the first bin that has not been learned
	scale int16
	since uint32 // stamp
}

// features is the features of the block.
func (e *watched) features() Features { return longFeatures(uint64(e.high)<<32 | uint64(e.low)) }

// setFeatures changes the features.
func (e *watched) setFeatures(f Features) {
	short := f.short()
	e.low, e.high = uint32(short), uint8(short>>32)
}

// newWatch watches n blocks at most.
func newWatch(n int) watch {
	w := watch{ring: make([]watched, n)}
	w.index, w.tags = newIndex(n)
	return w
}

// put makes a slot, which is free, that of a block, which has none.
func (w *watch) put(hash uint64, slot int32) {
	w.index.put(hash, slot)
	w.filter.mark(w.tags[slot])
}

// remove frees a slot.
func (w *watch) remove(slot int32) {
	w.index.remove(slot)
	w.filter.stale++
}

// patience is how many expected gaps a block is watched at least while the list is full. With shorter ones the late
// bins, which tell an overdue session from one that has ended, would never be observed under load.
const patience = 2

// Entry is a place in the list of watched blocks. It stays valid until its block is used again or gives way to another one;
// after that Supersede ignores it, unless the tag of the block that has the place then agrees with it.
//
// An Entry has 4 bytes: the slot in the upper bits; below it the upper bits of the block's tag, at least 1. 0 is the entry of no block.
type Entry uint32

// tagBits is how many bits an entry has for the tag: at least 20 up to 4,096 slots; 17 in a pool of a million pages.
func (w *watch) tagBits() int { return 32 - bits.Len(uint(len(w.ring)-1)) }

// entryOf is the entry of a block with a tag in a slot.
func (w *watch) entryOf(slot int32, tag uint32) Entry {
	n := w.tagBits()
	return Entry(uint32(slot)<<n | max(1, tag>>(32-n)))
}

// add puts a block under watch, unless the list is full of blocks that it is too early to
// drop. The entry of a block that is not watched is 0.
func (w *watch) add(signature uint64, f Features, scale int16, now uint32) Entry {
	slot := w.next
	if w.tags[slot] != 0 {
		if secondsBetween(w.ring[slot].since, now) < patience*float64(expScale(float32(w.ring[slot].scale)/fixedUnit)) {
			return 0
		}
		w.remove(slot)
	}
	hash := hashOf(signature)
	if at := w.index.find(hash); at >= 0 {
		w.remove(at)
	}
	w.put(hash, slot)
	w.ring[slot] = watched{since: now, scale: scale}
	w.ring[slot].setFeatures(f)
	w.next = (slot + 1) % int32(len(w.ring))
	return w.entryOf(slot, w.tags[slot])
}

// supersede notes that a watched block is superseded: what it outlives from now on says
// nothing about blocks that are not.
func (w *watch) supersede(e Entry) {
	slot := int32(e >> w.tagBits())
	if tag := w.tags[slot]; tag != 0 && w.entryOf(slot, tag) == e {
		w.ring[slot].setFeatures(w.ring[slot].features().with(featureSuperseded, 1))
	}
}

// superseded is the number of watched blocks that are superseded.
func (w *watch) superseded() (n int) {
	for slot, tag := range w.tags {
		if tag != 0 {
			n += w.ring[slot].features().at(featureSuperseded)
		}
	}
	return n
}

// see learns from the watched blocks among those of a request that were found.
func (w *watch) see(m *model, signatures []uint64, found []int32, arrived uint32) {
	for _, i := range found {
		at := w.index.find(hashOf(signatures[i]))
		if at < 0 {
			continue
		}
		e := &w.ring[at]
		age := logAge(secondsBetween(e.since, arrived))
		bin := binAt(age, float64(e.scale)/fixedUnit)
		e.outlive(m, bin)
		m.learnBin(e.features(), bin, true)
		m.learnGap(e.features(), age)
		w.remove(at)
	}
}

// sweepShare is the part of the list that one request sweeps: what has been outlived is learned soon, also from
// blocks that are never used again. Those that are used report themselves; without the sweep the others would teach
// only when their place is needed, and the policy would believe for minutes that everything returns.
const sweepShare = 64

// sweepMost bounds the entries that one request sweeps. A list for which it is too few has so many entries that those
// which the sweep reaches late are young against the time that the list covers.
const sweepMost = 256

// sweep learns what some of the watched blocks have outlived. For most of them there is nothing to learn yet.
func (w *watch) sweep(m *model, now uint32) {
	for range min(len(w.ring)/sweepShare+1, sweepMost) {
		if w.swept++; w.swept == int32(len(w.ring)) {
			w.swept = 0
		}
		if w.tags[w.swept] == 0 {
			continue
		}
		e := &w.ring[w.swept]
		e.outlive(m, binOf(secondsBetween(e.since, now), float64(e.scale)/fixedUnit))
	}
}

// outlive learns that a block was not used in the bins before one.
func (e *watched) outlive(m *model, bin int) {
	if int(e.bin) < bin {
		m.outlive(e.features(), int(e.bin), bin)
		e.bin = uint8(bin)
	}
}
