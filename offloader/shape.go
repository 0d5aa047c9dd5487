package offloader

import "fmt"

// shape knows where tokens lie in a page: [layer][K,V][head][token][dim].
type shape struct {
	pageBytes  int64
	tokens     int   // of a page
	runs       int   // (layer, K or V, head) triples
	tokenBytes int64 // of one token in one run
}

func newShape(c PoolConfig) shape {
	s := shape{
		pageBytes:  c.PageBytes,
		tokens:     c.TokensPerBlock,
		runs:       c.Layers * 2 * c.KVHeads,
		tokenBytes: int64(c.HeadDim) * int64(c.ElemBytes),
	}
	if need := int64(s.runs) * int64(s.tokens) * s.tokenBytes; need > s.pageBytes || s.pageBytes <= 0 {
		panic(fmt.Sprintf("offloader: pool %s: a page of %d bytes does not hold %d", c.Name, s.pageBytes, need))
	}
	return s
}

// whole tells whether a copy of n leading tokens takes the page as it is.
// 0 tokens stands for all.
func (s *shape) whole(n int32) bool { return n == 0 || int(n) >= s.tokens }

// bytes gives what a copy of n leading tokens moves.
func (s *shape) bytes(n int32) int64 {
	if s.whole(n) {
		return s.pageBytes
	}
	return int64(s.runs) * int64(n) * s.tokenBytes
}

// cut appends the copies that an item consists of: the page in one piece, or
// the leading tokens of every run.
func (s *shape) cut(copies []Copy, it *item) []Copy {
	if s.whole(it.tokens) {
		return append(copies, Copy{Src: it.src, Dst: it.dst, Bytes: s.pageBytes})
	}
	piece := int64(it.tokens) * s.tokenBytes
	stride := int64(s.tokens) * s.tokenBytes
	for run := range int64(s.runs) {
		at := run * stride
		copies = append(copies, Copy{Src: it.src, Dst: it.dst, SrcOffset: at, DstOffset: at, Bytes: piece})
	}
	return copies
}
