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
	DType          windows.DType
}

// NewLayout is the layout of the pages of a pool.
func NewLayout(p windows.Pool) Layout {
	return Layout{Layers: len(p.Layers), KVHeads: p.KVHeads, TokensPerBlock: p.TokensPerBlock, HeadDim: p.HeadDim, DType: p.DType}
}

// RowBytes is the size of one key or value.
func (l Layout) RowBytes() int { return l.HeadDim * l.DType.Bytes() }

// PageBytes is the size of a page.
func (l Layout) PageBytes() int { return l.Layers * 2 * l.KVHeads * l.TokensPerBlock * l.RowBytes() }

// at is the offset of the row of a token of the block.
func (l Layout) at(layer int, part Part, head, token int) int {
	run := (layer*2+int(part))*l.KVHeads + head
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

func (p *Paged) element(part Part) Element {
	return Element{Type: p.Layout.DType, Scale: p.Scales[part]}
}

// page is the page of a block.
func (p *Paged) page(stream, block int) []byte {
	if blocks := p.Blocks[stream]; block < len(blocks) && blocks[block] != nil {
		return blocks[block]
	}
	panic(fmt.Sprintf("attention: stream %d has no page for block %d of %d tokens", stream, block, p.Layout.TokensPerBlock))
}

// Write stores one row.
func (p *Paged) Write(stream int, part Part, head, position int, row []float32) {
	tpb := p.Layout.TokensPerBlock
	page := p.page(stream, position/tpb)
	p.element(part).Encode(page[p.Layout.at(p.Layer, part, head, position%tpb):], row)
}

// Read gives the rows up to the end of the block.
func (p *Paged) Read(scratch []float32, stream int, part Part, head, position, limit int) ([]float32, int) {
	tpb := p.Layout.TokensPerBlock
	n := min(limit, tpb-position%tpb)
	page := p.page(stream, position/tpb)
	return p.element(part).read(scratch, page[p.Layout.at(p.Layer, part, head, position%tpb):], n*p.Layout.HeadDim), n
}

// Resolve looks up the pages of a table: blocks[i] becomes the bytes of page
// table[i], nil for NoPage. blocks is used again if it has room.
func Resolve(blocks [][]byte, table []messages.PageID, bytes func(messages.PageID) []byte) [][]byte {
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

// Latent is the cache of latent attention in a pool that has keys and values of
// one size: the one row that a token has is cut in two, the first HeadDim
// numbers lie with the keys and the rest with the values. A page then has the
// bytes that the row needs, none is lost as long as its length is even, and the
// engine copies the leading tokens of a page rightly, as it knows K and V only.
type Latent struct {
	Paged
	Width int // numbers of a row, at most 2 · HeadDim
}

// Write stores a row in two parts; part must be Keys.
func (l *Latent) Write(stream int, part Part, head, position int, row []float32) {
	half := l.Layout.HeadDim
	l.Paged.Write(stream, Keys, head, position, row[:half])
	l.Paged.Write(stream, Values, head, position, row[half:])
}

// Read puts the halves of rows together; values are the same rows.
func (l *Latent) Read(scratch []float32, stream int, _ Part, head, position, limit int) ([]float32, int) {
	tpb, half := l.Layout.TokensPerBlock, l.Layout.HeadDim
	n := min(limit, tpb-position%tpb)
	page := l.page(stream, position/tpb)
	k, v := l.element(Keys), l.element(Values)
	for i := range n {
		row := scratch[i*l.Width : (i+1)*l.Width]
		k.Decode(row[:half], page[l.Layout.at(l.Layer, Keys, head, position%tpb+i):])
		v.Decode(row[half:], page[l.Layout.at(l.Layer, Values, head, position%tpb+i):])
	}
	return scratch[:n*l.Width], n
}
