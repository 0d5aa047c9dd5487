package charts

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/guptarohit/asciigraph"
)

// Characters says what a terminal can show.
type Characters int

// The sets of characters. Colours are only used with Unicode, by terminals of today.
const (
	ASCII Characters = iota
	Unicode
)

// Sizes of a chart in characters.
const (
	terminalWidth  = 64
	terminalHeight = 12
	barWidth       = 40
)

// terminalColors are the colours of series on a terminal.
var terminalColors = map[Color]asciigraph.AnsiColor{
	Blue: asciigraph.DodgerBlue, Orange: asciigraph.DarkOrange, Green: asciigraph.MediumSeaGreen,
	Yellow: asciigraph.Goldenrod, Violet: asciigraph.MediumPurple, Red: asciigraph.IndianRed,
	Pink: asciigraph.HotPink, Neutral: asciigraph.Gray,
}

// Terminal draws the chart in characters.
func (c *Chart) Terminal(w io.Writer, with Characters) error {
	if _, err := fmt.Fprintf(w, "\n%s\n", c.Title); err != nil {
		return err
	}
	text := c.bars(with)
	if len(c.Lines) > 0 {
		text = c.graph(with)
	}
	_, err := fmt.Fprintln(w, strings.TrimRight(text, "\n"))
	return err
}

// graph draws lines. The library has one value for each column, so lines are read off at
// even steps, which are steps of the logarithm if X is logarithmic.
func (c *Chart) graph(with Characters) string {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range c.Lines {
		for _, x := range c.Lines[i].X {
			low, high = min(low, c.position(x)), max(high, c.position(x))
		}
	}
	var data [][]float64
	options := []asciigraph.Option{
		asciigraph.Height(terminalHeight), asciigraph.LowerBound(0),
		asciigraph.YAxisValueFormatter(c.Y.Unit.format),
		asciigraph.XAxisRange(low, high), asciigraph.XAxisTickCount(steps),
		asciigraph.XAxisValueFormatter(func(x float64) string {
			if c.X.Log {
				x = math.Exp(x)
			}
			return c.X.Unit.format(x)
		}),
	}
	var inks []asciigraph.AnsiColor
	for i := range c.Lines {
		l := &c.Lines[i]
		row := make([]float64, terminalWidth)
		for k := range row {
			row[k] = l.at(low+(high-low)*float64(k)/(terminalWidth-1), c.position)
		}
		for k, x := range l.X {
			// A point is drawn even if no column is exactly where it is.
			if column := c.column(x, low, high); math.IsNaN(row[column]) {
				row[column] = l.Y[k]
			}
		}
		data = append(data, row)
		inks = append(inks, terminalColors[l.Color])
	}
	if with == Unicode {
		options = append(options, asciigraph.SeriesColors(inks...),
			asciigraph.SeriesLegends(c.labels()...))
		return asciigraph.PlotMany(data, options...)
	}
	// Without colours each line has a letter.
	var sets []asciigraph.CharSet
	legend := ""
	for i, label := range c.labels() {
		letter := string(rune('a' + i%26))
		sets = append(sets, asciigraph.CreateCharSet(letter))
		legend += "  " + letter + ": " + label
	}
	text := asciigraph.PlotMany(data, append(options, asciigraph.SeriesChars(sets...))...)
	return strings.NewReplacer("┤", "|", "┼", "+", "─", "-", "└", "+", "┬", "+", "│", "|", "┴", "+",
		"┘", "+").Replace(text) + "\n" + legend
}

// position is where a value of X is drawn.
func (c *Chart) position(x float64) float64 {
	if c.X.Log {
		return math.Log(x)
	}
	return x
}

// column is the one nearest to a value of X.
func (c *Chart) column(x, low, high float64) int {
	if high <= low {
		return 0
	}
	return int(math.Round((c.position(x) - low) / (high - low) * (terminalWidth - 1)))
}

// at is the value of a line at a position, between two points the straight line between
// them. Beside its points a line has no value.
func (l *Line) at(x float64, position func(float64) float64) float64 {
	const slack = 1e-9 // of rounding
	for k := range l.X {
		right := position(l.X[k])
		if x > right+slack {
			continue
		}
		if k == 0 {
			if x < right-slack {
				return math.NaN()
			}
			return l.Y[0]
		}
		left := position(l.X[k-1])
		if right == left {
			return l.Y[k]
		}
		return l.Y[k-1] + (l.Y[k]-l.Y[k-1])*(x-left)/(right-left)
	}
	return math.NaN()
}

// bars draws a row for each bar.
func (c *Chart) bars(with Characters) string {
	full := "#"
	if with == Unicode {
		full = "█"
	}
	wide := 0
	for _, name := range c.Categories {
		wide = max(wide, len([]rune(name)))
	}
	top := c.top(0)
	var b strings.Builder
	for k, name := range c.Categories {
		for i := range c.Bars {
			v, n := c.Bars[i].Values[k], 0
			if top > 0 {
				n = int(math.Round(max(0, v) / top * barWidth))
			}
			label := ""
			if len(c.Bars) > 1 {
				label = "  " + c.Bars[i].Label
			}
			fmt.Fprintf(&b, "%*s %-*s %s%s\n", wide, name, barWidth, strings.Repeat(full, n),
				c.Y.Unit.format(v), label)
			name = ""
		}
	}
	return b.String()
}
