package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/charts"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/windows"
)

//go:embed page.html
var source string

// page shows counts as tables do.
var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"count": func(n int) string { return report.Count(n) },
	"large": func(n int64) string { return report.Count(n) },
}).Parse(source))

// figure is a chart in the page.
type figure struct {
	*charts.Chart
	SVG template.HTML
}

// table is numbers in the page. Its first column names the row.
type table struct {
	Title, Note string
	Header      []string
	Rows        [][]string
	Open        bool // shown without being asked for
}

func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.Rows = append(t.Rows, row)
}

// tile is a number that the page begins with.
type tile struct{ Name, Value, Note string }

// Write writes the page.
func (d *Data) Write(w io.Writer) error {
	view := struct {
		*Data
		Light, Dark template.CSS
		Tiles       []tile
		Figures     []figure
		Tables      []*table
		Main        string // the replay of the tiles, if there are several
		Timed       bool
	}{Data: d, Light: template.CSS(charts.CSS(charts.Light)),
		Dark: template.CSS(charts.CSS(charts.Dark)), Tiles: d.tiles()}
	for _, c := range d.Charts() {
		svg, err := c.SVG()
		if err != nil {
			return err
		}
		// drawn here, from numbers and escaped names
		view.Figures = append(view.Figures, figure{c, template.HTML(svg)})
	}
	view.Tables = d.tables()
	if len(d.Replays) > 1 {
		view.Main = title(d.main())
	}
	for _, r := range d.Replays {
		view.Timed = view.Timed || r.Mode == replay.ModeTimed
	}
	return page.Execute(w, view)
}

// tiles are the numbers of the replay that the plots of one replay show.
func (d *Data) tiles() []tile {
	r := d.main()
	list := []tile{
		{"blocks hit", report.Percent(r.Hits, r.Blocks), report.Count(r.Hits) + " of " +
			report.Count(r.Blocks)},
		{"prefill saved", seconds(r.SavedSeconds), "beside " + seconds(r.PrefillSeconds) + " computed"},
	}
	if best, ok := atPages(d.Optimal, r); ok {
		list = append(list, tile{"optimal hits", report.Percent(best.Hits, d.Trace.Blocks),
			"one request at a time"})
	}
	if r.HostPages > 0 {
		list = append(list, tile{"hits from host", report.Percent(r.HostHits, r.Hits),
			report.Count(r.HostHits) + " blocks"})
	}
	return append(list, tile{"requests", report.Count(r.Requests),
		report.Count(r.Refused) + " given up"})
}

func seconds(v float64) string { return report.Duration(time.Duration(v * float64(time.Second))) }

// tables are the numbers behind the plots.
func (d *Data) tables() []*table {
	list := []*table{d.compared()}
	if t := d.copied(); t != nil {
		list = append(list, t, d.called())
	}
	if t := d.staged(); t != nil {
		list = append(list, t)
	}
	if t := d.intervals(); t != nil {
		list = append(list, t)
	}
	return append(list, d.curve(), d.histogram())
}

// compared has a row for each replay, as `demo replay` prints it.
func (d *Data) compared() *table {
	t := &table{
		Title: "Replays", Open: true,
		Note: "to optimal: the share of the way from LRU to optimal with as many blocks, both one request at a time.",
		Header: []string{"policy", "mode", "pages", "host pages", "blocks hit", "rate", "to optimal",
			"prefill saved"},
	}
	for _, r := range d.Replays {
		share := ""
		lru, known := atPages(d.LRU, r)
		if best, ok := atPages(d.Optimal, r); ok && known && best.HitRate > lru.HitRate {
			share = fmt.Sprintf("%.1f %%", 100*(r.HitRate-lru.HitRate)/(best.HitRate-lru.HitRate))
		}
		t.row(r.Policy, r.Mode, report.Count(r.Pages), report.Count(r.HostPages), report.Count(r.Hits),
			fmt.Sprintf("%.2f %%", 100*r.HitRate), share, seconds(r.SavedSeconds))
	}
	return t
}

func (d *Data) copied() *table {
	r := d.main()
	if len(r.Copies) == 0 {
		return nil
	}
	t := &table{Title: "Copies", Note: title(r), Header: []string{"direction", "pages and parts",
		"bytes", "busy"}}
	for _, c := range r.Copies {
		t.row(c.Direction, report.Count(c.Pages), report.Bytes(c.Bytes), seconds(c.Seconds))
	}
	return t
}

func (d *Data) called() *table {
	r := d.main()
	t := &table{Title: "Calls of the engine", Note: title(r),
		Header: []string{"call", "calls", "items", "p50", "p99", "longest", "total"}}
	for _, c := range r.Calls {
		t.row(c.Call, report.Count(c.Calls), report.Count(c.Items), seconds(c.P50), seconds(c.P99),
			seconds(c.Max), seconds(c.Seconds))
	}
	return t
}

func (d *Data) staged() *table {
	r := d.main()
	if len(r.Stages) == 0 {
		return nil
	}
	t := &table{Title: "Stages of the calls", Note: title(r),
		Header: []string{"call", "stage", "total"}}
	for _, s := range r.Stages {
		t.row(s.Call, s.Stage, seconds(s.Seconds))
	}
	return t
}

func (d *Data) intervals() *table {
	r := d.main()
	if len(r.OverTime) == 0 {
		return nil
	}
	t := &table{
		Title: "Over time", Note: title(r),
		Header: []string{"until", "requests", "blocks", "hit on device", "hit on host", "to host",
			"to device"},
	}
	for _, v := range r.OverTime {
		t.row(seconds(v.EndSeconds), report.Count(v.Requests), report.Count(v.Blocks),
			report.Count(v.DeviceHits),
			report.Count(v.HostHits), report.Bytes(v.BytesOffloaded), report.Bytes(v.BytesOnboarded))
	}
	return t
}

func (d *Data) curve() *table {
	t := &table{
		Title: "LRU by stack distances", Header: []string{"blocks that fit", "blocks hit", "rate"},
		Note: "Exactly what " + windows.PriorityLRU +
			" hits with --atomic and as many pages, without host pages.",
	}
	for _, p := range d.LRU {
		t.row(report.Count(p.Blocks), report.Count(p.Hits), fmt.Sprintf("%.2f %%", 100*p.HitRate))
	}
	return t
}

func (d *Data) histogram() *table {
	t := &table{Title: "Reuse distances", Header: []string{"distance", "lookups"}}
	for _, b := range d.Distances {
		t.row(fmt.Sprintf("%s to %s", report.Count(b.From), report.Count(b.To-1)),
			report.Count(b.Lookups))
	}
	t.row("new blocks", report.Count(d.NewBlocks))
	return t
}
