package model

import (
	"math"

	"github.com/kvactor/kvactor/gpu/attention"
)

// convolution is a causal convolution of each channel over its last inputs,
// followed by silu. Its state is those inputs, the newest last.
type convolution struct {
	channels, kernel int
	weight, bias     []float32 // [channel][kernel]; bias nil: none
}

// step shifts a token in and gives its outputs, in place.
func (c *convolution) step(state, x []float32) {
	k := c.kernel
	for i := range x[:c.channels] {
		window := state[i*k : (i+1)*k]
		copy(window, window[1:])
		window[k-1] = x[i]
		sum := float32(0)
		for j, v := range window {
			sum += float32(v * c.weight[i*k+j])
		}
		if c.bias != nil {
			sum += c.bias[i]
		}
		x[i] = silu(sum)
	}
}

// mamba2 is a selective state-space layer, a head at a time:
//
//	state ← state · e^(Δ·A) + Δ·x ⊗ B        y = state·C + D·x
//	Δ = softplus(dt + bias), A = −e^A_log
type mamba2 struct {
	in, out           *linear // in: gate, then the convolution's inputs x, B, C, then dt
	conv              convolution
	norms             []*norm // of the outputs of each group
	heads, dim, width int     // of a head: dim inputs, width numbers of B and C
	groups            int     // of heads that share B and C
	dtBias, a, d      []float32
	dtMin, dtMax      float32
}

func (m *mamba2) stateSize() int { return m.conv.channels*m.conv.kernel + m.heads*m.dim*m.width }

func (m *mamba2) run(e *Executor, y, x []float32, rows int) error {
	inner := m.heads * m.dim
	projected, gated := e.buffer(bufferQKV, rows*m.in.out), e.buffer(bufferGate, rows*inner)
	m.in.apply(e.workers, projected, x, rows)
	e.advance(m.stateSize(), func(state []float32, row int) {
		m.step(state, gated[row*inner:(row+1)*inner], projected[row*m.in.out:(row+1)*m.in.out])
	})
	m.out.apply(e.workers, y, gated, rows)
	return nil
}

// step advances the state by one token.
func (m *mamba2) step(state, y, in []float32) {
	inner := m.heads * m.dim
	gate, conv, dt := in[:inner], in[inner:inner+m.conv.channels], in[inner+m.conv.channels:]
	inputs := m.conv.channels * m.conv.kernel
	m.conv.step(state[:inputs], conv)
	b, c := conv[inner:inner+m.groups*m.width], conv[inner+m.groups*m.width:]
	for h := range m.heads {
		group := h / (m.heads / m.groups)
		bg, cg := b[group*m.width:(group+1)*m.width], c[group*m.width:(group+1)*m.width]
		delta := min(max(softplus(dt[h]+m.dtBias[h]), m.dtMin), m.dtMax)
		decay := attention.Exp(float32(delta * m.a[h]))
		for i := range m.dim {
			v := conv[h*m.dim+i]
			cells := state[inputs+(h*m.dim+i)*m.width:][:m.width]
			push, sum := float32(delta*v), float32(0)
			for n := range cells {
				cells[n] = float32(cells[n]*decay) + float32(push*bg[n])
				sum += float32(cells[n] * cg[n])
			}
			y[h*m.dim+i] = sum + float32(m.d[h]*v)
		}
	}
	for i, g := range gate {
		y[i] = float32(y[i] * silu(g))
	}
	n := inner / m.groups
	for g, norm := range m.norms {
		norm.apply(y[g*n:(g+1)*n], y[g*n:(g+1)*n])
	}
}

// gatedDelta is the gated delta rule of Qwen3-Next, a head at a time:
//
//	S ← S·e^g        d = (v − Sᵀk)·β        S ← S + k ⊗ d        y = Sᵀq
type gatedDelta struct {
	qkvz, ba, out      *linear
	conv               convolution
	norm               *norm
	keyHeads, heads    int // heads: of values
	keyDim, valueDim   int
	dtBias, a          []float32
	group, ratio, each int // numbers of a key head in qkvz; value heads of it; numbers of ba
}

func (m *gatedDelta) stateSize() int {
	return m.conv.channels*m.conv.kernel + m.heads*m.keyDim*m.valueDim
}

func (m *gatedDelta) run(e *Executor, y, x []float32, rows int) error {
	inner := m.heads * m.valueDim
	qkvz, ba := e.buffer(bufferQKV, rows*m.qkvz.out), e.buffer(bufferRouter, rows*m.ba.out)
	out, conv := e.buffer(bufferGate, rows*inner), e.buffer(bufferConv, m.conv.channels)
	m.qkvz.apply(e.workers, qkvz, x, rows)
	m.ba.apply(e.workers, ba, x, rows)
	e.advance(m.stateSize(), func(state []float32, row int) {
		m.step(state, out[row*inner:(row+1)*inner], conv, qkvz[row*m.qkvz.out:(row+1)*m.qkvz.out],
			ba[row*m.ba.out:(row+1)*m.ba.out])
	})
	m.out.apply(e.workers, y, out, rows)
	return nil
}

// step advances the state by one token. Projections lie by key head: q, k, and v
// and z of its value heads; b and a likewise.
func (m *gatedDelta) step(state, y, conv, qkvz, ba []float32) {
	kd, vd, inputs := m.keyDim, m.valueDim, m.conv.channels*m.conv.kernel
	keys := m.keyHeads * kd
	for g := range m.keyHeads {
		from := qkvz[g*m.group:]
		copy(conv[g*kd:], from[:kd])
		copy(conv[keys+g*kd:], from[kd:2*kd])
		copy(conv[2*keys+g*m.ratio*vd:], from[2*kd:2*kd+m.ratio*vd])
	}
	m.conv.step(state[:inputs], conv)
	for g := range m.keyHeads {
		q, k := conv[g*kd:(g+1)*kd], conv[keys+g*kd:keys+(g+1)*kd]
		unit(q, 1e-6)
		unit(k, 1e-6)
		scale := float32(1 / math.Sqrt(float64(kd)))
		for i := range q {
			q[i] = float32(q[i] * scale)
		}
	}
	for h := range m.heads {
		g, i := h/m.ratio, h%m.ratio
		b, a := ba[g*m.each+i], ba[g*m.each+m.ratio+i]
		decay := attention.Exp(float32(m.a[h] * softplus(a+m.dtBias[h])))
		q, k := conv[g*kd:(g+1)*kd], conv[keys+g*kd:keys+(g+1)*kd]
		v := conv[2*keys+h*vd : 2*keys+(h+1)*vd]
		cells := state[inputs+h*kd*vd:][:kd*vd]
		m.head(y[h*vd:(h+1)*vd], cells, q, k, v, decay, sigmoid(b))
		z := qkvz[g*m.group+2*kd+m.ratio*vd+i*vd:][:vd]
		m.norm.apply(y[h*vd:(h+1)*vd], y[h*vd:(h+1)*vd])
		for j, w := range z {
			y[h*vd+j] = float32(y[h*vd+j] * silu(w))
		}
	}
}

// head advances one head's matrix, [key][value].
func (m *gatedDelta) head(y, cells, q, k, v []float32, decay, beta float32) {
	vd := len(v)
	for j := range v {
		read := float32(0)
		for i := range k {
			c := &cells[i*vd+j]
			*c = float32(*c * decay)
			read += float32(*c * k[i])
		}
		delta := float32((v[j] - read) * beta)
		sum := float32(0)
		for i := range k {
			c := &cells[i*vd+j]
			*c += float32(k[i] * delta)
			sum += float32(*c * q[i])
		}
		y[j] = sum
	}
}
