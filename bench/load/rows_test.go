package load

import (
	"encoding/binary"
	"fmt"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu"
)

// mix enters a number into a hash.
func mix(h, v uint64) uint64 {
	h ^= v + 0x9e3779b97f4a7c15 + h<<6 + h>>2
	h *= 0xff51afd7ed558ccd
	return h ^ h>>32
}

// mixText enters a string into a hash.
func mixText(h uint64, s string) uint64 {
	h = mix(h, uint64(len(s)))
	for _, b := range []byte(s) {
		h = mix(h, uint64(b))
	}
	return h
}

// place is where the keys or the values of a layer lie in the pages of a pool.
type place struct {
	layer int
	part  kvactor.Part
	kvactor.View
}

// placesOf lists the places of a pool of attention or cross attention.
func placesOf(p *kvactor.Pool) []place {
	var list []place
	for i, layer := range p.Layers {
		for _, part := range []kvactor.Part{kvactor.Keys, kvactor.Values} {
			if v, ok := p.View(i, part); ok {
				list = append(list, place{layer, part, v})
			}
		}
	}
	return list
}

// attends tells whether the token at a position attends to an earlier one in a pool.
func attends(p *kvactor.Pool, position, earlier int) bool {
	switch {
	case earlier < p.Sink:
		return true
	case p.Window > 0:
		return earlier > position-p.Window
	case p.Chunk > 0:
		return earlier/p.Chunk == position/p.Chunk
	}
	return true
}

// row is the part of one beam of one sequence in a kernel.
type row struct {
	sequence       kvactor.SequenceID
	from, kept, to int      // [from, kept) was written by an earlier kernel, [kept, to) is now
	chain          []uint64 // by position: the hash of the prefix that ends there
	tables         [][]kvactor.PageID
	slots          [][]int64 // by pool, of [from, to)
	state          int       // the tokens after which the state is written; -1: it is left
	input          []uint64  // by position of the encoder: what its row is made of
	encode         bool      // write the rows of the encoder
}

// kernel is what the host runs on the device: it reads what its tokens attend to, compares
// it, and writes the rows of the new tokens.
type kernel struct {
	w     *world
	label string
	rows  []row
	rank  int
	bytes func(gpu.Slot) []byte
	bad   bool // it has reported a problem
}

// run runs on the device, on whatever goroutine moves its time.
func (k kernel) run(rank int, bytes gpu.PageBytes) {
	k.rank, k.bytes = rank, bytes
	for i := range k.rows {
		for p := range k.w.pools {
			switch k.w.pools[p].Kind {
			case kvactor.KindAttention:
				k.attention(&k.rows[i], p)
			case kvactor.KindState:
				k.state(&k.rows[i], p)
			case kvactor.KindCross:
				k.cross(&k.rows[i], p)
			}
		}
	}
	k.w.count("kernels", 1)
}

// page returns the bytes of a page.
func (k *kernel) page(pool int, page kvactor.PageID) []byte {
	return k.bytes(gpu.Slot{Pool: k.w.handles[pool], Tier: kvactor.Primary, Page: page})
}

// at returns the page of a position by a table.
func (k *kernel) at(r *row, pool, position int) kvactor.PageID {
	block := position / k.w.pools[pool].TokensPerBlock
	if table := r.tables[pool]; block < len(table) {
		return table[block]
	}
	return kvactor.NoPage
}

func (k *kernel) attention(r *row, p int) {
	pool, compared := &k.w.pools[p], 0
	for position := range r.kept {
		if position < r.from && !attends(pool, r.from, position) {
			continue
		}
		page := k.at(r, p, position)
		if page == kvactor.NoPage {
			k.problem(r, "pool %s has no page of position %d, which position %d attends to",
				pool.Name, position, r.from)
			return
		}
		k.compare(r, p, page, position, r.chain[position])
		compared++
	}
	k.w.count("rows compared", compared)
	for position := r.kept; position < r.to; position++ {
		slot := r.slots[p][position-r.from]
		if slot < 0 {
			k.problem(r, "pool %s has no page for the new position %d", pool.Name, position)
			return
		}
		tpb := int64(pool.TokensPerBlock)
		k.write(p, kvactor.PageID(slot/tpb), position, r.chain[position])
	}
}

func (k *kernel) state(r *row, p int) {
	pool := &k.w.pools[p]
	if len(r.tables[p]) == 0 || r.tables[p][0] == kvactor.NoPage {
		k.problem(r, "pool %s has no working page", pool.Name)
		return
	}
	bytes := k.page(p, r.tables[p][0])
	for i, layer := range pool.Layers {
		part := bytes[int64(i)*pool.StateBytes:][:pool.StateBytes]
		if want := k.stateAfter(r, layer, r.from); !same(part, want) {
			k.problem(r, "pool %s, layer %d, page %d: the state after %d tokens is % x",
				pool.Name, layer, r.tables[p][0], r.from, part)
		}
		if r.state >= 0 {
			fill(part, k.stateAfter(r, layer, r.state))
		}
	}
	k.w.count("states compared", 1)
}

// stateAfter is what the state of a layer is made of: 0, which stands for zeros, at the start.
func (k *kernel) stateAfter(r *row, layer, tokens int) uint64 {
	if tokens == 0 {
		return 0
	}
	return mix(mix(r.chain[tokens-1], uint64(layer)), uint64(k.rank)<<32|1)
}

func (k *kernel) cross(r *row, p int) {
	for position, value := range r.input {
		page := k.at(r, p, position)
		switch {
		case page == kvactor.NoPage:
			k.problem(r, "pool %s has no page of encoder position %d", k.w.pools[p].Name, position)
			return
		case r.encode:
			k.write(p, page, position, value)
		default:
			k.compare(r, p, page, position, value)
		}
	}
	k.w.count("encoder rows", len(r.input))
}

// value is what the row of a head is made of.
func (k *kernel) value(at place, head int, prefix uint64) uint64 {
	layer := mix(mix(prefix, uint64(at.layer)), uint64(at.part))
	return mix(layer, uint64(k.rank)<<32|uint64(head)<<1|1)
}

// span is where the row of a head lies in a page.
func span(page []byte, at place, head, token int) []byte {
	offset := at.Offset + int64(head)*at.HeadStride + int64(token)*at.TokenStride
	return page[offset : offset+at.RowBytes]
}

func (k *kernel) compare(r *row, p int, page kvactor.PageID, position int, prefix uint64) {
	pool, bytes := &k.w.pools[p], k.page(p, page)
	for _, at := range k.w.places[p] {
		for head := range pool.KVHeads {
			got := span(bytes, at, head, position%pool.TokensPerBlock)
			if same(got, k.value(at, head, prefix)) {
				continue
			}
			k.problem(r, "pool %s, layer %d, %v of head %d, position %d, page %d has % x%s",
				pool.Name, at.layer, at.part, head, position, page, got, k.whose(at, head, got))
			return
		}
	}
}

func (k *kernel) write(p int, page kvactor.PageID, position int, prefix uint64) {
	pool, bytes := &k.w.pools[p], k.page(p, page)
	for _, at := range k.w.places[p] {
		for head := range pool.KVHeads {
			fill(span(bytes, at, head, position%pool.TokensPerBlock), k.value(at, head, prefix))
		}
	}
}

// whose says what wrong bytes are, where that is known.
func (k *kernel) whose(at place, head int, got []byte) string {
	switch got[0] {
	case 0xDD:
		return ": nothing has written them"
	case 0xDB:
		return ": a copy is under way"
	}
	for i := range k.rows {
		for position, prefix := range k.rows[i].chain {
			if same(got, k.value(at, head, prefix)) {
				return fmt.Sprintf(": position %d of sequence %v", position, k.rows[i].sequence)
			}
		}
	}
	return ""
}

// problem reports the first problem of a kernel.
func (k *kernel) problem(r *row, format string, args ...any) {
	if k.bad {
		return
	}
	k.bad = true
	k.w.problem("kernel %s, rank %d, sequence %v, [%d, %d) of %d: %s",
		k.label, k.rank, r.sequence, r.from, r.to, len(r.chain), fmt.Sprintf(format, args...))
}

// fill writes bytes that are a function of a value.
func fill(b []byte, value uint64) {
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, value)
		b, value = b[8:], next(value)
	}
	for i := range b {
		b[i] = byte(value >> (8 * i))
	}
}

// same compares bytes with what fill writes.
func same(b []byte, value uint64) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != value {
			return false
		}
		b, value = b[8:], next(value)
	}
	for i := range b {
		if b[i] != byte(value>>(8*i)) {
			return false
		}
	}
	return true
}

// next is the value of the following eight bytes; zeros stay zeros.
func next(value uint64) uint64 {
	if value == 0 {
		return 0
	}
	return mix(value, 1)
}
