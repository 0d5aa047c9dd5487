package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/windows"
)

// shape is where the bytes of each token lie in a page: the regions that
// windows.Pool.Regions describes. A page without regions is copied whole.
type shape struct {
	pageBytes  int64
	tokens     int // of a page
	regions    []windows.Region
	tokenBytes int64 // of one token in all runs
}

// newShape checks that a page holds the bytes of all of its tokens.
//
// Without regions the page has one run for the keys and one for the values of each head in
// each layer, so leading tokens are the beginning of each run.
func newShape(c PoolConfig) shape {
	s := shape{pageBytes: c.PageBytes, tokens: c.TokensPerBlock, regions: c.Regions}
	if s.regions == nil {
		s.regions = []windows.Region{{Runs: int64(c.Layers * 2 * c.KVHeads),
			TokenBytes: int64(c.HeadDim) * int64(c.ElemBytes)}}
	}
	need := int64(0)
	for _, r := range s.regions {
		s.tokenBytes += r.Runs * r.TokenBytes
		need = max(need, r.Offset+r.Bytes(s.tokens))
	}
	if need > s.pageBytes || s.pageBytes <= 0 {
		panic(fmt.Sprintf("offloader: pool %s: a page of %d bytes does not hold %d",
			c.Name, s.pageBytes, need))
	}
	return s
}

// whole tells whether a copy of n leading tokens takes the page as it is.
// 0 tokens stands for all.
func (s *shape) whole(n int32) bool { return n == 0 || int(n) >= s.tokens }

// bytes gives what a copy of n leading tokens moves.
//
// It is what the link moves, so slices are bounded by it and not by the number of pages.
func (s *shape) bytes(n int32) int64 {
	if s.whole(n) {
		return s.pageBytes
	}
	return int64(n) * s.tokenBytes
}

// cut appends the copies that an item consists of: the page in one piece, or
// the leading tokens of every run.
//
// A partial copy has as many pieces as the page has runs. Tokens behind the leading ones are
// not copied, so what the destination holds there is undefined.
func (s *shape) cut(copies []Copy, it *item) []Copy {
	if s.whole(it.tokens) {
		return append(copies, Copy{Src: it.src, Dst: it.dst, Bytes: s.pageBytes, Zero: it.zero})
	}
	for _, r := range s.regions {
		piece := int64(it.tokens) * r.TokenBytes
		stride := int64(s.tokens) * r.TokenBytes
		for run := range r.Runs {
			at := r.Offset + run*stride
			copies = append(copies, Copy{Src: it.src, Dst: it.dst, SrcOffset: at, DstOffset: at,
				Bytes: piece})
		}
	}
	return copies
}
