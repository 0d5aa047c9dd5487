// Package simgroup makes groups of simulated devices: for tests and demonstrations of
// one engine over many devices, with ranks of different speeds and schedules.
//
// Each rank has a virtual clock of its own, which stands still until a caller waits. The
// methods that the group has from sim.Device act on all ranks, or on one after the other
// in turn where a fault is of one rank.
package simgroup

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/group"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

// Simulated is what one simulated device and a group of them can do.
type Simulated interface {
	gpu.Device
	gpu.Launcher
	// Now is the virtual time.
	Now() time.Duration
	// Advance moves time and runs what ends in it, Drain runs all that is queued.
	Advance(time.Duration)
	Drain()
	// Fail makes the next pages of a direction fail, Stall a stream late, Lose all calls.
	Fail(gpu.Direction, int)
	Stall(gpu.Stream, time.Duration) error
	Lose()
	// Pending counts the copies and operations that have not ended, Counters those that
	// have.
	Pending() int
	Counters() sim.Counters
}

// Sims are the devices that a simulated one stands for, in the order of the ranks: what
// is at rest on one rank is read there.
func Sims(d Simulated) []*sim.Device {
	if g, ok := d.(*Device); ok {
		return g.ranks
	}
	return []*sim.Device{d.(*sim.Device)}
}

var (
	_ Simulated = (*sim.Device)(nil)
	_ Simulated = (*Device)(nil)
)

// Config describes a group. All ranks have equal memory.
type Config struct {
	sim.Config
	Ranks int
	// Profiles are the links of the ranks, in turn; none: Config.Profile for all.
	Profiles []string
	// Wrap, if not nil, is called with each rank, such as for a hazard checker of its own.
	Wrap func(rank int, d *sim.Device) gpu.Device
}

// Device is a group of simulated devices.
type Device struct {
	gpu.Device // the group
	group      *group.Device
	ranks      []*sim.Device
	turn       atomic.Int64
}

// New makes a group. Schedules differ between ranks, unless the seed is 0.
func New(c Config) (*Device, error) {
	d := &Device{}
	var members []gpu.Device
	for r := range c.Ranks {
		own := c.Config
		// A seed of 0 is the schedule without delays, for every rank.
		own.Seed *= int64(r + 1)
		if len(c.Profiles) > 0 {
			own.Profile = c.Profiles[r%len(c.Profiles)]
		}
		s, err := sim.New(own)
		if err != nil {
			return nil, err
		}
		d.ranks = append(d.ranks, s)
		if c.Wrap != nil {
			members = append(members, c.Wrap(r, s))
		} else {
			members = append(members, s)
		}
	}
	var err error
	if d.group, err = group.New(members...); err != nil {
		return nil, err
	}
	d.Device = d.group
	return d, nil
}

// Group is the group itself, with all that it has beyond gpu.Device.
func (d *Device) Group() *group.Device { return d.group }

// Launch queues a kernel on all ranks.
func (d *Device) Launch(s gpu.Stream, k gpu.Kernel) (gpu.Ticket, error) {
	return d.group.Launch(s, k)
}

// HostShare is that of the group.
func (d *Device) HostShare(rank int, p gpu.Pool, page messages.PageID) []byte {
	return d.group.HostShare(rank, p, page)
}

// HostRead is that of the group.
func (d *Device) HostRead(s gpu.Slot) (end func()) { return d.group.HostRead(s) }

// HostWrite is that of the group.
func (d *Device) HostWrite(s gpu.Slot) (end func()) { return d.group.HostWrite(s) }

// Sim is the simulated device of a rank.
func (d *Device) Sim(rank int) *sim.Device { return d.ranks[rank] }

// Now is the virtual time of the rank that has come furthest.
func (d *Device) Now() time.Duration {
	var now time.Duration
	for _, s := range d.ranks {
		now = max(now, s.Now())
	}
	return now
}

// Advance moves the time of every rank.
func (d *Device) Advance(t time.Duration) {
	for _, s := range d.ranks {
		s.Advance(t)
	}
}

// Drain runs everything that is queued on every rank.
func (d *Device) Drain() {
	for _, s := range d.ranks {
		s.Drain()
	}
}

// next is the rank whose turn it is to have a fault: each in turn, so that every rank has
// some and a run can be repeated.
func (d *Device) next() int { return int(d.turn.Add(1)-1) % len(d.ranks) }

// Fail makes the next n pages of a direction fail on one rank.
func (d *Device) Fail(kind gpu.Direction, n int) { d.ranks[d.next()].Fail(kind, n) }

// Stall keeps one rank from starting anything on a stream for a time.
func (d *Device) Stall(s gpu.Stream, t time.Duration) error {
	r := d.next()
	on, err := d.group.StreamOf(r, s)
	if err != nil {
		return err
	}
	return d.ranks[r].Stall(on, t)
}

// Pending counts what has not ended on all ranks together.
func (d *Device) Pending() int {
	n := 0
	for _, s := range d.ranks {
		n += s.Pending()
	}
	return n
}

// Counters adds up what all ranks have done.
func (d *Device) Counters() (all sim.Counters) {
	for _, s := range d.ranks {
		all = all.Plus(s.Counters())
	}
	return all
}

// Lose loses one rank.
func (d *Device) Lose() { d.ranks[d.next()].Lose() }

// Close closes all ranks.
func (d *Device) Close() error {
	problems := []error{d.group.Close()}
	// A wrapper need not pass Close on; closing twice is harmless.
	for _, s := range d.ranks {
		problems = append(problems, s.Close())
	}
	return errors.Join(problems...)
}
