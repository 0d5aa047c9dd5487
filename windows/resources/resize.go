package resources

import (
	"context"
	"math"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// Measured is what a host has measured by a trial forward pass. Sizes are in bytes
// of device memory.
type Measured struct {
	// Free is what the device reports as free. The memory of the pages is not in
	// it; Resize adds it.
	Free int64
	// NonPaged is what else will be needed of Free and is not allocated yet.
	NonPaged int64
	// Forward is what a forward pass needs at its peak, as far as it is not
	// allocated now.
	Forward int64
	// Fraction of the rest goes to the pages, in (0,1]; 0: free_gpu_memory_fraction
	// of the configuration.
	Fraction float64
}

// Engine is what Resize needs of an engine: kvactor.Engine and actors.Engine have it. The first
// keeps the tables of its sequences up to date.
type Engine interface {
	// Stats counts the pages of the pools as they are.
	Stats(ctx context.Context) (inspect.Stats, error)
	// Resize gives each pool a number of device pages, by PoolID.
	Resize(ctx context.Context, pages []int) (messages.Rebalanced, error)
}

// PageBytes is the memory for pages: (free − not paged − forward) × fraction,
// where the memory of the pages that there are counts as free.
func (m Measured) PageBytes(paged int64, fraction float64) (int64, error) {
	// A measurement may leave more or less to spare than the configuration, which was a guess.
	if m.Fraction != 0 {
		fraction = m.Fraction
	}
	switch {
	case m.Free < 0 || m.NonPaged < 0 || m.Forward < 0:
		return 0, refusals.New(messages.ErrBadRequest,
			"measured %d bytes free, %d not paged, %d of a forward pass: none may be negative", m.Free,
			m.NonPaged, m.Forward)
	case !(fraction > 0 && fraction <= 1): // negated, so that NaN is refused as well
		return 0, refusals.New(messages.ErrBadRequest, "fraction %v is not greater than 0 and at most 1",
			fraction)
	case m.Free > math.MaxInt64-paged:
		return 0, refusals.New(messages.ErrBadRequest, "measured %d bytes free beside %d of pages",
			m.Free, paged)
	}
	rest := m.Free + paged - m.NonPaged - m.Forward
	if rest <= 0 {
		return 0, refusals.New(messages.ErrBadRequest,
			"nothing is left for pages: %d bytes free and %d of pages, %d not paged, %d of a forward pass",
			m.Free, paged, m.NonPaged, m.Forward)
	}
	return int64(float64(rest) * fraction), nil
}

// Resize gives the pools of an engine the memory that is left after a trial
// forward pass. They grow or shrink in place: contents stay as far as there is room
// and running sequences go on. The answer lists held pages that got other numbers.
// It is refused if a pool would have less than sequences hold.
func (p *Plan) Resize(ctx context.Context, e Engine, m Measured) (messages.Rebalanced, error) {
	stats, err := e.Stats(ctx)
	if err != nil {
		return messages.Rebalanced{}, err
	}
	paged := int64(0)
	for i, pool := range p.Pools {
		paged += int64(stats.Pools[i].Primary.Total) * pool.PageBytes()
	}
	bytes, err := m.PageBytes(paged, p.Cache.FreeGPUMemoryFraction)
	if err != nil {
		return messages.Rebalanced{}, err
	}
	pages, err := windows.Divide(p.Pools, p.Model, p.Cache, bytes)
	if err != nil {
		return messages.Rebalanced{}, err
	}
	return e.Resize(ctx, pages)
}
