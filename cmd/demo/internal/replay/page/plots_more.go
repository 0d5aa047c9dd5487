package page

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/cmd/demo/internal/charts"
	"github.com/kvactor/kvactor/cmd/demo/internal/paper"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/cmd/demo/internal/report"
)

// maxGroups is how many numbers of pages the plot of policies compares.
const maxGroups = 4

// byPolicy compares the policies with the optimum, at up to four numbers of pages.
func (d *Data) byPolicy() *charts.Chart {
	c := &charts.Chart{
		Name: "policies", Title: "Policies compared with the optimum", Horizontal: true,
		Note: "Optimal knows the future: it keeps the blocks whose next use is nearest, and no policy " +
			"hits more while requests come one at a time.",
		Y: charts.Axis{Label: "of blocks looked up", Unit: charts.Percent},
	}
	type cell struct {
		name  string
		pages int
	}
	rate := map[cell]float64{}
	var pages []int
	add := func(name string, r *replay.Result, value float64) {
		if !slices.Contains(c.Categories, name) {
			c.Categories = append(c.Categories, name)
		}
		if !slices.Contains(pages, r.Pages) {
			pages = append(pages, r.Pages)
		}
		rate[cell{name, r.Pages}] = value
	}
	for _, r := range d.Replays {
		name := r.Policy
		if d.modes() > 1 && r.Policy != paper.Optimal {
			name += ", " + r.Mode
		}
		add(name, r, r.HitRate)
	}
	for _, r := range d.Replays {
		if best, ok := atPages(d.Optimal, r); ok {
			add(paper.Optimal, r, best.HitRate)
		}
	}
	slices.Sort(pages)
	for len(pages) > maxGroups {
		pages = slices.Delete(pages, len(pages)/2, len(pages)/2+1)
	}
	for i, n := range pages {
		bars := charts.Bars{Label: report.Count(n) + " pages", Color: charts.Series[i]}
		for _, name := range c.Categories {
			bars.Values = append(bars.Values, rate[cell{name, n}])
		}
		c.Bars = append(c.Bars, bars)
	}
	return c
}

// reuse is the histogram of the distances.
func (d *Data) reuse() *charts.Chart {
	c := &charts.Chart{
		Name: "reuse-distance", Title: "Reuse distance",
		Note: fmt.Sprintf(
			"Different blocks used between two uses of a block, the block itself included. %s lookups "+
				"have none: the block is new.", report.Count(d.NewBlocks)),
		X: charts.Axis{Label: "blocks, at least"}, Y: charts.Axis{Label: "lookups"},
		Bars: []charts.Bars{{Label: "lookups", Color: charts.Blue}},
	}
	for _, b := range d.Distances {
		c.Categories = append(c.Categories, shortCount(b.From))
		c.Bars[0].Values = append(c.Bars[0].Values, float64(b.Lookups))
	}
	if len(c.Categories) == 0 {
		return nil
	}
	return c
}

// shortCount writes a power of two.
func shortCount(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%dMi", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dKi", n>>10)
	}
	return fmt.Sprint(n)
}

// bytes is what was copied each way over time.
func (d *Data) bytes() *charts.Chart {
	r := d.main()
	c := &charts.Chart{
		Name: "bytes", Title: "Bytes each way over time", X: times(r),
		Y: charts.Axis{Label: "in each interval", Unit: charts.Bytes},
		Lines: []charts.Line{
			{Label: "device to host", Color: charts.Orange, Style: charts.Solid},
			{Label: "host to device", Color: charts.Blue, Style: charts.Dashed},
		},
	}
	total := int64(0)
	for i := range r.OverTime {
		v := &r.OverTime[i]
		total += v.BytesOffloaded + v.BytesOnboarded
		for k, n := range []int64{v.BytesOffloaded, v.BytesOnboarded} {
			c.Lines[k].X, c.Lines[k].Y = append(c.Lines[k].X, v.EndSeconds), append(c.Lines[k].Y, float64(n))
		}
	}
	if total == 0 {
		return nil
	}
	c.Note = fmt.Sprintf("%s; %d intervals of %.4g s", title(r), len(r.OverTime),
		r.OverTime[0].EndSeconds)
	return c
}

// deviceTime is where the time of the simulated device goes, beside what reuse has saved.
func (d *Data) deviceTime() *charts.Chart {
	r := d.main()
	if len(r.Copies) == 0 {
		return nil
	}
	c := &charts.Chart{
		Name: "device-time", Title: "Where the device's time goes", Horizontal: true,
		Note: title(r) +
			fmt.Sprintf(
				"; %s s simulated in all. Copies go on beside kernels, and are as small as the replay's "+
					"pages: %s. Prefill saved is time that reuse has saved.",
				number(r.DeviceSeconds), report.Bytes(r.PageBytes)),
		Y: charts.Axis{Label: "simulated time", Unit: charts.Seconds},
	}
	bars := charts.Bars{Label: "time", Color: charts.Blue}
	row := func(name string, seconds float64) {
		c.Categories, bars.Values = append(c.Categories, name), append(bars.Values, seconds)
	}
	row("kernels", r.ComputeSeconds)
	for _, copies := range r.Copies {
		if copies.Bytes > 0 {
			row(copies.Direction, copies.Seconds)
		}
	}
	row("prefill saved", r.SavedSeconds)
	c.Bars = []charts.Bars{bars}
	return c
}

// engineTime is where the engine's own time goes.
func (d *Data) engineTime() *charts.Chart {
	r := d.main()
	if len(r.Calls) == 0 {
		return nil
	}
	c := &charts.Chart{
		Name: "engine-time", Title: "Where the engine's time goes", Horizontal: true,
		Note: title(r) +
			fmt.Sprintf(
				"; wall time inside calls, %s s of %s s. Replays at the same time slow each other down: "+
					"--jobs 1 measures.", number(r.EngineSeconds), number(r.Seconds)),
		Y: charts.Axis{Label: "wall time", Unit: charts.Seconds},
	}
	bars := charts.Bars{Label: "wall time", Color: charts.Violet}
	for _, call := range r.Calls {
		c.Categories, bars.Values = append(c.Categories, call.Call), append(bars.Values, call.Seconds)
	}
	c.Bars = []charts.Bars{bars}
	return c
}

// number writes seconds with four digits.
func number(v float64) string { return fmt.Sprintf("%.4g", v) }
