package coordinator

import (
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
	// Fractions are of what the self pools have together now, not of what they had at the
	// start: memory that was rounded away does not come back.
	pages, err := r.config.Divide(m.Fractions, r.pressure.total())
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
