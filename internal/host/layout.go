package host

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/windows"
)

// word is the unit in which bytes are made.
const word = 8

// Layout says where in a page of one pool each row lies. A row is what a token
// has in one run of the page, such as its key in one head of one layer. Make it
// with NewLayout.
type Layout struct {
	pool windows.Pool
	runs []run
	rank uint64 // part of the seed of every row and state: see OfRank
}

// run is a sequence of rows of equal size, one for each token of the block.
type run struct {
	at  int    // of the first row, in bytes from the start of the page
	row int    // bytes of a row
	key uint64 // starts the generator of a row, with the token's chain
}

// NewLayout makes the layout of a pool's pages.
func NewLayout(p windows.Pool) Layout {
	l := Layout{pool: p}
	for i, r := range p.Regions() {
		perLayer := r.Runs / int64(r.Layers)
		for n := range r.Runs {
			// The layer's number in the model goes into the key, not its index in
			// the pool, so that layers of two pools never agree.
			layer := p.Layers[r.Layer+int(n/perLayer)]
			key := uint64(layer)<<32 | uint64(i)<<20 | uint64(n%perLayer)
			l.runs = append(l.runs, run{
				at: int(r.Offset + n*r.TokenBytes*int64(p.TokensPerBlock)), row: int(r.TokenBytes),
				key: key ^ wordKey,
			})
		}
	}
	return l
}

// OfRank is the layout of the pages of one rank of a group: the rows lie in the same
// places, and their bytes are the rank's own. Rank 0 has those of a device that is one.
func (l Layout) OfRank(rank int) Layout {
	l.rank, l.runs = uint64(rank)*uint64(rankKey), slices.Clone(l.runs)
	for i := range l.runs {
		l.runs[i].key ^= l.rank
	}
	return l
}

// OfRank makes the layouts of all pools on one rank.
func OfRank(layouts []Layout, rank int) []Layout {
	own := make([]Layout, len(layouts))
	for i := range layouts {
		own[i] = layouts[i].OfRank(rank)
	}
	return own
}

// pageBytes is the size of a page.
func (l *Layout) pageBytes() int { return int(l.pool.PageBytes()) }

// rows gives the bytes of n consecutive tokens in one run.
func (r *run) rows(page []byte, first, n int) []byte {
	at := r.at + first*r.row
	return page[at : at+n*r.row]
}

// Write puts the rows of consecutive tokens of the block into each run of the
// page; first is the index of the first of them.
func (l *Layout) Write(page []byte, first int, chains ...Chain) {
	for i := range l.runs {
		r := &l.runs[i]
		for token, c := range chains {
			fill(r.rows(page, first+token, 1), r.seed(c))
		}
	}
}

// Verify compares what Write would put there and names the first row of the page
// that differs.
func (l *Layout) Verify(page []byte, first int, chains ...Chain) error {
	if len(page) != l.pageBytes() {
		return fmt.Errorf("page of %d bytes, pool %s has %d", len(page), l.pool.Name, l.pageBytes())
	}
	for i := range l.runs {
		r := &l.runs[i]
		for token, c := range chains {
			if !filled(r.rows(page, first+token, 1), r.seed(c)) {
				return l.differs(r, first+token)
			}
		}
	}
	return nil
}

// seed starts the generator of the row of a token.
func (r *run) seed(c Chain) uint64 { return mix(uint64(c)^rowKey, r.key) }

// parts are the parts of a layer by the names that errors use.
var parts = []struct {
	part windows.Part
	name string
}{{windows.Keys, "K"}, {windows.Values, "V"}, {windows.KeyScales, "scales of K"},
	{windows.ValueScales, "scales of V"}, {windows.Side, "side bytes"}}

// differs names the row of a token in a run: the part of a layer and head that
// begins there.
func (l *Layout) differs(r *run, token int) error {
	at := int64(r.at + token*r.row)
	for layer, number := range l.pool.Layers {
		for _, p := range parts {
			v, ok := l.pool.View(layer, p.part)
			heads := l.pool.KVHeads
			if p.part == windows.Side {
				heads = 1
			}
			for head := range heads {
				if ok && v.Offset+int64(head)*v.HeadStride+int64(token)*v.TokenStride == at {
					return fmt.Errorf("layer %d, %s, head %d, token %d of the block: wrong bytes", number, p.name,
						head, token)
				}
			}
		}
	}
	return fmt.Errorf("byte %d, token %d of the block: wrong bytes", at, token)
}

// wordOf is the i-th word of a row.
func wordOf(seed uint64, i int) uint64 {
	return mix(seed^rowKey, (uint64(i)+1)*saltKey)
}

// fill writes the words of a row, of the last one as many bytes as there is room for.
func fill(row []byte, seed uint64) {
	i := 0
	for ; len(row) >= word; row = row[word:] {
		binary.LittleEndian.PutUint64(row, wordOf(seed, i))
		i++
	}
	for b, w := 0, wordOf(seed, i); b < len(row); b++ {
		row[b] = byte(w >> (8 * b))
	}
}

// filled is the check of fill.
func filled(row []byte, seed uint64) bool {
	i := 0
	for ; len(row) >= word; row = row[word:] {
		if binary.LittleEndian.Uint64(row) != wordOf(seed, i) {
			return false
		}
		i++
	}
	for b, w := 0, wordOf(seed, i); b < len(row); b++ {
		if row[b] != byte(w>>(8*b)) {
			return false
		}
	}
	return true
}
