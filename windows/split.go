package windows

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/kvactor/kvactor/messages"
)

// MaxPages is how many pages one pool may have in one tier. At some forty bytes
// of bookkeeping a page that is 10 GiB: whoever comes near has pages too small.
const MaxPages = 1 << 28

// Budget is the memory to split. A negative size is refused.
type Budget struct {
	// DeviceBytes is the device memory that is free; Split takes
	// free_gpu_memory_fraction of it.
	DeviceBytes int64
	// HostBytes is the host memory that is free; 0 if that is not known.
	// What is split is host_cache_size, refused if it is more than is free.
	HostBytes int64
}

// Counts are the pages of one pool.
type Counts struct{ Primary, Secondary int }

// Split divides the memory between pools; see Divide for the rule. Host memory
// is split by the same shares, but max_tokens does not cap it, and a pool may
// get no host page. What SplitCross gives the cross pool is taken off first.
func Split(pools []Pool, m Model, c Config, b Budget) ([]Counts, error) {
	if err := c.Validate(m); err != nil {
		return nil, err
	}
	if ps := b.problems(c); len(ps) > 0 {
		return nil, refuse(ps)
	}
	deviceBytes, hostBytes := c.selfShare(m, b)
	primary, err := Divide(pools, m, c, int64(deviceBytes))
	if err != nil {
		return nil, err
	}
	host := newSplitting(pools, m, c)
	host.fill(hostBytes)
	if ps := host.excess(messages.Secondary); len(ps) > 0 {
		return nil, refuse(ps)
	}
	counts := make([]Counts, len(pools))
	for i := range pools {
		counts[i] = Counts{Primary: primary[i], Secondary: int(host.shares[i].pages)}
	}
	return counts, nil
}

func (b Budget) problems(c Config) []string {
	var ps []string
	if b.DeviceBytes < 0 {
		ps = append(ps, fmt.Sprintf("free device memory of %d bytes is negative", b.DeviceBytes))
	}
	if b.HostBytes < 0 {
		ps = append(ps, fmt.Sprintf("free host memory of %d bytes is negative", b.HostBytes))
	}
	if b.HostBytes > 0 && c.HostCacheSize > b.HostBytes {
		ps = append(ps, fmt.Sprintf("host_cache_size %d is more than the %d bytes of free host memory", c.HostCacheSize, b.HostBytes))
	}
	return ps
}

// Divide gives each pool its device pages out of so many bytes, all of which
// may be used: a rebalance divides what the pools have already.
//
// The bytes are shared by need, that is by what each pool takes for a sequence
// of the expected length, or by pool_fractions. Shares are rounded down to
// pages and capped at ⌈max_tokens/tpb⌉ pages. What is left goes one page at a
// time to the pool that could hold the fewest sequences, pages/need compared
// exactly, the first in order on a tie, among those that are below the cap and
// whose page fits. So in the end no page fits that could still be given. A pool
// that gets no page is refused: no sequence could run.
func Divide(pools []Pool, m Model, c Config, bytes int64) ([]int, error) {
	if err := c.Validate(m); err != nil {
		return nil, err
	}
	if bytes < 0 {
		return nil, refuse([]string{fmt.Sprintf("device memory of %d bytes is negative", bytes)})
	}
	s := newSplitting(pools, m, c)
	if c.MaxTokens > 0 {
		s.limit(blocksOf(c.MaxTokens, c.TokensPerBlock))
	}
	s.fill(uint64(bytes))
	ps := s.excess(messages.Primary)
	for _, sh := range s.shares {
		if sh.pages == 0 {
			ps = append(ps, fmt.Sprintf("pool %s gets no page: one takes %d bytes, all pools share %d", sh.name, sh.pageBytes, bytes))
		}
	}
	if len(ps) > 0 {
		return nil, refuse(ps)
	}
	pages := make([]int, len(pools))
	for i, sh := range s.shares {
		pages[i] = int(sh.pages)
	}
	return pages, nil
}

// expected is the sequence length that the memory split assumes.
func (c Config) expected(m Model) int {
	if c.ExpectedSeqLen > 0 {
		return c.ExpectedSeqLen
	}
	return m.MaxSeqLen
}

// Need is how many pages the pool takes for a sequence of so many tokens: all
// its blocks, but in a limited window at most ⌈(w+sink)/tpb⌉+1, because a
// window that does not begin at a block boundary touches one block more.
func (p Pool) Need(tokens int) int {
	all := blocksOf(tokens, p.TokensPerBlock)
	if p.Full() {
		return all
	}
	inWindow := p.Window + p.Sink
	if inWindow < 0 { // the sum overflowed
		return all
	}
	return min(all, blocksOf(inWindow, p.TokensPerBlock)+1)
}

// sizeProblems refuses shapes whose sizes overflow: what it lets pass can be
// multiplied and added up without care.
func sizeProblems(pools []Pool, expected int) []string {
	var ps []string
	var total uint64
	for _, p := range pools {
		page, ok := product(2, len(p.Layers), p.KVHeads, p.TokensPerBlock, p.HeadDim, p.DType.Bytes())
		if !ok {
			ps = append(ps, fmt.Sprintf("a page of pool %s would have more than %d bytes", p.Name, int64(math.MaxInt64)))
			continue
		}
		need, ok := product(int(page), p.Need(expected))
		total += need // both are below 2⁶³
		if !ok || total > math.MaxInt64 {
			ps = append(ps, fmt.Sprintf("a sequence of %d tokens would take more than %d bytes", expected, int64(math.MaxInt64)))
			return ps
		}
	}
	return ps
}

// product multiplies positive factors; false if the result is not below 2⁶³.
func product(factors ...int) (uint64, bool) {
	result := uint64(1)
	for _, f := range factors {
		hi, lo := bits.Mul64(result, uint64(f))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, false
		}
		result = lo
	}
	return result, true
}

// decimalUnit is 1 in the integers that fractions are converted to. Fractions
// are written in decimal, and a tenth of ten pages is one page, which the binary
// fraction next to 0.9 would leave to chance.
const decimalUnit = 1_000_000_000_000

// units converts a fraction in [0,1].
func units(fraction float64) uint64 { return uint64(math.Round(fraction * decimalUnit)) }

// mulDiv is ⌊a×b/c⌋ by a 128 bit product, for b ≤ c.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	q, _ := bits.Div64(hi, lo, c)
	return q
}
