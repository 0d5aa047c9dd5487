package model

import "github.com/kvactor/kvactor/gpu/attention"

// selfAttention is attention over the pages of the layer.
type selfAttention struct {
	layer  attention.Layer
	qkv    *linear // rows Q of all heads, K of all KV heads, V
	out    *linear
	qNorm  *norm   // of each head; nil: none
	kNorm  *norm   // likewise
	gate   *linear // of the output, by sigmoid; nil: none
	number int     // cache layer
}

func (a *selfAttention) run(e *Executor, y, x []float32, rows int) error {
	l := &a.layer
	e.layer = a.number
	qkv := e.buffer(bufferQKV, rows*a.qkv.out)
	a.qkv.apply(e.workers, qkv, x, rows)
	a.normHeads(qkv, rows)
	e.traceKV(l, qkv, rows)
	width := l.Heads * l.HeadDim
	o := e.buffer(bufferAttended, rows*width)
	plan, cache := e.attended(l, rows)
	if err := e.kernel.Forward(l, plan, cache, attention.Packed(qkv, l), o); err != nil {
		return err
	}
	if a.gate != nil {
		g := e.buffer(bufferGate, rows*width)
		a.gate.apply(e.workers, g, x, rows)
		for i, v := range g {
			o[i] = float32(o[i] * sigmoid(v))
		}
	}
	a.out.apply(e.workers, y, o, rows)
	return nil
}

// normHeads scales each head of Q and K.
func (a *selfAttention) normHeads(qkv []float32, rows int) {
	if a.qNorm == nil {
		return
	}
	l := &a.layer
	q, k := l.Heads*l.HeadDim, l.KVHeads*l.HeadDim
	for r := range rows {
		row := qkv[r*a.qkv.out:]
		a.qNorm.rows(row[:q], row[:q])
		a.kNorm.rows(row[q:q+k], row[q:q+k])
	}
}

// traceKV shows K, before it turns, and V to whoever asked. Turning changes no
// length of a pair, so the largest number of a key changes by at most √2.
func (e *Executor) traceKV(l *attention.Layer, qkv []float32, rows int) {
	if e.TraceKV == nil || e.encoding != nil {
		return
	}
	q, kv := l.Heads*l.HeadDim, l.KVHeads*l.HeadDim
	for r := range rows {
		row := qkv[r*(q+2*kv):]
		e.TraceKV(e.layer, attention.Keys, row[q:q+kv])
		e.TraceKV(e.layer, attention.Values, row[q+kv:q+2*kv])
	}
}

// crossAttention is attention over the encoder's keys and values.
type crossAttention struct {
	layer  attention.Layer
	q, out *linear
	kv     *linear // of the encoder's output: K of all heads, V
	number int     // cache layer
}

func (a *crossAttention) run(e *Executor, y, x []float32, rows int) error {
	width := a.q.out
	q, o := e.buffer(bufferQKV, rows*width), e.buffer(bufferAttended, rows*width)
	a.q.apply(e.workers, q, x, rows)
	in := attention.Input{Q: q, QStride: width}
	if err := e.kernel.Forward(&a.layer, &e.crossPlan, e.crossCache(a.number), in, o); err != nil {
		return err
	}
	a.out.apply(e.workers, y, o, rows)
	return nil
}

// latentAttention is MLA in its absorbed form: the cache has the normed latent
// and the turned key that all heads share. A query is taken into the latent's
// space by W_UK, and what attention gives is taken to values by W_UV.
type latentAttention struct {
	layer    attention.Layer // heads on one KV head of rank + rope numbers
	qDown    *linear         // nil: q is one matrix
	qNorm    *norm
	q        *linear
	down     *linear // the latent and the shared key
	norm     *norm   // of the latent
	wUK, wUV []float32
	out      *linear
	rope     *attention.RoPE
	pairs    bool // RoPE's pairs are neighbours
	nope     int
	value    int
	number   int
}

func (a *latentAttention) run(e *Executor, y, x []float32, rows int) error {
	l := &a.layer
	e.layer = a.number
	rank, rope := l.ValueDim, l.HeadDim-l.ValueDim
	q := a.queries(e, x, rows)
	keys := e.buffer(bufferLatent, rows*l.HeadDim)
	a.down.apply(e.workers, keys, x, rows)
	absorbed := e.buffer(bufferQKV, rows*l.Heads*l.HeadDim)
	for i, row := 0, 0; i < e.plan.Streams(); i++ {
		s := e.step[i]
		for t := range s.Tokens {
			position := s.Cached + t
			key := keys[row*l.HeadDim : (row+1)*l.HeadDim]
			a.norm.apply(key[:rank], key[:rank])
			a.turn(key[rank:], position)
			if e.TraceKV != nil {
				e.TraceKV(e.layer, attention.Keys, key)
			}
			for h := range l.Heads {
				from := q[(row*l.Heads+h)*(a.nope+rope):][:a.nope+rope]
				to := absorbed[(row*l.Heads+h)*l.HeadDim:][:l.HeadDim]
				a.turn(from[a.nope:], position)
				clear(to[:rank])
				for n, v := range from[:a.nope] {
					for r, w := range a.wUK[(h*a.nope+n)*rank:][:rank] {
						to[r] += float32(v * w)
					}
				}
				copy(to[rank:], from[a.nope:])
			}
			row++
		}
	}
	o := e.buffer(bufferAttended, rows*l.Heads*rank)
	in := attention.Input{Q: absorbed, K: keys, QStride: l.Heads * l.HeadDim, KVStride: l.HeadDim}
	if err := e.kernel.Forward(l, &e.plan, e.cache(), in, o); err != nil {
		return err
	}
	values := e.buffer(bufferGate, rows*l.Heads*a.value)
	e.each(rows*l.Heads, func(i int) {
		for v := range a.value {
			values[i*a.value+v] = attention.Dot(a.wUV[((i%l.Heads)*a.value+v)*rank:][:rank],
				o[i*rank:(i+1)*rank])
		}
	})
	a.out.apply(e.workers, y, values, rows)
	return nil
}

func (a *latentAttention) queries(e *Executor, x []float32, rows int) []float32 {
	if a.qDown != nil {
		d := e.buffer(bufferMLP, rows*a.qDown.out)
		a.qDown.apply(e.workers, d, x, rows)
		a.qNorm.rows(d, d)
		x = d
	}
	q := e.buffer(bufferSecond, rows*a.q.out)
	a.q.apply(e.workers, q, x, rows)
	return q
}

// turn rotates a shared key or its part of a query. Neighbouring pairs are first
// put into halves, as the models' own code does: scores do not tell, caches do.
func (a *latentAttention) turn(x []float32, position int) {
	if a.pairs {
		var room [512]float32
		n := len(x) / 2
		for i := range n {
			room[i], room[n+i] = x[2*i], x[2*i+1]
		}
		copy(x, room[:2*n])
	}
	a.rope.Rotate(x, position)
}
