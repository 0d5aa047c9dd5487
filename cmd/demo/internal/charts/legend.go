package charts

import (
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Widths of what is in front of a label, in points: a piece of the line, or a box of the
// colour of bars and areas.
const (
	lineSample vg.Length = 26
	boxSample  vg.Length = 13
)

// drawLegend writes what the series are above the plot, in as many rows as it needs, and
// returns the rest of the canvas. One series needs none.
func (c *Chart) drawLegend(on draw.Canvas) draw.Canvas {
	labels := c.labels()
	if len(labels) < 2 {
		return on
	}
	style := textStyle(Ink, textSize)
	style.XAlign, style.YAlign = draw.XLeft, draw.YCenter
	at := vg.Point{X: on.Min.X, Y: on.Max.Y - textSize/2}
	for i, label := range labels {
		sample := lineSample
		if c.boxed(i) {
			sample = boxSample
		}
		wide := sample + gap/2 + style.Width(label) + 2*gap
		if at.X+wide > on.Max.X+2*gap && at.X > on.Min.X {
			at.X, at.Y = on.Min.X, at.Y-1.5*textSize
		}
		c.drawSample(on, i, at)
		on.FillText(style, vg.Point{X: at.X + sample + gap/2, Y: at.Y}, label)
		at.X += wide
	}
	on.Max.Y = at.Y - textSize - gap
	return on
}

// boxed tells whether series i is bars or an area.
func (c *Chart) boxed(i int) bool { return i >= len(c.Lines) || c.Lines[i].Style == Area }

// drawSample draws a piece of series i.
func (c *Chart) drawSample(on draw.Canvas, i int, at vg.Point) {
	if !c.boxed(i) {
		line, mark := c.Lines[i].look(i)
		on.StrokeLine2(line, at.X, at.Y, at.X+lineSample, at.Y)
		if c.Lines[i].Style == Marked {
			on.DrawGlyph(mark, vg.Point{X: at.X + lineSample/2, Y: at.Y})
		}
		return
	}
	var color Color
	if i < len(c.Lines) {
		color = c.Lines[i].Color
	} else {
		color = c.Bars[i-len(c.Lines)].Color
	}
	box := vg.Rectangle{
		Min: vg.Point{X: at.X, Y: at.Y - textSize/2 + 1},
		Max: vg.Point{X: at.X + boxSample, Y: at.Y + textSize/2 - 1},
	}
	on.SetColor(palette[color])
	on.Fill(box.Path())
}
