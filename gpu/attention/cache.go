package attention

import (
	"fmt"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Part tells keys from values.
type Part uint8

// The parts of a cache.
const (
	Keys Part = iota
	Values
)

// Cache holds the keys and values of one layer. A stream is what a Plan numbers:
// a sequence, or one beam of it. Different rows may be read and written by
// several goroutines at a time.
type Cache interface {
	// Write stores the row of one token of one head.
	Write(stream int, part Part, head, position int, row []float32)
	// Read gives the rows of n tokens from position on, 1 ≤ n ≤ limit, one behind
	// the other. They are in scratch, which has room for limit rows, or in the
	// cache itself, and must not be changed.
	Read(scratch []float32, stream int, part Part, head, position, limit int) (rows []float32, n int)
}

// Layout says where in a page each row lies: [layer][K, V][head][token][dim].
type Layout struct {
	Layers         int // of the pool
	KVHeads        int
	TokensPerBlock int
	HeadDim        int
	// KVFactor is 2 if a token has a key and a value, and 1 if it has one row for
	// both, as in latent attention; 0 stands for 2.
	KVFactor int
	DType    windows.DType
}

// NewLayout is the layout of the pages of a pool. It refuses what the kernel does
// not read: values of another size than keys, tokens before heads, types that are
// not one number an element, side bytes.
func NewLayout(p windows.Pool) (Layout, error) {
	l := Layout{Layers: len(p.Layers), KVHeads: p.KVHeads, TokensPerBlock: p.TokensPerBlock,
		HeadDim: p.HeadDim, KVFactor: p.KVFactor, DType: p.DType}
	switch {
	case p.Layout == windows.NHD, p.SideBytes != 0, p.ValueDim != 0 && p.ValueDim != p.HeadDim,
		p.DType.Bytes() == 0:
		return l, fmt.Errorf("attention: pages of pool %s are not keys and values by head", p.Name)
	case int64(l.PageBytes()) != p.PageBytes():
		return l, fmt.Errorf("attention: pages of pool %s have %d bytes, not %d", p.Name, p.PageBytes(),
			l.PageBytes())
	}
	return l, nil
}

// RowBytes is the size of one key or value.
func (l Layout) RowBytes() int { return l.HeadDim * l.DType.Bytes() }

// factor is the number of rows that a token has for each head.
func (l Layout) factor() int {
	if l.KVFactor == 0 {
		return 2
	}
	return l.KVFactor
}

// PageBytes is the size of a page.
func (l Layout) PageBytes() int {
	return l.Layers * l.factor() * l.KVHeads * l.TokensPerBlock * l.RowBytes()
}

// at is the offset of the row of a token of the block. With one row for both
// parts it is the same for keys and values.
func (l Layout) at(layer int, part Part, head, token int) int {
	run := (layer*l.factor()+int(part)%l.factor())*l.KVHeads + head
	return (run*l.TokensPerBlock + token) * l.RowBytes()
}

// Paged is the engine's cache: block b of a stream is a page of a pool. Reading
// or writing a block without a page panics: it has left the window, and who asks
// for it is wrong.
type Paged struct {
	Layout Layout
	Layer  int // index of the layer in the pool
	// Blocks are the bytes of the pages by stream and block, nil without a page.
	Blocks [][][]byte
	// Scales of an 8-bit pool, by Part; 0 means 1.
	Scales [2]float32
}

// element says how keys or values are stored, with the pool's scale.
func (p *Paged) element(part Part) Element {
	return Element{Type: p.Layout.DType, Scale: p.Scales[part]}
}

// page is the page of a block.
func (p *Paged) page(stream, block int) []byte {
	if blocks := p.Blocks[stream]; block < len(blocks) && blocks[block] != nil {
		return blocks[block]
	}
	panic(fmt.Sprintf("attention: stream %d has no page for block %d of %d tokens", stream, block,
		p.Layout.TokensPerBlock))
}

// Write stores one row.
func (p *Paged) Write(stream int, part Part, head, position int, row []float32) {
	tpb := p.Layout.TokensPerBlock
	page := p.page(stream, position/tpb)
	p.element(part).Encode(page[p.Layout.at(p.Layer, part, head, position%tpb):], row)
}

// Read gives the rows up to the end of the block.
func (p *Paged) Read(
	scratch []float32, stream int, part Part, head, position, limit int,
) ([]float32, int) {
	tpb := p.Layout.TokensPerBlock
	n := min(limit, tpb-position%tpb)
	page := p.page(stream, position/tpb)
	return p.element(part).read(scratch, page[p.Layout.at(p.Layer, part, head, position%tpb):],
		n*p.Layout.HeadDim), n
}

// Resolve looks up the pages of a table: blocks[i] becomes the bytes of page
// table[i], nil for NoPage. blocks is used again if it has room.
func Resolve(
	blocks [][]byte, table []messages.PageID, bytes func(messages.PageID) []byte,
) [][]byte {
	blocks = blocks[:0]
	for _, page := range table {
		if page == messages.NoPage {
			blocks = append(blocks, nil)
			continue
		}
		blocks = append(blocks, bytes(page))
	}
	return blocks
}
