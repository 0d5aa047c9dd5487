package host

import (
	"encoding/binary"
	"fmt"

	"github.com/kvactor/kvactor/windows"
)

// Mode says how much of each row is written and checked.
type Mode uint8

// The modes.
const (
	// Whole covers every byte.
	Whole Mode = iota
	// Sampled covers the first and the last word of each row: it still sees
	// wrong prefixes, layers, heads, tokens and ends of copies.
	Sampled
)

// word is the unit in which bytes are made.
const word = 8

// Layout says where in a page of one pool each row lies. A row is the key or
// the value of one token in one head of one layer. Make it with NewLayout.
type Layout struct {
	name           string
	layers         []int
	heads          int
	tokensPerBlock int
	rowBytes       int
	mode           Mode
}

// NewLayout makes the layout of a pool's pages.
func NewLayout(p windows.Pool, mode Mode) Layout {
	return Layout{
		name: p.Name, layers: p.Layers, heads: p.KVHeads,
		tokensPerBlock: p.TokensPerBlock, rowBytes: p.HeadDim * p.DType.Bytes(), mode: mode,
	}
}

// runs is the number of runs of rows in a page: the rows of one layer, K or V,
// and head lie one token behind the other.
func (l *Layout) runs() int { return len(l.layers) * 2 * l.heads }

// pageBytes is the size of a page.
func (l *Layout) pageBytes() int { return l.runs() * l.tokensPerBlock * l.rowBytes }

// rows gives the bytes of n consecutive tokens in one run.
func (l *Layout) rows(page []byte, run, first, n int) []byte {
	at := (run*l.tokensPerBlock + first) * l.rowBytes
	return page[at : at+n*l.rowBytes]
}

// key is what a run adds to a chain to start the generator of a row. The layer's
// number in the model goes in, not its index in the pool, so that layers of two
// pools never agree.
func (l *Layout) key(run int) uint64 {
	layer, rest := run/(2*l.heads), run%(2*l.heads)
	return (uint64(l.layers[layer])<<32 | uint64(rest)) ^ wordKey
}

// wordOf is the i-th word of a row. Words are independent of one another, so
// that a sample need not make those between.
func wordOf(seed uint64, i int) uint64 {
	return mix(seed^rowKey, (uint64(i)+1)*saltKey)
}

// Write puts the rows of consecutive tokens of the block into each run of the
// page; first is the index of the first of them.
func (l *Layout) Write(page []byte, first int, chains ...Chain) {
	last := (l.rowBytes - 1) / word
	stride := l.stride(last)
	for run := range l.runs() {
		key, rows := l.key(run), l.rows(page, run, first, len(chains))
		for _, c := range chains {
			row, seed := rows[:l.rowBytes:l.rowBytes], mix(uint64(c)^rowKey, key)
			putWord(row, wordOf(seed, 0))
			for i := stride; i <= last; i += stride {
				putWord(row[i*word:], wordOf(seed, i))
			}
			rows = rows[l.rowBytes:]
		}
	}
}

// Verify compares what Write would put there and names the first row of the page
// that differs.
func (l *Layout) Verify(page []byte, first int, chains ...Chain) error {
	if len(page) != l.pageBytes() {
		return fmt.Errorf("page of %d bytes, pool %s has %d", len(page), l.name, l.pageBytes())
	}
	last := (l.rowBytes - 1) / word
	stride := l.stride(last)
	for run := range l.runs() {
		key, rows := l.key(run), l.rows(page, run, first, len(chains))
		for token, c := range chains {
			row, seed := rows[:l.rowBytes:l.rowBytes], mix(uint64(c)^rowKey, key)
			if !hasWord(row, wordOf(seed, 0)) {
				return l.differs(run, first+token)
			}
			for i := stride; i <= last; i += stride {
				if !hasWord(row[i*word:], wordOf(seed, i)) {
					return l.differs(run, first+token)
				}
			}
			rows = rows[l.rowBytes:]
		}
	}
	return nil
}

// stride steps through the words of a row whose last word has index last.
func (l *Layout) stride(last int) int {
	if l.mode == Sampled {
		return max(1, last)
	}
	return 1
}

// differs names a row.
func (l *Layout) differs(run, token int) error {
	kv := "K"
	if run/l.heads%2 == 1 {
		kv = "V"
	}
	return fmt.Errorf("layer %d, %s, head %d, token %d of the block: wrong bytes",
		l.layers[run/(2*l.heads)], kv, run%l.heads, token)
}

// putWord writes a word, or the first bytes of it where the row ends.
func putWord(to []byte, w uint64) {
	switch {
	case len(to) >= word:
		binary.LittleEndian.PutUint64(to, w)
	case len(to) == 2:
		binary.LittleEndian.PutUint16(to, uint16(w))
	default:
		for i := range to {
			to[i] = byte(w >> (8 * i))
		}
	}
}

// hasWord is the check of putWord.
func hasWord(at []byte, w uint64) bool {
	if len(at) >= word {
		return binary.LittleEndian.Uint64(at) == w
	}
	if len(at) == 2 {
		return binary.LittleEndian.Uint16(at) == uint16(w)
	}
	for i := range at {
		if at[i] != byte(w>>(8*i)) {
			return false
		}
	}
	return true
}
