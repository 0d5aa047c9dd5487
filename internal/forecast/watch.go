package forecast

import "math"

// watch follows a sample of blocks from one use to the next, whether they stay cached or not. Each bin of age that a
// block outlives teaches the model a 0, the bin of its next use a 1. A block that is dropped from the list before its
// next use is merely no longer observed: what it has outlived until then has been learned, so nothing is biased.
type watch struct {
	index table
	ring  []watched
	due   []int64 // by entry: when it may have outlived its bin, see dueOf
	next  int     // the oldest entry: the next to be replaced
	swept int     // where the sweep goes on
}

// watched is one block under watch.
type watched struct {
	signature uint64 // 0: none
	since     int64  // milliseconds
	scale     int16
	bin       uint8 // the first bin that has not been learned
	features  Features
}

func newWatch(n int) watch {
	return watch{index: newTable(n), ring: make([]watched, n), due: make([]int64, n)}
}

// patience is how many expected gaps a block is watched at least while the list is full. With shorter ones the late
// bins, which tell an overdue session from one that has ended, would never be observed under load.
const patience = 2

// Entry is a place in the list of watched blocks. It stays valid until its block is used
// again; after that Supersede ignores it.
type Entry struct {
	signature uint64
	slot      int32
	Block     int32 // index of the block in its prompt
}

// add puts a block under watch, unless the list is full of blocks that it is too early to
// drop. The entry of a block that is not watched is zero.
func (w *watch) add(signature uint64, f Features, scale int16, now int64) Entry {
	e := &w.ring[w.next]
	if e.signature != 0 {
		if age := float64(now-e.since) / 1000; age < patience*math.Exp(float64(e.scale)/fixedUnit) {
			return Entry{}
		}
		w.index.remove(e.signature)
		e.signature = 0
	}
	if at := w.index.find(signature); at >= 0 {
		w.ring[at].signature = 0
		w.index.remove(signature)
	}
	entry := Entry{signature: signature, slot: int32(w.next)}
	*e = watched{signature: signature, since: now, scale: scale, features: f}
	w.due[w.next] = e.dueOf()
	w.index.put(signature, entry.slot)
	w.next = (w.next + 1) % len(w.ring)
	return entry
}

// supersede notes that a watched block is superseded: what it outlives from now on says
// nothing about blocks that are not.
func (w *watch) supersede(e Entry) {
	if e.signature != 0 && w.ring[e.slot].signature == e.signature {
		w.ring[e.slot].features = w.ring[e.slot].features.with(featureSuperseded, 1)
	}
}

// see learns from the watched blocks among those of a request that were found.
func (w *watch) see(m *model, signatures []uint64, found []int32, arrived int64) {
	for _, i := range found {
		s := signatures[i]
		at := w.index.find(s)
		if at < 0 {
			continue
		}
		e := &w.ring[at]
		age := float64(max(0, arrived-e.since)) / 1000
		bin := binOf(age, float64(e.scale)/fixedUnit)
		w.outlive(m, e, bin)
		m.learnBin(e.features, bin, true)
		m.learnGap(e.features, math.Log(age+1))
		w.index.remove(s)
		e.signature = 0
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
func (w *watch) sweep(m *model, now int64) {
	for range min(len(w.ring)/sweepShare+1, sweepMost) {
		if w.swept++; w.swept == len(w.ring) {
			w.swept = 0
		}
		if w.due[w.swept] > now {
			continue
		}
		if e := &w.ring[w.swept]; e.signature != 0 {
			w.outlive(m, e, binOf(float64(now-e.since)/1000, float64(e.scale)/fixedUnit))
			w.due[w.swept] = e.dueOf()
		}
	}
}

// dueOf is a moment before which the block has not outlived its bin, and not much before the end of the bin.
//
// A moment that is too early only costs a look at the entry, so the exponential may come from a table; one that is too
// late would teach late.
func (e *watched) dueOf() int64 {
	if e.bin >= bins-1 {
		return math.MaxInt64
	}
	seconds := binEnd[e.bin]*float64(expScale(float32(e.scale)/fixedUnit))*0.999 - 1
	return e.since + int64(1000*seconds)
}

// outlive learns that a block was not used in the bins before one.
func (w *watch) outlive(m *model, e *watched, bin int) {
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
