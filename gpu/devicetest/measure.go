package devicetest

import (
	"context"
	"fmt"
	"time"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

// Row is one cell of a measurement: copies of one size, so many in a batch.
type Row struct {
	Direction string  `json:"direction"` // offload, onboard, both, copy
	Bytes     int64   `json:"bytes"`     // of each copy
	Copies    int     `json:"copies"`
	GBps      float64 `json:"gbps"` // of all directions together, 10⁹ bytes
	SubmitNs  float64 `json:"submit_ns"`
}

// Measured is the link of a device as it was found.
type Measured struct {
	Profile sim.Profile `json:"profile"` // for sim.Config.Measured
	Rows    []Row       `json:"rows"`
}

// sizes are the pages that are measured: two to fit each regime of a lane, small
// enough that the link is not full, and those that caches have.
var sizes = []int64{4 << 10, 16 << 10, 32 << 10, 128 << 10, 512 << 10, 1 << 20, 4 << 20}

// Measurement is how to measure. Clock is the time that copies take: wall time,
// or that of a simulated device. Budget bounds the bytes of a batch.
type Measurement struct {
	Clock  func() time.Duration
	Budget int64
}

// Measure finds bandwidth by page size, each way and both, device copies, and
// the processor time of a submission. It takes seconds on a real link.
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
	p.Offload, p.Onboard = fit(found.Rows, "offload"), fit(found.Rows, "onboard")
	p.BothGBps = min(fastest(found.Rows, "both"), p.Offload.GBps+p.Onboard.GBps)
	p.HBMGBps = 2 * fastest(found.Rows, "copy") // a local copy reads and writes
	first, last := found.Rows[0], found.Rows[1]
	p.CallNanos = first.SubmitNs
	p.DescriptorNanos = max(0, (last.SubmitNs-first.SubmitNs)/float64(max(1, last.Copies-1)))
	return found, p.Validate()
}

// lanes are the streams of one measurement.
type lanes struct {
	pool             gpu.Pool
	out, in, between gpu.Stream
}

func measureSize(d gpu.Device, m Measurement, size int64) ([]Row, error) {
	n := int(max(2, min(m.Budget/size, 1024)))
	pool, err := d.CreatePool(gpu.PoolSpec{Name: "measure", PageBytes: size, DevicePages: 2 * n, HostPages: 2 * n})
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.DestroyPool(pool) }()
	l := lanes{pool: pool}
	for name, s := range map[string]*gpu.Stream{"offload": &l.out, "onboard": &l.in, "copy": &l.between} {
		if *s, err = d.NewStream(name); err != nil {
			return nil, err
		}
	}
	var rows []Row
	for _, count := range []int{1, n} {
		for _, direction := range []string{"offload", "onboard", "both", "copy"} {
			row, err := l.measure(d, m, Row{Direction: direction, Bytes: size, Copies: count})
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
		began := m.Clock()
		var tickets []gpu.Ticket
		moved := int64(0)
		for _, lane := range []struct {
			direction string
			stream    gpu.Stream
		}{{"offload", l.out}, {"onboard", l.in}, {"copy", l.between}} {
			if lane.direction != row.Direction && (row.Direction != "both" || lane.direction == "copy") {
				continue
			}
			t, err := d.Submit(lane.stream, &gpu.Batch{Label: "measure", Copies: l.copies(lane.direction, row)})
			if err != nil {
				return row, err
			}
			tickets = append(tickets, t)
			moved += row.Bytes * int64(row.Copies)
		}
		spent := float64((m.Clock() - began).Nanoseconds()) / float64(len(tickets))
		for _, t := range tickets {
			if err := d.Sync(context.Background(), t); err != nil {
				return row, err
			}
		}
		if rate := float64(moved) / float64(max(1, (m.Clock()-began).Nanoseconds())); rate > row.GBps {
			row.GBps, row.SubmitNs = rate, spent
		}
	}
	return row, nil
}

// copies go between the first pages of one tier and the first or last of the
// other, so that both directions can run at once. They go up on one side and
// down on the other: neighbours would be one descriptor for the device.
func (l lanes) copies(direction string, row Row) []gpu.Copy {
	var list []gpu.Copy
	for i := range row.Copies {
		low, high := messages.PageID(i), messages.PageID(2*row.Copies-1-i)
		c := gpu.Copy{Bytes: row.Bytes, Src: gpu.Slot{Pool: l.pool, Page: low}, Dst: gpu.Slot{Pool: l.pool, Page: high}}
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
// does, from full batches of two sizes each.
func fit(rows []Row, direction string) sim.Lane {
	const smallBelow = 28 << 10
	return sim.Lane{
		GBps: fastest(rows, direction), SmallBelow: smallBelow,
		Small: regime(rows, direction, sizes[0], sizes[1]),
		Large: regime(rows, direction, sizes[2], sizes[3]),
	}
}

func regime(rows []Row, direction string, small, large int64) sim.Regime {
	a, b := nanosOf(rows, direction, small), nanosOf(rows, direction, large)
	perByte := max((b-a)/float64(large-small), 1e-6)
	return sim.Regime{Nanos: max(1, a-perByte*float64(small)), GBps: 1 / perByte}
}

// nanosOf is the time of one copy in a full batch, without the processor's.
func nanosOf(rows []Row, direction string, bytes int64) float64 {
	for _, r := range rows {
		if r.Direction == direction && r.Bytes == bytes && r.Copies > 1 {
			return max(0, float64(bytes)/r.GBps-r.SubmitNs/float64(r.Copies))
		}
	}
	return 0
}

func fastest(rows []Row, direction string) float64 {
	best := 0.0
	for _, r := range rows {
		if r.Direction == direction {
			best = max(best, r.GBps)
		}
	}
	return best
}
