package attention

import (
	"errors"
	"fmt"
)

// Input is the projected rows of a step. Row i has its query at Q[i·QStride:],
// its key at K[i·KVStride:], its value at V[i·KVStride:]. Without K the step
// writes nothing: cross attention reads what Store has written.
type Input struct {
	Q, K, V []float32
	// Strides are in numbers, not bytes.
	QStride, KVStride int
}

// Packed is the input of fused rows: Q of all heads, K of all KV heads, V.
func Packed(qkv []float32, l *Layer) Input {
	q, kv := l.Heads*l.HeadDim, l.KVHeads*l.HeadDim
	return Input{Q: qkv, K: qkv[q:], V: qkv[q+kv:], QStride: q + 2*kv, KVStride: q + 2*kv}
}

// Kernel computes attention. One goroutine at a time uses it; it divides the
// work among its workers. What it needs beside its arguments is allocated in the
// first steps and used again.
type Kernel struct {
	workers *Workers
	scratch []scratch // by worker

	// The step that runs.
	// The workers read these while a phase runs; only Forward writes them, between phases.
	phase phase
	layer *Layer
	plan  *Plan
	cache Cache
	in    Input
	out   []float32
}

// phase is a part of a step that all workers do together.
//
// A row may see keys that another tile of the step writes, so all are written before any
// is read: the phases do not overlap.
type phase uint8

const (
	preparing phase = iota // bias, RoPE, K and V into the cache
	attending
)

// scratch is the memory of one worker.
type scratch struct {
	rows   []float32 // decoded keys or values
	scores []float32 // [row of the tile][head of the group][key]
	key    []float32 // one turned key
	// spans are what the rows of the tile see.
	spans  [tileRows]span
	totals []float32 // by row and head: 1 / denominator
}

// readRows is how many rows of a cache are read at a time: as many as fit into
// the first-level cache with heads of 128 numbers, and more than a block has.
const readRows = 32

// NewKernel makes a kernel that uses the workers.
func NewKernel(w *Workers) *Kernel {
	return &Kernel{workers: w, scratch: make([]scratch, w.Count())}
}

var errNoPlan = errors.New("attention: a plan without sequences")

// Forward computes one layer of a step: it adds the bias to Q, K and V and turns
// Q and K, in place, writes K and V to the cache, then attends. out gets
// [row][head][dim]; rows of padding are neither read nor written.
// It allocates nothing once the scratch memory has grown. The cost is linear in query heads
// × keys seen × HeadDim, summed over the new tokens.
func (k *Kernel) Forward(l *Layer, p *Plan, c Cache, in Input, out []float32) error {
	if err := k.check(l, p, in, out); err != nil {
		return err
	}
	k.layer, k.plan, k.cache, k.in, k.out = l, p, c, in, out
	k.grow()
	k.phase = preparing
	k.workers.Run(k, len(p.tiles))
	k.phase = attending
	// KV heads are independent of each other, and query heads of a group share what is read.
	k.workers.Run(k, len(p.tiles)*l.KVHeads)
	return nil
}

// check refuses tensors that are too short.
// A slice that is too short would otherwise panic on a worker, far from its cause.
func (k *Kernel) check(l *Layer, p *Plan, in Input, out []float32) error {
	if err := l.Validate(); err != nil {
		return fmt.Errorf("attention: %w", err)
	}
	if len(p.streams) == 0 {
		return errNoPlan
	}
	// Rows lie in the order of streams, so the last stream ends the tensors. The last row need
	// not have a whole stride behind it.
	last := p.streams[len(p.streams)-1]
	rows := last.row + last.n
	q, kv := l.Heads*l.HeadDim, l.KVHeads*l.HeadDim
	if len(in.Q) < (rows-1)*in.QStride+q || len(out) < rows*l.Heads*l.outDim() {
		return fmt.Errorf("attention: %d numbers of Q and %d of the output for %d rows", len(in.Q),
			len(out), rows)
	}
	if in.K != nil && len(in.K) < (rows-1)*in.KVStride+kv ||
		in.V != nil && len(in.V) < (rows-1)*in.KVStride+kv {
		return fmt.Errorf("attention: %d numbers of K and %d of V for %d rows", len(in.K), len(in.V),
			rows)
	}
	return nil
}

// grow makes room for the step.
func (k *Kernel) grow() {
	l := k.layer
	// Query heads of one KV head, for each row of a tile.
	pairs := tileRows * (l.Heads / l.KVHeads)
	for i := range k.scratch {
		s := &k.scratch[i]
		s.rows = room(s.rows, readRows*l.HeadDim)
		s.scores = room(s.scores, pairs*k.plan.maxKeys)
		s.key = room(s.key, l.HeadDim)
		s.totals = room(s.totals, pairs)
	}
}

// room gives n numbers, of the same memory if it is large enough. A context grows
// by a token each step: half as much again saves allocating at every one.
func room(x []float32, n int) []float32 {
	if cap(x) < n {
		return make([]float32, n+n/2)[:n]
	}
	return x[:n]
}

// Do does a part of the phase; it is for the workers.
func (k *Kernel) Do(worker, part int) {
	if k.phase == preparing {
		k.prepare(k.plan.tiles[part])
		return
	}
	heads := k.layer.KVHeads
	k.attend(&k.scratch[worker], k.plan.tiles[part/heads], part%heads)
}

// prepare brings the rows of a tile to what attention reads.
// Tiles have rows of their own, so no row is changed by two workers.
func (k *Kernel) prepare(t tile) {
	l, in, st := k.layer, &k.in, &k.plan.streams[t.stream]
	q, kv := l.Heads*l.HeadDim, l.KVHeads*l.HeadDim
	for i := t.first; i < t.first+t.n; i++ {
		row, position := st.row+i, st.cached+i
		query := in.Q[row*in.QStride:][:q]
		var bias []float32
		if bias = l.QKVBias; bias != nil {
			addTo(query, bias[:q])
		}
		// With CachePositions the query is the last of the keys that it sees.
		turned := position
		if l.CachePositions {
			turned = l.sees(st, position).count() - 1
		}
		l.turn(query, turned)
		if in.K == nil {
			continue
		}
		key := in.K[row*in.KVStride:][:kv]
		if bias != nil {
			addTo(key, bias[q:q+kv])
		}
		// Keys of the cache are turned once, when they are written, not each time they are read.
		if !l.CachePositions {
			l.turn(key, position)
		}
		// Also where the tokens are read in this step: a cache of few bits rounds them, see the
		// package comment.
		k.store(t.stream, Keys, position, key)
		if in.V == nil {
			continue
		}
		value := in.V[row*in.KVStride:][:kv]
		if bias != nil {
			addTo(value, bias[q+kv:])
		}
		k.store(t.stream, Values, position, value)
	}
}

// store writes all heads of a row.
func (k *Kernel) store(stream int, part Part, position int, row []float32) {
	d := k.layer.HeadDim
	for g := range k.layer.KVHeads {
		k.cache.Write(stream, part, g, position, row[g*d:(g+1)*d])
	}
}

// turn rotates all heads of a row.
func (l *Layer) turn(x []float32, position int) {
	if l.RoPE == nil {
		return
	}
	for d := 0; d < len(x); d += l.HeadDim {
		l.RoPE.Rotate(x[d:d+l.HeadDim], position)
	}
}

// addTo adds a bias to a row, in float32.
func addTo(x, y []float32) {
	for i := range x {
		x[i] += y[i]
	}
}

// Store writes n rows of keys and values of one stream from position on, as they
// are: the encoder's, for cross attention.
// They are turned by no RoPE: an encoder has its own.
func Store(c Cache, l *Layer, stream, position, n int, in Input) {
	d := l.HeadDim
	for i := range n {
		for g := range l.KVHeads {
			c.Write(stream, Keys, g, position+i, in.K[i*in.KVStride+g*d:][:d])
			if in.V != nil {
				c.Write(stream, Values, g, position+i, in.V[i*in.KVStride+g*d:][:d])
			}
		}
	}
}
