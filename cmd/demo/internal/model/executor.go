package model

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Sequence is one sequence of a step: contexts come before generations. The
// executor fills Logits.
type Sequence struct {
	Tokens []messages.Token // new
	Cached int              // tokens before them, whose K and V are in the pages
	Prompt int              // tokens of the prompt
	// Pages are the bytes of the pages by pool and block, nil without a page; the
	// cross pool comes last. Of a state pool, page State has the state after Cached tokens.
	// Those after each of Tokens are written to the pages behind it, if there are any, and
	// the one after the last token, if there is no page for it, to page 0.
	Pages [][][]byte
	State int
	// Encoder is the encoder's input. From EncodeFrom on its keys and values are
	// written in this step; at its length or beyond the encoder does not run.
	Encoder    []messages.Token
	EncodeFrom int
	LogitsFrom int // first of Tokens whose logits are wanted

	Logits [][]float32 // of Tokens[LogitsFrom:]
}

// Executor runs steps of a model over pages. One goroutine at a time uses it.
type Executor struct {
	// Trace, for tests, gets the input of each layer and, last, the output of the
	// final norm.
	Trace func(layer int, rows []float32)
	// TraceKV, for tests and calibration, gets what a layer is about to cache.
	TraceKV func(layer int, part attention.Part, rows []float32)

	model   *Model
	workers *attention.Workers
	kernel  *attention.Kernel
	buffers [bufferCount][]float32

	tokensPerBlock int
	places         []place // by cache layer
	statePlaces    []place // by block, of recurrent ones
	crossPlace     place
	scales         [][2]float32 // by cache layer
	crossScales    [][2]float32
	pools          []attention.Layout

	// The step that runs.
	step      []*Sequence
	plan      attention.Plan
	crossPlan attention.Plan
	encoding  *attention.Plan   // of the encoder while it runs; else nil
	caches    []attention.Paged // by pool
	layer     int               // cache layer
	block     int
}

// place says where a cache layer lies.
type place struct{ pool, index int }

// bufferName names a piece of memory of the executor. Two buffers with one name are
// never needed at a time.
type bufferName uint8

const (
	bufferX bufferName = iota
	bufferNormed
	bufferMixed
	bufferSecond
	bufferQKV
	bufferAttended
	bufferMLP
	bufferExpert
	bufferRouter
	bufferGate
	bufferLatent
	bufferLogits
	bufferConv
	bufferState
	bufferCount
)

// NewExecutor makes an executor for pages of these pools, the cross pool last.
func NewExecutor(m *Model, pools []windows.Pool, workers *attention.Workers) (*Executor, error) {
	e := &Executor{model: m, workers: workers, kernel: attention.NewKernel(workers),
		tokensPerBlock: pools[0].TokensPerBlock}
	e.places = make([]place, len(m.caches))
	e.statePlaces = make([]place, len(m.blocks))
	e.scales = make([][2]float32, len(m.caches))
	e.crossScales = make([][2]float32, len(m.caches))
	own := pools
	if m.cross.heads > 0 {
		own, e.crossPlace.pool = pools[:len(pools)-1], len(pools)-1
	}
	if err := e.locateLayers(own); err != nil {
		return nil, err
	}
	for _, pool := range pools {
		var l attention.Layout // of a state pool: none
		if pool.Kind != windows.KindState {
			var err error
			if l, err = attention.NewLayout(pool); err != nil {
				return nil, err
			}
		}
		e.pools = append(e.pools, l)
	}
	e.caches = make([]attention.Paged, len(pools))
	for i := range pools {
		e.caches[i].Layout = e.pools[i]
	}
	return e, nil
}

// locateLayers notes where in the pools each layer lies.
func (e *Executor) locateLayers(pools []windows.Pool) error {
	m, found, states := e.model, 0, 0
	number := make(map[int]int, len(m.caches)) // of the cache of a block
	for i, c := range m.caches {
		number[c.layer] = i
	}
	for p, pool := range pools {
		for i, layer := range pool.Layers {
			n, cached := number[layer]
			switch {
			case layer >= len(m.blocks):
				return fmt.Errorf("pool %s has layer %d, the model has %d", pool.Name, layer, len(m.blocks))
			case pool.Kind == windows.KindState:
				e.statePlaces[layer] = place{p, i}
				states++
			case !cached:
				return fmt.Errorf("pool %s has layer %d, which has no keys and values", pool.Name, layer)
			default:
				e.places[n] = place{p, i}
				found++
			}
		}
	}
	if stated := len(m.blocks) - len(m.caches); found != len(m.caches) || states != stated {
		return fmt.Errorf("pools have %d layers and %d states, the model has %d and %d", found, states,
			len(m.caches), stated)
	}
	return nil
}

// SetScales sets what K and V of a layer are divided by in 8 bits.
func (e *Executor) SetScales(layer int, cross bool, k, v float32) {
	if cross {
		e.crossScales[layer] = [2]float32{k, v}
		return
	}
	for i, c := range e.model.caches {
		if c.layer == layer {
			e.scales[i] = [2]float32{k, v}
		}
	}
}

// buffer gives n numbers, whatever they hold.
func (e *Executor) buffer(name bufferName, n int) []float32 {
	if cap(e.buffers[name]) < n {
		e.buffers[name] = make([]float32, n+n/4)
	}
	return e.buffers[name][:n]
}

// each runs a function for each row, in parallel if there are several.
func (e *Executor) each(rows int, f func(row int)) {
	if rows == 1 {
		f(0)
		return
	}
	e.workers.Run(rowTask(f), rows)
}

type rowTask func(int)

// Do does one row.
func (f rowTask) Do(_, row int) { f(row) }

// Run computes a step: keys and values of all new tokens are written to the
// pages, logits are filled in.
func (e *Executor) Run(step []*Sequence) error {
	if err := e.prepare(step); err != nil {
		return err
	}
	m, rows := e.model, e.plan.Rows()
	if err := e.encode(); err != nil {
		return err
	}
	x := e.buffer(bufferX, rows*m.Hidden)
	e.embedTokens(x)
	e.layer = 0
	for i := range m.blocks {
		if e.Trace != nil {
			e.Trace(i, x)
		}
		e.block = i
		if err := m.blocks[i].run(e, x, rows); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	if m.finalNorm != nil {
		m.finalNorm.rows(x, x)
	}
	if e.Trace != nil {
		e.Trace(len(m.blocks), x)
	}
	e.logits(x)
	return nil
}

// prepare makes the plans and resolves caches.
func (e *Executor) prepare(step []*Sequence) error {
	e.step = step
	own := attention.Metadata{TokensPerBlock: e.tokensPerBlock}
	var cross attention.Metadata
	for p := range e.caches {
		e.caches[p].Blocks = e.caches[p].Blocks[:0]
	}
	for i, s := range step {
		if s.Cached < s.Prompt {
			own.NumContexts = i + 1
		}
		q := attention.Sequence{Prompt: s.Prompt, Cached: s.Cached, New: len(s.Tokens)}
		own.Sequences = append(own.Sequences, q)
		q.Keys = len(s.Encoder)
		cross.Sequences = append(cross.Sequences, q)
		for p := range e.caches {
			e.caches[p].Blocks = append(e.caches[p].Blocks, s.Pages[p])
		}
	}
	cross.NumContexts = own.NumContexts
	if err := e.plan.Prepare(own); err != nil {
		return err
	}
	if e.model.cross.heads == 0 {
		return nil
	}
	return e.crossPlan.Prepare(cross)
}

// cache is the cache of the layer that runs.
func (e *Executor) cache() *attention.Paged {
	at := e.places[e.layer]
	c := &e.caches[at.pool]
	c.Layer, c.Scales = at.index, e.scales[e.layer]
	return c
}

// attended are the plan and the cache of self attention. What the encoder attends to is kept for
// one layer.
func (e *Executor) attended(l *attention.Layer, rows int) (*attention.Plan, attention.Cache) {
	if e.encoding != nil {
		return e.encoding, attention.NewContiguous(1, l.KVHeads, rows, l.HeadDim, windows.Float32)
	}
	return &e.plan, e.cache()
}

// crossCache is the cross attention's cache of the layer that runs.
func (e *Executor) crossCache(layer int) *attention.Paged {
	c := &e.caches[e.crossPlace.pool]
	c.Layer, c.Scales = layer, e.crossScales[layer]
	return c
}

// embedTokens looks the rows of the tokens up.
func (e *Executor) embedTokens(x []float32) {
	m, row := e.model, 0
	for _, s := range e.step {
		for i, t := range s.Tokens {
			m.embedRow(x[row*m.Hidden:(row+1)*m.Hidden], t, s.Cached+i)
			row++
		}
	}
	if m.embedNorm != nil {
		m.embedNorm.rows(x, x)
	}
}

func (m *Model) embedRow(x []float32, t messages.Token, position int) {
	m.embed.Row(x, int(t))
	if m.embedScale != 0 {
		for i := range x {
			x[i] = float32(x[i] * m.embedScale)
		}
	}
	if m.positions != nil {
		addTo(x, m.positions[(position+m.offset)*m.Hidden:][:m.Hidden])
	}
}

func addTo(x, y []float32) {
	for i := range x {
		x[i] += y[i]
	}
}

// logits computes those that are wanted, of all sequences in one product.
func (e *Executor) logits(x []float32) {
	m, row := e.model, 0
	wanted := e.buffer(bufferNormed, len(x))[:0]
	for _, s := range e.step {
		wanted = append(wanted, x[(row+s.LogitsFrom)*m.Hidden:(row+len(s.Tokens))*m.Hidden]...)
		row += len(s.Tokens)
	}
	n := len(wanted) / m.Hidden
	out := make([]float32, n*m.Vocab)
	m.head.apply(e.workers, out, wanted, n)
	if m.logitCap > 0 {
		for i, v := range out {
			out[i] = float32(m.logitCap * attention.Tanh(v/m.logitCap))
		}
	}
	for _, s := range e.step {
		s.Logits = s.Logits[:0]
		for range len(s.Tokens) - s.LogitsFrom {
			s.Logits = append(s.Logits, out[:m.Vocab:m.Vocab])
			out = out[m.Vocab:]
		}
	}
}
