package forecast

import "math"

// watch follows a sample of blocks from one use to the next, whether they stay cached or not.
// Each bin of age that a block outlives teaches the model a 0, the bin of its next use a 1. A
// block that is dropped from the list before its next use is merely no longer observed: what it
// has outlived until then has been learned, so nothing is biased.
type watch struct {
	index map[uint64]int32 // by signature: its place in the ring
	ring  []watched
	next  int32 // the oldest entry: the next to be replaced
	swept int32 // where the sweep goes on
}

// watched is one block under watch.
type watched struct {
	signature uint64 // 0: the entry is free
	features  Features
	scale     float64 // ln of the expected gap in seconds, when the watch began
	since     int64   // milliseconds
	bin       int     // the first one that has not been learned
}

// newWatch watches n blocks at most.
func newWatch(n int) watch {
	return watch{index: make(map[uint64]int32, n), ring: make([]watched, n)}
}

// remove frees a place.
func (w *watch) remove(at int32) {
	delete(w.index, w.ring[at].signature)
	w.ring[at] = watched{}
}

// patience is how many expected gaps a block is watched at least while the list is full. With
// shorter ones the late bins, which tell an overdue session from one that has ended, would
// never be observed under load.
const patience = 2

// add puts a block under watch, unless the list is full of blocks that it is too early to drop.
// It tells whether it has.
func (w *watch) add(signature uint64, f Features, scale float64, now int64) bool {
	at := w.next
	if e := &w.ring[at]; e.signature != 0 {
		if secondsBetween(e.since, now) < patience*math.Exp(e.scale) {
			return false
		}
		w.remove(at)
	}
	if old, ok := w.index[signature]; ok {
		w.remove(old)
	}
	w.index[signature] = at
	w.ring[at] = watched{signature: signature, features: f, scale: scale, since: now}
	w.next = (at + 1) % int32(len(w.ring))
	return true
}

// supersede notes that a watched block is superseded: what it outlives from now on says
// nothing about blocks that are not.
func (w *watch) supersede(signature uint64) {
	if at, ok := w.index[signature]; ok {
		w.ring[at].features.Values[featureSuperseded] = 1
	}
}

// see learns from the watched blocks among those of a request.
func (w *watch) see(m *model, signatures []uint64, arrived int64) {
	for _, s := range signatures {
		at, ok := w.index[s]
		if !ok {
			continue
		}
		e := &w.ring[at]
		age := logAge(secondsBetween(e.since, arrived))
		bin := binAt(age, e.scale)
		e.outlive(m, bin)
		m.learnBin(&e.features, bin, true)
		m.learnGap(&e.features, age)
		w.remove(at)
	}
}

// sweepShare is the part of the list that one request sweeps: what has been outlived is learned
// soon, also from blocks that are never used again. Those that are used report themselves;
// without the sweep the others would teach only when their place is needed, and the policy
// would believe for minutes that everything returns.
const sweepShare = 64

// sweepMost bounds the entries that one request sweeps. A list for which it is too few has so
// many entries that those which the sweep reaches late are young against the time that the list
// covers.
const sweepMost = 256

// sweep learns what some of the watched blocks have outlived. For most of them there is nothing
// to learn yet.
func (w *watch) sweep(m *model, now int64) {
	for range min(len(w.ring)/sweepShare+1, sweepMost) {
		if w.swept++; w.swept == int32(len(w.ring)) {
			w.swept = 0
		}
		if e := &w.ring[w.swept]; e.signature != 0 {
			e.outlive(m, binAt(logAge(secondsBetween(e.since, now)), e.scale))
		}
	}
}

// outlive learns that a block was not used in the bins before one.
func (e *watched) outlive(m *model, bin int) {
	for ; e.bin < bin; e.bin++ {
		m.learnBin(&e.features, e.bin, false)
	}
}
