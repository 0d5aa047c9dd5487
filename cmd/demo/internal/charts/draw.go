package charts

import (
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Sizes of a drawing in points. A chart is about as wide as a phone, so that its text is as large
// there as it is drawn; two fit beside each other on a screen.
const (
	width, height vg.Length = 420, 290
	textSize      vg.Length = 13
	titleSize     vg.Length = 15
	gap           vg.Length = 6
	lineWidth     vg.Length = 2
	markRadius    vg.Length = 3.5
)

// dashes tell lines apart without colour: by the place of the line in its chart.
var dashes = [][]vg.Length{nil, {7, 3}, {2, 3}, {9, 3, 2, 3}, {4, 2}, {12, 4}, {1, 2},
	{6, 2, 2, 2, 2, 2}}

// marks tell points apart.
var marks = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{},
	draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{},
}

// textStyle is text of the chart.
func textStyle(c Color, size vg.Length) text.Style {
	return text.Style{
		Color: palette[c], Handler: plot.DefaultTextHandler,
		Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
	}
}

// draw draws the chart: title if wanted, legend, plot.
func (c *Chart) draw(on draw.Canvas, title string) error {
	on.SetColor(palette[Surface])
	on.Fill(on.Rectangle.Path())
	on = draw.Crop(on, gap, -2*gap, gap, -gap)
	if title != "" {
		style := textStyle(Ink, titleSize)
		style.XAlign, style.YAlign = draw.XLeft, draw.YTop
		on.FillText(style, vg.Point{X: on.Min.X, Y: on.Max.Y}, title)
		on = draw.Crop(on, 0, 0, 0, -titleSize-2*gap)
	}
	on = c.drawLegend(on)
	p, err := c.plot(on.Size().X)
	if err != nil {
		return err
	}
	p.Draw(on)
	return nil
}

// plot makes the library's plot.
func (c *Chart) plot(wide vg.Length) (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = palette[Surface]
	x, y := &p.X, &p.Y
	if c.Horizontal {
		x, y = y, x
	}
	for axis, from := range map[*plot.Axis]Axis{x: c.X, y: c.Y} {
		axis.Label.Text, axis.Label.TextStyle = from.Label, withAlign(textStyle(Muted, textSize),
			axis.Label.TextStyle)
		axis.Tick.Label = withAlign(textStyle(Muted, textSize), axis.Tick.Label)
		axis.Color, axis.Tick.Color = palette[Grid], palette[Grid]
		axis.Tick.Marker = ticks{from}
		axis.Padding = 0
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = palette[Grid], palette[Grid]
	if len(c.Bars) > 0 && !c.Horizontal {
		grid.Vertical.Width = 0
	} else if c.Horizontal {
		grid.Horizontal.Width = 0
	}
	p.Add(grid)
	if err := c.addLines(p); err != nil {
		return nil, err
	}
	if err := c.addBars(p, wide); err != nil {
		return nil, err
	}
	y.Min, y.Max = min(0, y.Min), c.top(0)*1.05
	if y.Max <= y.Min {
		y.Max = y.Min + 1
	}
	if c.X.Log {
		x.Scale = plot.LogScale{}
	}
	return p, nil
}

// withAlign gives a style the place that the library has for it.
func withAlign(s, like text.Style) text.Style {
	s.XAlign, s.YAlign, s.Rotation = like.XAlign, like.YAlign, like.Rotation
	return s
}

// look is how series i of lines is drawn.
func (l *Line) look(i int) (draw.LineStyle, draw.GlyphStyle) {
	line := draw.LineStyle{Color: palette[l.Color], Width: lineWidth}
	if l.Style == Dashed || l.Style == Marked {
		line.Dashes = dashes[i%len(dashes)]
	}
	if l.Style == Dashed && line.Dashes == nil {
		line.Dashes = dashes[1]
	}
	return line, draw.GlyphStyle{Color: palette[l.Color], Radius: markRadius,
		Shape: marks[i%len(marks)]}
}

func (c *Chart) addLines(p *plot.Plot) error {
	for i := range c.Lines {
		l := &c.Lines[i]
		points := make(plotter.XYs, len(l.X))
		for k := range l.X {
			points[k] = plotter.XY{X: l.X[k], Y: l.Y[k]}
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.LineStyle, marks.GlyphStyle = l.look(i)
		if l.Style == Area {
			line.FillColor = palette[l.Color]
			line.StepStyle = plotter.PreStep
		}
		p.Add(line)
		if l.Style == Marked || len(points) == 1 {
			p.Add(marks)
		}
	}
	return nil
}

func (c *Chart) addBars(p *plot.Plot, wide vg.Length) error {
	if len(c.Bars) == 0 {
		return nil
	}
	names, room := slices.Clone(c.Categories), 0.72*wide
	if c.Horizontal {
		room = 0.55 * height
	}
	beside := len(c.Bars)
	thick := 0.8 * room / vg.Length(len(names)*beside)
	for i := range c.Bars {
		values := slices.Clone(c.Bars[i].Values)
		if c.Horizontal {
			slices.Reverse(values) // the library counts from the bottom
		}
		bars, err := plotter.NewBarChart(plotter.Values(values), thick)
		if err != nil {
			return err
		}
		bars.Color, bars.Horizontal, bars.LineStyle.Width = palette[c.Bars[i].Color], c.Horizontal, 0
		place := vg.Length(i) - vg.Length(beside-1)/2
		if c.Horizontal {
			place = -place
		}
		bars.Offset = place * thick
		p.Add(bars)
	}
	if c.Horizontal {
		slices.Reverse(names)
		p.NominalY(names...)
	} else {
		p.NominalX(thin(names)...)
	}
	axis := &p.X
	if c.Horizontal {
		axis = &p.Y
	}
	axis.Tick.Label = withAlign(textStyle(Muted, textSize), axis.Tick.Label)
	axis.Color, axis.Width = palette[Grid], vg.Points(0.5)
	return nil
}

// maxNames is how many names fit below a chart.
const maxNames = 8

// thin leaves out names so that they fit, the first one stays.
func thin(names []string) []string {
	every := (len(names) + maxNames - 1) / maxNames
	for i := range names {
		if i%every != 0 {
			names[i] = ""
		}
	}
	return names
}
