package offloader

// whole tells whether a copy of n leading tokens takes the page as it is.
// 0 tokens stands for all.
func (c *PoolConfig) whole(n int32) bool { return n == 0 || int(n) >= c.TokensPerBlock }

// bytes gives what a copy of n leading tokens moves.
//
// It is what the link moves, so slices are bounded by it and not by the number of pages.
func (c *PoolConfig) bytes(n int32) int64 {
	if c.whole(n) {
		return c.PageBytes
	}
	bytes := int64(0)
	for _, r := range c.Regions {
		bytes += r.Bytes(int(n))
	}
	return bytes
}

// cut appends the copies that an item consists of: the page in one piece, or
// the leading tokens of every run.
//
// A partial copy has as many pieces as the page has runs. Tokens behind the leading ones are
// not copied, so what the destination holds there is undefined.
func (c *PoolConfig) cut(copies []Copy, it *item) []Copy {
	if c.whole(it.tokens) {
		return append(copies, Copy{Src: it.src, Dst: it.dst, Bytes: c.PageBytes, Zero: it.zero})
	}
	for _, r := range c.Regions {
		piece := int64(it.tokens) * r.TokenBytes
		stride := int64(c.TokensPerBlock) * r.TokenBytes
		for run := range r.Runs {
			at := r.Offset + run*stride
			copies = append(copies, Copy{Src: it.src, Dst: it.dst, SrcOffset: at, DstOffset: at,
				Bytes: piece})
		}
	}
	return copies
}
