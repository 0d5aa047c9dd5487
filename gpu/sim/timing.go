package sim

import (
	"math"
	"time"

	"github.com/kvactor/kvactor/gpu"
)

// Transfer describes a batch for an estimate: Copies pieces of Bytes each that
// do not adjoin one another.
type Transfer struct {
	Direction gpu.Direction
	Copies    int
	Bytes     int64
}

// Duration is the time from start to end of a transfer that has the link for
// itself, without the cost of the call.
// It is rounded up to whole nanoseconds.
func (p *Profile) Duration(t Transfer) time.Duration {
	if t.Copies <= 0 {
		return 0
	}
	total := float64(t.Copies) * p.descriptor(t.Direction, t.Bytes)
	return time.Duration(math.Ceil(p.work(t.Direction, total, int64(t.Copies)*t.Bytes)))
}

// descriptor is the time an engine takes for one piece.
// The answer is in nanoseconds. A local copy has the descriptor cost of onboarding, as
// nothing is published for it.
func (p *Profile) descriptor(d gpu.Direction, bytes int64) float64 {
	if d == gpu.Local {
		// Device memory reads and writes each byte.
		return p.Onboard.Large.Nanos + float64(2*bytes)/p.HBMGBps
	}
	lane := p.lane(d)
	r := lane.Large
	if bytes < lane.SmallBelow {
		r = lane.Small
	}
	return r.Nanos + float64(bytes)/r.GBps
}

// work is the time of an operation at full speed from the sum over its
// descriptors: setup, and never faster than the link.
func (p *Profile) work(d gpu.Direction, descriptors float64, bytes int64) float64 {
	if d != gpu.Local {
		// Bytes over GB/s are nanoseconds. A local copy has no link: its bound is in the
		// descriptors already.
		descriptors = max(descriptors, float64(bytes)/p.lane(d).GBps)
	}
	return p.SetupNanos + descriptors
}

// lane is the link in one direction.
func (p *Profile) lane(d gpu.Direction) *Lane {
	if d == gpu.Onboard {
		return &p.Onboard
	}
	return &p.Offload
}

// share is the speed, in (0, 1], of an operation that would use own GB/s while
// the other direction would use other: it gets half of the joint limit, and what
// the other direction does not use.
func (p *Profile) share(own, other float64) float64 {
	if own+other <= p.BothGBps {
		return 1
	}
	return min(1, max(p.BothGBps/2, p.BothGBps-other)/own)
}

// Stretch bounds of a seeded schedule: an operation takes up to maxStretch
// times its time, one in slowOneIn up to slowStretch times, and starts up to
// maxDelay after it could: what other tenants of a link and of a host's memory
// do to a transfer now and then.
// The values are chosen, not measured: large enough for operations of several streams to
// overtake one another.
const (
	maxStretch  = 4
	slowStretch = 32
	slowOneIn   = 8
	maxDelay    = float64(200 * time.Microsecond)
)

// chance is a generator of numbers that depend on seed, stream and number of the operation
// alone, so that a schedule does not depend on the order of calls.
type chance uint64

// newChance makes the generator of one operation. Seed and stream are mixed apart
// from the number, so that streams with the same numbers differ.
// A run that queues an operation under the same number gives it the same schedule.
func newChance(seed int64, stream int32, seq uint64) chance {
	return chance(mix(uint64(seed)) ^ mix(uint64(stream)<<40^seq))
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// next returns a number in [0, 1).
func (c *chance) next() float64 {
	// 53 bits, as many as a float64 has: each result is exact.
	*c = chance(mix(uint64(*c)))
	return float64(*c>>11) / (1 << 53)
}

// schedule returns the delay of an operation and the factor on its duration.
func (c chance) schedule() (delayNanos int64, stretch float64) {
	// The draws are always made in this order: whether it is slow, by how much, whether it is
	// late, by how much. Another order would change the schedule of every seed.
	limit := float64(maxStretch)
	if c.next() < 1.0/slowOneIn {
		limit = slowStretch
	}
	stretch = 1 + float64(c.next()*(limit-1))
	if c.next() < 0.5 {
		return 0, stretch
	}
	return int64(c.next() * maxDelay), stretch
}
