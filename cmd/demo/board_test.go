package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/charts"
)

// boardFile is the board for Grafana.
const boardFile = "../../docs/grafana/kvactor.json"

// panel is what Grafana draws in one place of a board.
type panel struct {
	Title, Description, Type string
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct {
		Defaults struct {
			Unit   string
			Max    *float64
			Custom struct {
				AxisLabel string
				Stacking  struct{ Mode string }
			}
		}
	}
	Targets []struct{ Expr, LegendFormat string }
}

// board reads the board in docs, with its variables filled in for a model and a range.
func board(t *testing.T, model, interval string) (list []panel) {
	text, err := os.ReadFile(boardFile)
	require.NoError(t, err)
	var b struct{ Panels []panel }
	require.NoError(t, json.Unmarshal(text, &b))
	fill := strings.NewReplacer("$model_name", model, "$engine", ".*", "$__rate_interval", interval)
	for i := range b.Panels {
		for k := range b.Panels[i].Targets {
			q := &b.Panels[i].Targets[k]
			q.Expr = fill.Replace(q.Expr)
		}
	}
	return b.Panels
}

// boardUnits are the units of the board in the words of charts.
var boardUnits = map[string]charts.Unit{
	"short": charts.Count, "percentunit": charts.Percent, "s": charts.Seconds, "Bps": charts.Bytes,
}

// Each panel has a place of its own within the 24 columns, a title, a description, a unit
// that is written as meant, and a legend that tells its lines apart.
func TestTheBoardIsReadable(t *testing.T) {
	taken, titles := map[[2]int]string{}, map[string]bool{}
	for _, p := range board(t, "m", "1m") {
		assert.False(t, titles[p.Title], "two panels are %q", p.Title)
		titles[p.Title] = true
		assert.NotEmpty(t, p.Description, p.Title)
		assert.Contains(t, boardUnits, p.FieldConfig.Defaults.Unit, p.Title)
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				assert.Empty(t, taken[at], "%s is over another panel", p.Title)
				taken[at] = p.Title
			}
		}
		if p.Type == "timeseries" {
			assert.NotEmpty(t, p.FieldConfig.Defaults.Custom.AxisLabel, p.Title)
		}
		for _, q := range p.Targets {
			grouped := regexp.MustCompile(`sum by \(([a-z, ]+)\)`).FindStringSubmatch(q.Expr)
			if grouped == nil {
				continue
			}
			for _, label := range strings.Split(grouped[1], ", ") {
				if label != "le" {
					assert.Contains(t, q.LegendFormat, "{{"+label+"}}", p.Title)
				}
			}
		}
	}
}

// series is one line of a panel.
type series struct {
	label string
	x, y  []float64
}

// load asks the server for the lines of a panel over a range of time that ends now.
func (p *server) load(of *panel, over time.Duration) (list []series) {
	end := time.Now()
	for _, q := range of.Targets {
		var answer struct {
			Data struct {
				Result []struct {
					Metric map[string]string
					Values [][2]any
				}
			}
		}
		p.get(fmt.Sprintf("query_range?start=%f&end=%f&step=%f&query=",
			float64(end.Add(-over).UnixMilli())/1000,
			float64(end.UnixMilli())/1000, over.Seconds()/200), q.Expr, &answer)
		for _, r := range answer.Data.Result {
			s := series{label: regexp.MustCompile(`{{([a-z_]+)}}`).ReplaceAllStringFunc(q.LegendFormat,
				func(name string) string {
					return r.Metric[strings.Trim(name, "{}")]
				})}
			for _, v := range r.Values {
				if y := number(p.t, v[1]); !math.IsNaN(y) && !math.IsInf(y, 0) {
					s.x, s.y = append(s.x, v[0].(float64)-float64(end.Add(-over).UnixMilli())/1000), append(s.y, y)
				}
			}
			if len(s.x) > 0 {
				list = append(list, s)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b series) int { return cmp.Compare(a.label, b.label) })
	return list
}

// chart draws a panel of lines. Those of a stacked one are added up, the highest comes first.
func (of *panel) chart(list []series) *charts.Chart {
	d := &of.FieldConfig.Defaults
	c := &charts.Chart{
		Name: of.Title, Title: of.Title, X: charts.Axis{Unit: charts.Seconds},
		Y: charts.Axis{Label: d.Custom.AxisLabel, Unit: boardUnits[d.Unit]},
	}
	below := map[float64]float64{}
	for i, s := range list {
		l := charts.Line{Label: s.label, Color: charts.Series[i%len(charts.Series)], X: s.x,
			Y: slices.Clone(s.y)}
		if d.Custom.Stacking.Mode == "normal" {
			l.Style = charts.Area
			for k, x := range s.x {
				below[x] += s.y[k]
				l.Y[k] = below[x]
			}
		}
		c.Lines = append(c.Lines, l)
	}
	if d.Custom.Stacking.Mode == "normal" {
		slices.Reverse(c.Lines)
	}
	return c
}

// boardPage lays panels out as Grafana does: 24 columns.
var boardPage = template.Must(template.New("board").Parse(`<!DOCTYPE html><meta charset="utf-8"><title>kvactor</title><style>
body{ margin:8px;background:#f4f5f5;color:#1a1a19;font:14px sans-serif;display:grid;grid-template-columns:repeat(24,1fr);grid-auto-rows:35px;gap:8px}
section{background:#fcfcfb;border:1px solid #dedcd6;border-radius:2px;padding:6px 8px;overflow:hidden;display:flex;flex-direction:column}
h2{font-size:14px;margin:0 0 4px;font-weight:500}svg{width:100%;display:block}b{font-size:28px;color:#14885f;font-weight:500}p{margin:4px 0}</style>
{{range .Panels}}<section style="grid-area:{{.Top}}/{{.Left}}/span {{.GridPos.H}}/span {{.GridPos.W}}"><h2>{{.Title}}</h2>
{{range .Values}}<p>{{.Label}} <b>{{.Value}}</b></p>{{end}}{{.SVG}}</section>
{{end}}`))

// placed is a panel in the page.
type placed struct {
	panel
	Top, Left int
	Values    []struct{ Label, Value string }
	SVG       template.HTML
}

// drawn draws a panel with what a server has for it.
func (p *server) drawn(of panel, over time.Duration) placed {
	list := p.load(&of, over)
	require.NotEmpty(p.t, list, "%s is empty", of.Title)
	at := placed{panel: of, Top: of.GridPos.Y + 1, Left: of.GridPos.X + 1}
	if of.Type == "stat" {
		for _, s := range list {
			text := fmt.Sprintf("%.3g", s.y[len(s.y)-1])
			if of.FieldConfig.Defaults.Unit == "percentunit" {
				text = fmt.Sprintf("%.1f %%", 100*s.y[len(s.y)-1])
			}
			at.Values = append(at.Values, struct{ Label, Value string }{s.label, text})
		}
		return at
	}
	svg, err := of.chart(list).SVG()
	require.NoError(p.t, err)
	at.SVG = template.HTML(svg)
	return at
}

// writeBoard writes the board as a page and as an image into a folder, for those who want to
// look: docs/grafana/kvactor.png was made so.
func (p *server) writeBoard(panels []panel, over time.Duration, folder string) {
	view := struct{ Panels []placed }{}
	for _, of := range panels {
		view.Panels = append(view.Panels, p.drawn(of, over))
	}
	var b bytes.Buffer
	require.NoError(p.t, boardPage.Execute(&b, view))
	file := filepath.Join(folder, "kvactor.html")
	require.NoError(p.t, os.WriteFile(file, b.Bytes(), 0o644))
	bottom := 0
	for _, of := range panels {
		bottom = max(bottom, of.GridPos.Y+of.GridPos.H)
	}
	c := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--user-data-dir="+p.t.TempDir(),
		fmt.Sprintf("--window-size=1200,%d", bottom*43+8), "--screenshot="+
			filepath.Join(folder, "kvactor.png"), file)
	out, err := c.CombinedOutput()
	require.NoError(p.t, err, string(out))
}
