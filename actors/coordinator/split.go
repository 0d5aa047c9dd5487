package coordinator

import (
	"maps"
	"math"
	"slices"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// What a rebalance asks for: the number of pages of each pool, and what is refused before
// anything has changed.

// split gives the counts that a request asks for: by its fractions of the memory
// that the self pools have together, by demand, or as they are. By fractions and by
// demand cross pools keep what they have: their share is cross_kv_cache_fraction. Pages come
// before fractions, and fractions before demand. The slice is the caller's.
func (r *rebalance) split(m *messages.Rebalance) ([]int, error) {
	// The host has planned the counts itself, also of cross pools, or the automatic rebalance has.
	if m.Pages != nil {
		return slices.Clone(m.Pages), r.config.validatePages(m.Pages)
	}
	if m.Fractions == nil {
		if move := r.pressure.demand(nil); move != nil {
			return r.pressure.counts(move), nil
		}
		return r.pressure.totals(), nil // nothing was in demand
	}
	if err := r.config.validateFractions(m.Fractions); err != nil {
		return nil, err
	}
	// Fractions are of what the self pools have together now, not of what they had at the
	// start: memory that was rounded away does not come back.
	bytes := int64(0)
	for p := range r.cross.first {
		bytes += r.pressure.bytes(p)
	}
	pages, err := r.config.Divide(m.Fractions, bytes)
	if err != nil {
		return nil, refusals.New(messages.ErrBadRequest, "%v", err)
	}
	return append(pages, r.pressure.totals()[r.cross.first:]...), nil
}

// validatePages holds page counts to the bounds of pools. At least one page each: without one a
// pool refuses every request for ever.
func (c *Config) validatePages(pages []int) error {
	if len(pages) != len(c.Pools) {
		return refusals.New(messages.ErrBadRequest, "pages has %d counts for %d pools", len(pages),
			len(c.Pools))
	}
	for p, n := range pages {
		if n < 1 || n > windows.MaxPages {
			return refusals.New(messages.ErrBadRequest, "pages: %d of pool %s are not between 1 and %d", n,
				c.Pools[p].Name, windows.MaxPages)
		}
	}
	return nil
}

// validateFractions holds fractions to the rule of pool_fractions. Every self pool must be
// named, since a pool that is left out could mean none of the memory or the rest of it.
func (c *Config) validateFractions(fractions map[string]float64) error {
	sum := 0.0
	own := c.selfPools()
	for _, name := range c.poolNames()[:own] {
		f, ok := fractions[name]
		if !ok {
			return refusals.New(messages.ErrBadRequest, "fractions lack pool %s", name)
		}
		// Negated, so that NaN is refused as well.
		if !(f > 0 && f <= 1) {
			return refusals.New(messages.ErrBadRequest, "fraction %v of pool %s is not in (0, 1]", f, name)
		}
		sum += f
	}
	// All pools are named already; what is left over is a pool that is unknown or has no
	// fraction. One name is reported: the first by the alphabet, so that equal requests get
	// equal refusals.
	for _, name := range slices.Sorted(maps.Keys(fractions)) {
		switch p := c.poolNamed(name); {
		case p < 0:
			return refusals.New(messages.ErrBadRequest, "fractions name %q, which is no pool", name)
		case p >= own:
			return refusals.New(messages.ErrBadRequest,
				"fractions name the cross pool %s, whose share is cross_kv_cache_fraction", name)
		}
	}
	// Fractions are written in decimals by hosts: three thirds do not add up to 1 exactly.
	if math.Abs(sum-1) > 1e-6 {
		return refusals.New(messages.ErrBadRequest, "fractions add up to %v, not to 1", sum)
	}
	return nil
}

// validateCounts refuses counts below what is held or reserved, and other counts than
// now where the memory is the host's. The counts hold until the pools get their next message,
// which is the resize itself: a request that passes here finds room for every page that is
// held.
func (r *rebalance) validateCounts(pages []int) error {
	for p, n := range pages {
		if now := r.counts.device[p].Total; r.config.FixedPages != nil && r.config.FixedPages[p] &&
			n != now {
			return refusals.New(messages.ErrNotSupported,
				"pool %s has %d pages of device memory that is the host's, and cannot have %d",
				r.config.Pools[p].Name, now, n)
		}
		// Pages that are held survive, moved if they must be, so they need room.
		if need := r.counts.needed(p); need > n {
			return refusals.OutOfPages(r.config.Pools[p].Name, need, n)
		}
	}
	return nil
}
