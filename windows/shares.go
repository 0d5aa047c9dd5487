package windows

import (
	"math/bits"

	"github.com/kvactor/kvactor/messages"
)

// share is one pool in the division of memory.
type share struct {
	name      string
	pageBytes uint64
	need      uint64 // pages of one sequence of the expected length, ≥ 1
	weight    uint64 // its part of the bytes is weight/Σ weight
	cap       uint64 // pages at most
	pages     uint64 // so far
}

// splitting divides memory between pools. It computes in integers only, because
// page counts are part of answers and must not depend on how a compiler rounds.
type splitting struct{ shares []share }

// newSplitting takes a valid model and configuration.
func newSplitting(pools []Pool, m Model, c Config) *splitting {
	s := &splitting{shares: make([]share, len(pools))}
	expected := c.expected(m)
	for i, p := range pools {
		sh := share{
			name:      p.Name,
			pageBytes: uint64(p.PageBytes()),
			need:      uint64(p.Need(expected)),
			cap:       MaxPages + 1, // one too many, so that excess sees it
		}
		sh.weight = sh.need * sh.pageBytes
		if c.PoolFractions != nil {
			sh.weight = units(c.PoolFractions[p.Name])
		}
		s.shares[i] = sh
	}
	return s
}

// limit caps every attention pool. A cap in tokens says nothing about states.
func (s *splitting) limit(pools []Pool, pages int) {
	for i := range s.shares {
		if pools[i].Kind != KindState {
			s.shares[i].cap = min(s.shares[i].cap, uint64(pages))
		}
	}
}

// fill gives every pool its share of the bytes, then the rest page by page.
func (s *splitting) fill(bytes uint64) {
	var total uint64
	for _, sh := range s.shares {
		total += sh.weight
	}
	left := bytes
	for i := range s.shares {
		sh := &s.shares[i]
		sh.pages = min(sh.cap, mulDiv(bytes, sh.weight, total)/sh.pageBytes)
		left -= sh.pages * sh.pageBytes
	}
	s.fillRest(left)
}

// fillRest gives the rest, one page at a time, to the pool with the fewest
// sequences whose page fits. A cap on the largest pool can leave billions of pages
// to the others, so the pages are not given singly: as long as the same pools take
// part, the order passes, for any number of sequences, through the state in which
// every pool has just reached that number. A bisection therefore finds the state
// in which the first pool drops out, and only the steps from there are single.
func (s *splitting) fillRest(left uint64) {
	among := 0
	for {
		fitting := s.fitting(left)
		if len(fitting) == 0 {
			return
		}
		if len(fitting) != among {
			among = len(fitting)
			left = s.raise(fitting, left)
		}
		fewest := fitting[0]
		for _, sh := range fitting[1:] {
			if fewer(sh, fewest) {
				fewest = sh
			}
		}
		if fewest.pages < fewest.cap && fewest.pageBytes <= left {
			fewest.pages++
			left -= fewest.pageBytes
		}
	}
}

// fitting lists the pools that another page could be given to.
func (s *splitting) fitting(left uint64) []*share {
	var fit []*share
	for i := range s.shares {
		if sh := &s.shares[i]; sh.pages < sh.cap && sh.pageBytes <= left {
			fit = append(fit, sh)
		}
	}
	return fit
}

// fewer reports whether a holds fewer sequences than b: it compares pages/need
// exactly, by products of 128 bits.
func fewer(a, b *share) bool {
	ahi, alo := bits.Mul64(a.pages, b.need)
	bhi, blo := bits.Mul64(b.pages, a.need)
	return ahi < bhi || ahi == bhi && alo < blo
}

// level is a number of sequences, as the fraction steps/per. With the largest
// need as per, a step gives no pool more than one page.
type level struct{ steps, per uint64 }

// pages of a pool that has just reached the level.
func (l level) pages(sh *share) uint64 {
	hi, lo := bits.Mul64(l.steps, sh.need)
	lo, carry := bits.Add64(lo, l.per-1, 0)
	q, _ := bits.Div64(hi+carry, lo, l.per) // need ≤ per, so it fits
	return min(sh.cap, max(sh.pages, q))
}

// raise gives all pools the pages of the highest level that the bytes suffice
// for, and returns the bytes left. Every page on the way is part of that cost, so
// it fits when its turn comes.
func (s *splitting) raise(pools []*share, left uint64) uint64 {
	var per uint64
	for _, sh := range pools {
		per = max(per, sh.need)
	}
	low, high := uint64(0), uint64(MaxPages+1)*per // every pool is at its cap at high
	for low < high {
		mid := low + (high-low+1)/2
		if cost(pools, level{mid, per}) <= left {
			low = mid
		} else {
			high = mid - 1
		}
	}
	at := level{low, per}
	left -= cost(pools, at)
	for _, sh := range pools {
		sh.pages = at.pages(sh)
	}
	return left
}

// cost is the memory of the pages that pools lack at a level, or the largest
// number if it overflows. It is compared with the bytes that are left.
func cost(pools []*share, at level) uint64 {
	const tooMuch = 1<<64 - 1
	var sum uint64
	for _, sh := range pools {
		hi, lo := bits.Mul64(at.pages(sh)-sh.pages, sh.pageBytes)
		var carry uint64
		sum, carry = bits.Add64(sum, lo, 0)
		if hi != 0 || carry != 0 {
			return tooMuch
		}
	}
	return sum
}

// excess refuses pools with more than MaxPages.
func (s *splitting) excess(tier messages.Tier) (ps problems) {
	for _, sh := range s.shares {
		if sh.pages > MaxPages {
			ps.say("pool %s would have more than %d %s pages of %d bytes; larger pages need a larger tokens_per_block", sh.name, MaxPages, tier, sh.pageBytes)
		}
	}
	return ps
}
