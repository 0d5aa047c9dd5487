package devicetest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

// Row is one cell of a measurement: copies of one size, so many in a batch, so
// many batches in flight.
type Row struct {
	Direction string  `json:"direction"` // offload, onboard, both, copy
	Bytes     int64   `json:"bytes"`     // of each copy
	Copies    int     `json:"copies"`
	InFlight  int     `json:"in_flight"`
	GBps      float64 `json:"gbps"` // of all directions together, 10⁹ bytes
	SubmitNs  float64 `json:"submit_ns"`
	// Share is GBps as a part of what one large copy in this direction reaches; 0
	// where none was measured.
	Share float64 `json:"share,omitempty"`
}

// Measured is the link of a device as it was found.
type Measured struct {
	Profile sim.Profile `json:"profile"` // for sim.Config.Measured
	Rows    []Row       `json:"rows"`
}

// sizes are the pages that are measured: those of caches, and three to fit each regime of a
// lane.
var sizes = []int64{4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10,
	1 << 20, 2 << 20, 4 << 20}

// smallBelow is where the two regimes of a lane meet: the boundary of NVIDIA's copy engines.
const smallBelow = 28 << 10

// The sizes from which the two regimes of a lane are fitted.
var (
	smallSizes = []int64{4 << 10, 8 << 10, 16 << 10}
	largeSizes = []int64{32 << 10, 64 << 10, 128 << 10}
)

// largest is the size of the one copy that others are compared with.
const largest = 256 << 20

// Measurement is how to measure. Clock is the time that copies take: wall time,
// or that of a simulated device. Budget bounds the bytes of a batch.
type Measurement struct {
	Clock  func() time.Duration
	Budget int64
}

// Measure finds bandwidth by page size, each way and both, device copies, and
// the processor time of a submission; full batches one at a time and two in
// flight, and each as a share of one large copy. It takes seconds on a real link.
func Measure(d gpu.Device, m Measurement) (Measured, error) {
	found := Measured{Profile: sim.Profile{Name: "measured-" + d.Info().Name}}
	p := &found.Profile
	p.SetupNanos = 2000
	for _, size := range sizes {
		rows, err := measureSize(d, m, size)
		if err != nil {
			return found, fmt.Errorf("pages of %d bytes: %w", size, err)
		}
		found.Rows = append(found.Rows, rows...)
	}
	large, err := measureLargest(d, m)
	if err != nil {
		return found, fmt.Errorf("one large copy: %w", err)
	}
	found.Rows = append(found.Rows, large...)
	for i := range found.Rows {
		r := &found.Rows[i]
		for _, l := range large {
			if l.Direction == r.Direction && l.GBps > 0 {
				r.Share = r.GBps / l.GBps
			}
		}
	}
	fitProfile(p, found.Rows)
	return found, p.Validate()
}

// fitProfile fits a profile to rows, the first two of which are one copy and many of the
// smallest size. The processor's time of a descriptor is that of an offload.
func fitProfile(p *sim.Profile, rows []Row) {
	first, last := rows[0], rows[1]
	p.CallNanos = first.SubmitNs
	p.DescriptorNanos = max(0, (last.SubmitNs-first.SubmitNs)/float64(max(1, last.Copies-1)))
	p.Offload, p.Onboard = fit(rows, "offload", p.DescriptorNanos),
		fit(rows, "onboard", p.DescriptorNanos)
	p.BothGBps = min(fastest(rows, "both"), p.Offload.GBps+p.Onboard.GBps)
	p.HBMGBps = 2 * fastest(rows, "copy") // a local copy reads and writes
}

// directions are those that are measured.
var directions = []string{"offload", "onboard", "both", "copy"}

// measureLargest moves one large piece in each direction.
func measureLargest(d gpu.Device, m Measurement) ([]Row, error) {
	size := min(m.Budget, largest)
	l, done, err := openLanes(d, size, 1)
	if err != nil {
		return nil, err
	}
	defer done()
	var rows []Row
	for _, direction := range directions {
		row, err := l.measure(d, m, Row{Direction: direction, Bytes: size, Copies: 1, InFlight: 1})
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// lanes are the streams of one measurement.
type lanes struct {
	pool             gpu.Pool
	out, in, between gpu.Stream
}

// openLanes makes streams and a pool in which n pages can go each way at once;
// done releases them.
func openLanes(d gpu.Device, size int64, n int) (l lanes, done func(), err error) {
	l.pool, err = d.CreatePool(gpu.PoolSpec{Name: "measure", PageBytes: size, DevicePages: 2 * n,
		HostPages: 2 * n})
	if err != nil {
		return l, nil, err
	}
	var made []gpu.Stream
	done = func() {
		for _, s := range made {
			_ = d.DestroyStream(s)
		}
		_ = d.DestroyPool(l.pool)
	}
	for name, s := range map[string]*gpu.Stream{"offload": &l.out, "onboard": &l.in,
		"copy": &l.between} {
		if *s, err = d.NewStream(name); err != nil {
			done()
			return l, nil, err
		}
		made = append(made, *s)
	}
	return l, done, nil
}

// measureSize measures pages of one size: one copy, full batches, two batches in
// flight, each in all directions.
func measureSize(d gpu.Device, m Measurement, size int64) ([]Row, error) {
	n := int(max(2, min(m.Budget/size, 1024)))
	l, done, err := openLanes(d, size, n)
	if err != nil {
		return nil, err
	}
	defer done()
	var rows []Row
	for _, batch := range []Row{{Copies: 1, InFlight: 1}, {Copies: n, InFlight: 1},
		{Copies: n, InFlight: 2}} {
		for _, direction := range directions {
			batch.Direction, batch.Bytes = direction, size
			row, err := l.measure(d, m, batch)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
	}
	// The first two rows of a size are of the same direction, one copy and many.
	rows[1], rows[4] = rows[4], rows[1]
	return rows, nil
}

// measure runs a cell three times and keeps the fastest.
func (l lanes) measure(d gpu.Device, m Measurement, row Row) (Row, error) {
	for range 3 {
		once, err := l.once(d, m, row)
		if err != nil {
			return row, err
		}
		if once.GBps > row.GBps {
			row = once
		}
	}
	return row, nil
}

// once moves two batches for each place in flight, so that the link has the next batch
// when one ends; a single batch where one is in flight.
func (l lanes) once(d gpu.Device, m Measurement, row Row) (Row, error) {
	rounds := 1
	if row.InFlight > 1 {
		rounds = 2 * row.InFlight
	}
	flying := make([][]gpu.Ticket, 0, rounds)
	began, calls, submitting := m.Clock(), 0, time.Duration(0)
	for round := range rounds {
		before := m.Clock()
		tickets, err := l.submit(d, row)
		if err != nil {
			return row, err
		}
		submitting += m.Clock() - before
		calls += len(tickets)
		flying = append(flying, tickets)
		if last := round - row.InFlight + 1; last >= 0 {
			if err := syncAll(d, flying[last]); err != nil {
				return row, err
			}
			flying[last] = nil
		}
	}
	for _, tickets := range flying {
		if err := syncAll(d, tickets); err != nil {
			return row, err
		}
	}
	moved := row.Bytes * int64(row.Copies) * int64(calls)
	row.GBps = float64(moved) / float64(max(1, (m.Clock()-began).Nanoseconds()))
	row.SubmitNs = float64(submitting.Nanoseconds()) / float64(calls)
	return row, nil
}

// submit queues a batch in each lane of a row's direction.
func (l lanes) submit(d gpu.Device, row Row) (tickets []gpu.Ticket, err error) {
	for _, lane := range []struct {
		direction string
		stream    gpu.Stream
	}{{"offload", l.out}, {"onboard", l.in}, {"copy", l.between}} {
		if lane.direction != row.Direction && (row.Direction != "both" || lane.direction == "copy") {
			continue
		}
		t, err := d.Submit(lane.stream, &gpu.Batch{Label: "measure",
			Copies: l.copies(lane.direction, row)})
		if err != nil {
			return tickets, err
		}
		tickets = append(tickets, t)
	}
	return tickets, nil
}

// syncAll waits for tickets.
func syncAll(d gpu.Device, tickets []gpu.Ticket) error {
	for _, t := range tickets {
		if err := d.Sync(context.Background(), t); err != nil {
			return err
		}
	}
	return nil
}

// copies go between the first pages of one tier and the first or last of the
// other, so that both directions can run at once. They go up on one side and
// down on the other: neighbours would be one descriptor for the device.
func (l lanes) copies(direction string, row Row) []gpu.Copy {
	var list []gpu.Copy
	for i := range row.Copies {
		low, high := messages.PageID(i), messages.PageID(2*row.Copies-1-i)
		c := gpu.Copy{Bytes: row.Bytes, Src: gpu.Slot{Pool: l.pool, Page: low},
			Dst: gpu.Slot{Pool: l.pool, Page: high}}
		switch direction {
		case "offload":
			c.Dst.Tier, c.Dst.Page = messages.Secondary, messages.PageID(row.Copies-1-i)
		case "onboard":
			c.Src.Tier, c.Src.Page = messages.Secondary, messages.PageID(row.Copies+i)
		}
		list = append(list, c)
	}
	return list
}

// fit finds the two regimes of a lane: what a descriptor costs and what a byte
// does, from full batches. submit is the processor's time of a descriptor, which the profile
// counts for every lane and size alike; what a descriptor costs beyond, on the processor or the
// device, is the lane's.
func fit(rows []Row, direction string, submit float64) sim.Lane {
	l := sim.Lane{GBps: fastest(rows, direction), SmallBelow: smallBelow}
	l.Small = regime(rows, direction, submit, smallSizes, math.Inf(1))
	l.Large = regime(rows, direction, submit, largeSizes, 1/l.GBps)
	return l
}

// regime fits submit + nanos + bytes/rate to the times of some sizes, so that the sum of the
// squares of the relative errors is least. A byte takes slowest nanoseconds at most; where the
// fit says more, or a descriptor of less than a nanosecond, the bound is taken instead and the
// other number is fitted alone.
func regime(
	rows []Row, direction string, submit float64, sizes []int64, slowest float64,
) sim.Regime {
	var n, x, y, xx, xy float64 // sums, weighted by the square of the time
	for _, bytes := range sizes {
		found := nanosOf(rows, direction, bytes)
		if found == 0 {
			continue
		}
		b, t, w := float64(bytes), found-submit, 1/(found*found)
		n, x, y, xx, xy = n+w, x+w*b, y+w*t, xx+w*b*b, xy+w*b*t
	}
	const least, fastest = 1.0, 1e-6 // nanoseconds of a descriptor and of a byte
	perByte := fastest
	if d := n*xx - x*x; d > 0 {
		perByte = max(fastest, (n*xy-x*y)/d)
	}
	perByte = min(perByte, slowest)
	nanos := (y - perByte*x) / max(n, math.SmallestNonzeroFloat64)
	if nanos < least {
		nanos, perByte = least, min(max(fastest, (xy-least*x)/max(xx, math.SmallestNonzeroFloat64)),
			slowest)
	}
	return sim.Regime{Nanos: nanos, GBps: 1 / perByte}
}

// nanosOf is the time of one copy in a full batch; 0: it was not measured.
func nanosOf(rows []Row, direction string, bytes int64) float64 {
	for _, r := range rows {
		if r.Direction == direction && r.Bytes == bytes && r.Copies > 1 && r.InFlight == 1 {
			return float64(bytes) / r.GBps
		}
	}
	return 0
}

// fastest is the best rate of a direction.
func fastest(rows []Row, direction string) float64 {
	best := 0.0
	for _, r := range rows {
		if r.Direction == direction {
			best = max(best, r.GBps)
		}
	}
	return best
}
