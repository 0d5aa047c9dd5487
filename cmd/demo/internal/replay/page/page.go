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

// tile is a number that the page begins with.
type tile struct{ Name, Value, Note string }

// Write writes the page.
func (d *Data) Write(w io.Writer) error {
	view := struct {
		*Data
		Tiles    []tile
		Figures  []figure
		Compared *report.Table
		Main     string // the replay of the tiles, if there are several
		Timed    bool
	}{Data: d, Tiles: d.tiles(), Compared: d.compared()}
	for _, c := range d.Charts() {
		svg, err := c.SVG()
		if err != nil {
			return err
		}
		// drawn here, from numbers and escaped names
		view.Figures = append(view.Figures, figure{c, template.HTML(svg)})
	}
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

// compared has a row for each replay, as `demo replay` prints it.
func (d *Data) compared() *report.Table {
	t := &report.Table{
		Header: []string{"policy", "mode", "pages", "host pages", "blocks hit", "rate", "to optimal",
			"prefill saved"},
	}
	for _, r := range d.Replays {
		share := ""
		lru, known := atPages(d.LRU, r)
		if best, ok := atPages(d.Optimal, r); ok && known && best.HitRate > lru.HitRate {
			share = fmt.Sprintf("%.1f %%", 100*(r.HitRate-lru.HitRate)/(best.HitRate-lru.HitRate))
		}
		t.Row(r.Policy, r.Mode, report.Count(r.Pages), report.Count(r.HostPages), report.Count(r.Hits),
			fmt.Sprintf("%.2f %%", 100*r.HitRate), share, seconds(r.SavedSeconds))
	}
	return t
}
