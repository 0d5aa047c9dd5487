package page

import (
	"fmt"

	"github.com/kvactor/kvactor/cmd/demo/internal/charts"
	"github.com/kvactor/kvactor/cmd/demo/internal/paper"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/pool/evict/published"
	"github.com/kvactor/kvactor/windows"
)

// Charts are the plots of the report. Those that would be empty are left out.
func (d *Data) Charts() []*charts.Chart {
	list := []*charts.Chart{d.byTier(), d.overTime(), d.byCapacity(), d.byPolicy(), d.reuse(),
		d.bytes(), d.deviceTime(), d.engineTime()}
	kept := list[:0]
	for _, c := range list {
		if c != nil {
			kept = append(kept, c)
		}
	}
	return kept
}

// title names a replay in the notes of plots.
func title(r *replay.Result) string {
	host := ""
	if r.HostPages > 0 {
		host = " + " + report.Count(r.HostPages)
	}
	return fmt.Sprintf("%s, %s%s pages, %s", r.Policy, report.Count(r.Pages), host, r.Mode)
}

// colorOf is the colour of a policy, the same in all plots.
func colorOf(policy string) charts.Color {
	color, ok := map[string]charts.Color{
		windows.PriorityLRU: charts.Blue, windows.Forecast: charts.Orange, published.S3FIFO: charts.Green,
		published.SupersededLRU: charts.Yellow, published.ARC: charts.Violet,
		published.GDSFDepth: charts.Red,
		published.WTinyLFU:  charts.Pink, paper.Optimal: charts.Neutral,
	}[policy]
	if !ok {
		return charts.Neutral
	}
	return color
}

// times is the axis of a plot over time.
func times(r *replay.Result) charts.Axis {
	if r.Mode == replay.ModeTimed {
		return charts.Axis{Label: "time of the simulated device", Unit: charts.Seconds}
	}
	return charts.Axis{Label: "time of the trace", Unit: charts.Seconds}
}

// rates are the points of a rate over time; intervals without lookups have none.
func rates(r *replay.Result, hits func(*replay.Interval) int64) (x, y []float64) {
	for i := range r.OverTime {
		if v := &r.OverTime[i]; v.Blocks > 0 {
			x = append(x, v.EndSeconds)
			y = append(y, float64(hits(v))/float64(v.Blocks))
		}
	}
	return x, y
}

// soFar are the points of the hit rate from the start up to each time.
func soFar(r *replay.Result) (x, y []float64) {
	hits, blocks := int64(0), int64(0)
	for i := range r.OverTime {
		v := &r.OverTime[i]
		hits, blocks = hits+all(v), blocks+v.Blocks
		if blocks > 0 {
			x, y = append(x, v.EndSeconds), append(y, float64(hits)/float64(blocks))
		}
	}
	return x, y
}

// all counts the hits of an interval in both tiers.
func all(v *replay.Interval) int64 { return v.DeviceHits + v.HostHits }

// byTier is the hit rate of one replay over time. The areas stand on each other: what
// device memory hits, and on top of it what host memory hits.
func (d *Data) byTier() *charts.Chart {
	r := d.main()
	x, both := rates(r, all)
	if len(x) == 0 {
		return nil
	}
	_, device := rates(r, func(v *replay.Interval) int64 { return v.DeviceHits })
	c := &charts.Chart{
		Name: "hit-rate-by-tier", Title: "Hit rate over time, by tier", Note: title(r),
		X: times(r), Y: charts.Axis{Label: "of blocks looked up", Unit: charts.Percent},
	}
	if r.HostPages > 0 {
		c.Lines = append(c.Lines, charts.Line{Label: "host memory", Color: charts.Orange, X: x, Y: both,
			Style: charts.Area})
	}
	c.Lines = append(c.Lines, charts.Line{Label: "device memory", Color: charts.Blue, X: x, Y: device,
		Style: charts.Area})
	return c
}

// overTime is the hit rate of the replays with as many pages as the first one.
func (d *Data) overTime() *charts.Chart {
	first := d.main()
	c := &charts.Chart{
		Name: "hit-rate-over-time", Title: "Hit rate over time, by policy",
		Note: fmt.Sprintf("%s pages, %s. The rate is that of all requests up to each time.",
			report.Count(first.Pages), first.Mode),
		X: times(first), Y: charts.Axis{Label: "of blocks looked up", Unit: charts.Percent},
	}
	for _, r := range d.Replays {
		if r.Pages == first.Pages && r.Mode == first.Mode {
			if x, y := soFar(r); len(x) > 0 {
				c.Lines = append(c.Lines, charts.Line{Label: r.Policy, Color: colorOf(r.Policy), X: x, Y: y,
					Style: charts.Dashed})
			}
		}
	}
	if len(c.Lines) < 2 {
		return nil // the plot by tier has it
	}
	c.Lines[0].Style = charts.Solid
	return c
}

// curveRoom is how many times fewer blocks than the smallest replay the plot begins with.
const curveRoom = 16

// byCapacity is what LRU hits at each capacity, and what the replays have hit at theirs.
func (d *Data) byCapacity() *charts.Chart {
	c := &charts.Chart{
		Name: "hit-rate-by-capacity", Title: "Hit rate against capacity",
		Note: "The line is LRU at every capacity by stack distances: exact for one pool, one tier, " +
			"blocks of the trace and one request at a time. Marks are replays, at their device and host " +
			"pages together.",
		X: charts.Axis{Label: "blocks that fit", Log: true},
		Y: charts.Axis{Label: "of blocks looked up", Unit: charts.Percent},
	}
	line := charts.Line{Label: "LRU, by distances", Color: charts.Blue}
	least := d.Replays[0].Pages
	for _, r := range d.Replays {
		least = min(least, r.Pages)
	}
	for _, p := range d.LRU {
		if p.Blocks*curveRoom < least {
			continue
		}
		line.X, line.Y = append(line.X, float64(p.Blocks)), append(line.Y, p.HitRate)
	}
	c.Lines = append(c.Lines, line)
	index := map[string]int{}
	for _, r := range d.Replays {
		label := r.Policy
		if d.modes() > 1 {
			label += ", " + r.Mode
		}
		i, ok := index[label]
		if !ok {
			i = len(c.Lines)
			index[label] = i
			c.Lines = append(c.Lines, charts.Line{Label: label, Color: colorOf(r.Policy),
				Style: charts.Marked})
		}
		l := &c.Lines[i]
		l.X, l.Y = append(l.X, float64(r.Pages+r.HostPages)), append(l.Y, r.HitRate)
	}
	if _, ok := index[paper.Optimal]; !ok && len(d.Optimal) > 0 {
		l := charts.Line{Label: "optimal", Color: charts.Neutral, Style: charts.Marked}
		for _, p := range d.Optimal {
			l.X, l.Y = append(l.X, float64(p.Blocks)), append(l.Y, p.HitRate)
		}
		c.Lines = append(c.Lines, l)
	}
	for i := range c.Lines {
		c.Lines[i].Sort()
	}
	return c
}

// modes counts the modes of the replays.
func (d *Data) modes() int {
	seen := map[string]bool{}
	for _, r := range d.Replays {
		seen[r.Mode] = true
	}
	return len(seen)
}
