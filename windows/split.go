package windows

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/kvactor/kvactor/messages"
)

// MaxPages is how many pages one pool may have in one tier. The bookkeeping of so
// many pages, about 40 bytes each, takes 10 GiB: a pool that comes near has too
// small pages.
const MaxPages = 1 << 28

// Budget is the memory to split. Negative sizes are refused.
type Budget struct {
	// DeviceBytes is the device memory that is free; Split takes
	// free_gpu_memory_fraction of it.
	DeviceBytes int64
	// HostBytes is the host memory that is free; 0 if that is not known. Split
	// divides host_cache_size and refuses it if it is larger than HostBytes.
	HostBytes int64
}

// PageCounts are the numbers of pages of one pool: in device memory and in host memory.
type PageCounts struct{ Primary, Secondary int }

// Split divides the memory between pools; see Divide for the rule. Host memory
// is split by the same shares, but max_tokens does not cap it, and a pool may
// get no host page. The memory of the cross pool, by SplitCross, is subtracted
// first.
func Split(pools []Pool, m Model, c Config, b Budget) ([]PageCounts, error) {
	if err := c.Validate(m); err != nil {
		return nil, err
	}
	if err := b.refuse(c); err != nil {
		return nil, err
	}
	deviceBytes, hostBytes := c.selfShare(m, b)
	primary, err := Divide(pools, m, c, int64(deviceBytes))
	if err != nil {
		return nil, err
	}
	host := newSplitting(pools, m, c, messages.Secondary)
	host.fill(hostBytes)
	if err := refuse(host.excess()); err != nil {
		return nil, err
	}
	counts := make([]PageCounts, len(pools))
	for i := range pools {
		counts[i] = PageCounts{Primary: primary[i], Secondary: int(host.shares[i].pages)}
	}
	return counts, nil
}

// refuse refuses sizes that cannot be.
func (b Budget) refuse(c Config) error {
	var ps problems
	ps.atLeast(0, b.DeviceBytes, "free device memory of %d bytes")
	ps.atLeast(0, b.HostBytes, "free host memory of %d bytes")
	if b.HostBytes > 0 && c.HostCacheSize > b.HostBytes {
		ps.say("host_cache_size %d is more than the %d bytes of free host memory", c.HostCacheSize,
			b.HostBytes)
	}
	return refuse(ps)
}

// Divide divides so many bytes of device memory, all of which may be used,
// between the pools and returns the pages of each. Split calls it for the memory
// of a new engine, a rebalance for the memory that the pools have.
//
// The bytes are shared in proportion to what each pool needs for a sequence of
// the expected length, or by pool_fractions. Shares are rounded down to pages and
// capped at ⌈max_tokens/tpb⌉ pages, which holds for attention pools only. What is
// left goes one page at a time to the pool that could hold the fewest sequences
// among those that are below the cap and whose page fits. To find it, pages/need
// is compared exactly; on a tie the first pool in order gets the page. In the end
// no further page fits. A pool without a page is refused, because no sequence
// could run.
func Divide(pools []Pool, m Model, c Config, bytes int64) ([]int, error) {
	if err := c.Validate(m); err != nil {
		return nil, err
	}
	if bytes < 0 {
		return nil, refuse(problems{fmt.Sprintf("device memory of %d bytes is negative", bytes)})
	}
	s := newSplitting(pools, m, c, messages.Primary)
	s.fill(uint64(bytes))
	ps := s.excess()
	for _, sh := range s.shares {
		if sh.pages == 0 {
			ps.say("pool %s gets no page: one takes %d bytes, all pools share %d%s", sh.name, sh.pageBytes,
				bytes, c.lengthHint(m, sh.pageBytes, bytes))
		}
	}
	if err := refuse(ps); err != nil {
		return nil, err
	}
	pages := make([]int, len(pools))
	for i, sh := range s.shares {
		pages[i] = int(sh.pages)
	}
	return pages, nil
}

// lengthHint names the setting that leaves a pool without a page although one page
// would fit: in a division for very long sequences a small window has hardly a part.
func (c Config) lengthHint(m Model, page uint64, bytes int64) string {
	if page > uint64(bytes) || c.PoolFractions != nil {
		return ""
	}
	return fmt.Sprintf(", divided for sequences of %d tokens (expected_seq_len)", c.expected(m))
}

// expected is the sequence length that the memory split assumes.
func (c Config) expected(m Model) int {
	if c.ExpectedSeqLen > 0 {
		return c.ExpectedSeqLen
	}
	return m.MaxSeqLen
}

// sizeProblems refuses shapes whose sizes overflow. The sizes of shapes that pass
// can be multiplied and added without further checks.
func sizeProblems(ps *problems, pools []Pool, expected int) {
	var total int64
	for _, p := range pools {
		page := p.PageBytes()
		if page == math.MaxInt64 {
			ps.say("a page of pool %s would have more than %d bytes", p.Name, page-1)
			continue
		}
		total = sum(total, saturated(page, int64(p.Need(expected))))
		if total == math.MaxInt64 {
			ps.say("a sequence of %d tokens would take more than %d bytes", expected, total-1)
			return
		}
	}
}

// decimalUnit is 1 in the integers to which fractions are converted. Fractions
// are written in decimal: 0.9 of ten pages must be nine pages, although the
// nearest binary fraction may be a little less than 0.9.
const decimalUnit = 1_000_000_000_000

// units converts a fraction in [0,1] to multiples of 1/decimalUnit.
func units(fraction float64) uint64 { return uint64(math.Round(fraction * decimalUnit)) }

// mulDiv is ⌊a×b/c⌋ for b ≤ c, by a product of 128 bits.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	q, _ := bits.Div64(hi, lo, c)
	return q
}
