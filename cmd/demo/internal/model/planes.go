package model

import "github.com/kvactor/kvactor/cmd/demo/internal/model/weights"

// Plain Go multiplies by looking up. For each eight inputs of a row a table has
// the sums of all 256 choices of them. A byte of a bit plane, bit b of eight
// weights, is such a choice: its entry is the sum of the inputs whose weight has
// the bit. Four planes make the nibbles of eight weights: four additions for eight
// products. A table takes 256 additions and serves all outputs.

// packPlanes takes the numbers apart into bits.
func (q *quantized) packPlanes(g *weights.Groups) {
	groups, nibbles := q.in/group, q.bits/4
	q.planes = make([][4]uint32, nibbles*groups*q.out)
	q.scales = make([]float32, groups*q.out)
	if g.Minima != nil {
		q.minima = make([]float32, groups*q.out)
	}
	for o := range q.out {
		for k := range groups {
			from, to := o*groups+k, k*q.out+o
			q.scales[to] = g.Scales[from]
			if g.Minima != nil {
				q.minima[to] = g.Minima[from]
			}
			for n := range nibbles {
				shift := 4 * (nibbles - 1 - n)
				words := &q.planes[n*groups*q.out+to]
				for i, x := range g.Numbers[from*group:][:group] {
					for b := range words {
						words[b] |= uint32(x>>(shift+b)&1) << i
					}
				}
			}
		}
	}
}

// sumTable has the sums of all choices of eight inputs, for the four eights of a
// group. Sums are less than 2²⁷.
type sumTable [group / 8][256]int32

// pairTable is a sumTable for two rows: an entry is the sum of the first row plus
// 2³² times that of the second, so that one addition serves both.
type pairTable [group / 8][256]int64

// fill makes the sums: those with an input are those without it, plus the input.
func (t *sumTable) fill(x *[group]int32) {
	for e := range t {
		sums := &t[e]
		sums[0] = 0
		for b, v := range x[8*e : 8*e+8] {
			without, with := sums[:1<<b], sums[1<<b:2<<b]
			for i, s := range without {
				with[i] = s + v
			}
		}
	}
}

func (t *pairTable) fill(x, y *[group]int32) {
	for e := range t {
		sums := &t[e]
		sums[0] = 0
		for b := range 8 {
			v := int64(x[8*e+b]) + int64(y[8*e+b])<<32
			without, with := sums[:1<<b], sums[1<<b:2<<b]
			for i, s := range without {
				with[i] = s + v
			}
		}
	}
}

// planeTile computes a tile, two rows at a time. Groups come first: their tables
// stay in the first-level cache for all outputs.
func (p *quantizedProduct) planeTile(t tile) {
	for r := t.row; r < t.endRow; r++ {
		clear(p.output(r, t.first, t.end))
	}
	var one sumTable
	var two pairTable
	for g := range p.x.groups {
		r := t.row
		for ; r+2 <= t.endRow; r += 2 {
			two.fill(p.x.at(r, g), p.x.at(r+1, g))
			p.pairOutputs(&two, r, g, t)
		}
		if r < t.endRow {
			one.fill(p.x.at(r, g))
			p.rowOutputs(&one, r, g, t)
		}
	}
}

// sumBlock is how many outputs have their sums in memory at a time: together with
// a table they fit into the first-level cache.
const sumBlock = 256

// rowOutputs adds a group to the outputs of a row.
func (p *quantizedProduct) rowOutputs(t *sumTable, row, g int, of tile) {
	var room [sumBlock]int64
	for first := of.first; first < of.end; first += sumBlock {
		end := min(first+sumBlock, of.end)
		sums := room[:end-first]
		clear(sums)
		for n := range p.q.bits / 4 {
			t.addTo(sums, p.q.words(n, g, first, end))
		}
		p.finish(sums, row, g, first)
	}
}

// pairOutputs adds a group to the outputs of two rows.
func (p *quantizedProduct) pairOutputs(t *pairTable, row, g int, of tile) {
	var room [2][sumBlock]int64
	for first := of.first; first < of.end; first += sumBlock {
		end := min(first+sumBlock, of.end)
		a, b := room[0][:end-first], room[1][:end-first]
		clear(a)
		clear(b)
		for n := range p.q.bits / 4 {
			t.addTo(a, b, p.q.words(n, g, first, end))
		}
		p.finish(a, row, g, first)
		p.finish(b, row+1, g, first)
	}
}

// words are the planes of a nibble, a group and some outputs.
func (q *quantized) words(nibble, g, first, end int) [][4]uint32 {
	return q.planes[(nibble*(q.in/group)+g)*q.out:][first:end]
}

// addTo makes room for a nibble in the sums and adds it.
func (t *sumTable) addTo(sums []int64, words [][4]uint32) {
	words = words[:len(sums)]
	for o := range sums {
		w := &words[o]
		p0 := t[0][uint8(w[0])] + t[1][uint8(w[0]>>8)] + t[2][uint8(w[0]>>16)] + t[3][w[0]>>24]
		p1 := t[0][uint8(w[1])] + t[1][uint8(w[1]>>8)] + t[2][uint8(w[1]>>16)] + t[3][w[1]>>24]
		p2 := t[0][uint8(w[2])] + t[1][uint8(w[2]>>8)] + t[2][uint8(w[2]>>16)] + t[3][w[2]>>24]
		p3 := t[0][uint8(w[3])] + t[1][uint8(w[3]>>8)] + t[2][uint8(w[3]>>16)] + t[3][w[3]>>24]
		sums[o] = 16*sums[o] + int64(p0+2*p1) + 4*int64(p2+2*p3)
	}
}

// addTo is that of sumTable for two rows. Two planes are added while they are
// packed: the sum of a row then is less than 2³¹.
func (t *pairTable) addTo(a, b []int64, words [][4]uint32) {
	b, words = b[:len(a)], words[:len(a)]
	for o := range a {
		w := &words[o]
		p0 := t[0][uint8(w[0])] + t[1][uint8(w[0]>>8)] + t[2][uint8(w[0]>>16)] + t[3][w[0]>>24]
		p1 := t[0][uint8(w[1])] + t[1][uint8(w[1]>>8)] + t[2][uint8(w[1]>>16)] + t[3][w[1]>>24]
		p2 := t[0][uint8(w[2])] + t[1][uint8(w[2]>>8)] + t[2][uint8(w[2]>>16)] + t[3][w[2]>>24]
		p3 := t[0][uint8(w[3])] + t[1][uint8(w[3]>>8)] + t[2][uint8(w[3]>>16)] + t[3][w[3]>>24]
		p0 += 2 * p1
		p2 += 2 * p3
		x0, x2 := int64(int32(p0)), int64(int32(p2))
		a[o] = 16*a[o] + x0 + 4*x2
		b[o] = 16*b[o] + (p0-x0)>>32 + 4*((p2-x2)>>32)
	}
}

// finish turns the sums of a group into numbers and adds them to the outputs.
func (p *quantizedProduct) finish(sums []int64, row, g, first int) {
	q, end := p.q, first+len(sums)
	at := row*p.x.groups + g
	scale, x, offset := p.x.scales[at], p.x.sums[at], int64(q.offset)*int64(p.x.totals[at])
	y, scales := p.output(row, first, end), q.scales[g*q.out:][first:end]
	y, scales = y[:len(sums)], scales[:len(sums)]
	if q.minima == nil {
		for o, s := range sums {
			y[o] += float32(float32(scale*scales[o]) * float32(s-offset))
		}
		return
	}
	minima := q.minima[g*q.out:][first:end][:len(sums)]
	for o, s := range sums {
		v := y[o] + float32(float32(scale*scales[o])*float32(s-offset))
		y[o] = v + float32(minima[o]*x)
	}
}
