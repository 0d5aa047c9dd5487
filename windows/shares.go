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
type splitting struct {
	shares []share
	tier   messages.Tier
}

// newSplitting takes a valid model and configuration. max_tokens caps attention pools on the
// device; a cap in tokens says nothing about states.
func newSplitting(pools []Pool, m Model, c Config, tier messages.Tier) *splitting {
	s := &splitting{shares: make([]share, len(pools)), tier: tier}
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
		if c.MaxTokens > 0 && tier == messages.Primary && p.Kind != KindState {
			sh.cap = min(sh.cap, uint64(blocksOf(c.MaxTokens, c.TokensPerBlock)))
		}
		s.shares[i] = sh
	}
	return s
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
// sequences among those that are below their caps and whose page fits. Where a cap
// leaves much to the other pools it takes a second for 100 million pages.
func (s *splitting) fillRest(left uint64) {
	for {
		var fewest *share
		for i := range s.shares {
			sh := &s.shares[i]
			if sh.pages < sh.cap && sh.pageBytes <= left && (fewest == nil || fewer(sh, fewest)) {
				fewest = sh
			}
		}
		if fewest == nil {
			return
		}
		fewest.pages++
		left -= fewest.pageBytes
	}
}

// fewer reports whether a holds fewer sequences than b: it compares pages/need
// exactly, by products of 128 bits.
func fewer(a, b *share) bool {
	ahi, alo := bits.Mul64(a.pages, b.need)
	bhi, blo := bits.Mul64(b.pages, a.need)
	return ahi < bhi || ahi == bhi && alo < blo
}

// excess refuses pools with more than MaxPages.
func (s *splitting) excess() (ps problems) {
	for _, sh := range s.shares {
		if sh.pages > MaxPages {
			ps.say("pool %s would have more than %d %s pages of %d bytes; larger pages need a larger "+
				"tokens_per_block", sh.name, MaxPages, s.tier, sh.pageBytes)
		}
	}
	return ps
}
