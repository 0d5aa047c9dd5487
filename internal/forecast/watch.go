package forecast

import "math"

// watch follows a sample of blocks from one use to the next, whether they stay cached or not. Each bin of age that a
// block outlives teaches the model a 0, the bin of its next use a 1. A block that is dropped from the list before its
// next use is merely no longer observed: what it has outlived until then has been learned, so nothing is biased.
type watch struct {
	index table
	ring  []watched
	due   []uint32 // by entry: a stamp, when the block may have outlived its bin, see dueOf
	next  int32    // the oldest entry: the next to be replaced
	swept int32    // where the sweep goes on
}

// watched is one block under watch.
type watched struct {
	features Features
	since    uint32 // stamp
	scale    int16
	bin      uint8 // the first bin that has not been learned
}

// newWatch watches n blocks at most.
func newWatch(n int) watch {
	return watch{index: newTable(n), ring: make([]watched, n), due: make([]uint32, n)}
}

// patience is how many expected gaps a block is watched at least while the list is full. With shorter ones the late
// bins, which tell an overdue session from one that has ended, would never be observed under load.
const patience = 2

// Entry is a place in the list of watched blocks. It stays valid until its block is used
// again; after that Supersede ignores it.
//
// It has 8 bytes, since there is one for each piece: of the tag and the block it has as much as that leaves.
type Entry struct {
	slot  int32
	tag   uint16 // the upper half of the block's tag, but at least 1; 0: none
	Block uint16 // index of the block in its prompt, or lastBlock
}

// lastBlock is the index of all blocks from there on.
const lastBlock = 1<<16 - 1

// entryTag is the tag of an entry for that of a block.
func entryTag(tag uint32) uint16 { return uint16(max(1, tag>>16)) }

// add puts a block under watch, unless the list is full of blocks that it is too early to
// drop. The entry of a block that is not watched is zero.
func (w *watch) add(signature uint64, f Features, scale int16, now uint32) Entry {
	slot := w.next
	if w.index.tags[slot] != 0 {
		if secondsBetween(w.ring[slot].since, now) < patience*float64(expScale(float32(w.ring[slot].scale)/fixedUnit)) {
			return Entry{}
		}
		w.index.remove(slot)
	}
	hash := hashOf(signature)
	if at := w.index.find(hash); at >= 0 {
		w.index.remove(at)
	}
	w.index.put(hash, slot)
	w.ring[slot] = watched{features: f, since: now, scale: scale}
	w.due[slot] = w.dueOf(slot)
	w.next = (slot + 1) % int32(len(w.ring))
	return Entry{slot: slot, tag: entryTag(w.index.tags[slot])}
}

// supersede notes that a watched block is superseded: what it outlives from now on says
// nothing about blocks that are not.
func (w *watch) supersede(e Entry) {
	if tag := w.index.tags[e.slot]; e.tag != 0 && tag != 0 && entryTag(tag) == e.tag {
		w.ring[e.slot].features = w.ring[e.slot].features.with(featureSuperseded, 1)
	}
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
		m.learnBin(e.features, bin, true)
		m.learnGap(e.features, age)
		w.index.remove(at)
	}
}

// sweepShare is the part of the list that one request sweeps: what has been outlived is learned soon, also from
// blocks that are never used again. Those that are used report themselves; without the sweep the others would teach
// only when their place is needed, and the policy would believe for minutes that everything returns.
const sweepShare = 64

// sweepMost bounds the entries that one request sweeps. A list for which it is too few has so many entries that those
// which the sweep reaches late are young against the time that the list covers.
const sweepMost = 256

// sweep learns what some of the watched blocks have outlived. For most of them there is nothing to learn yet, and then
// one number is read.
func (w *watch) sweep(m *model, now uint32) {
	for range min(len(w.due)/sweepShare+1, sweepMost) {
		if w.swept++; w.swept == int32(len(w.due)) {
			w.swept = 0
		}
		at := w.swept
		if int32(now-w.due[at]) < 0 || w.index.tags[at] == 0 {
			continue
		}
		e := &w.ring[at]
		e.outlive(m, binOf(secondsBetween(e.since, now), float64(e.scale)/fixedUnit))
		w.due[at] = w.dueOf(at)
	}
}

// dueOf is a moment before which the block in a slot has not outlived its bin, and not much before the end of the bin.
//
// A moment that is too early only costs a look at the block, so the exponential may come from a table; one that is too
// late would teach late.
func (w *watch) dueOf(at int32) uint32 {
	e := &w.ring[at]
	seconds := float64(farthest)
	if e.bin < bins-1 {
		seconds = max(0, binEnd[e.bin]*float64(expScale(float32(e.scale)/fixedUnit))*0.999-1)
	}
	return e.since + uint32(min(seconds, farthest)*stampsEach)
}

// outlive learns that a block was not used in the bins before one.
func (e *watched) outlive(m *model, bin int) {
	if int(e.bin) < bin {
		m.outlive(e.features, int(e.bin), bin)
		e.bin = uint8(bin)
	}
}

// binEnd is the end of each bin in units of e^scale seconds.
var binEnd = func() (t [bins]float64) {
	for k := range t {
		t[k] = math.Exp(edge(k + 1))
	}
	return t
}()
