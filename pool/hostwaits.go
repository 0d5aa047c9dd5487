package pool

import "github.com/kvactor/kvactor/internal/forecast"

// Await tells of pages in host memory what await tells of pages of the pool.
func (r evictedRanking) Await(features uint64) uint64 {
	return uint64(r.policy.Await(forecast.Features(features)))
}
