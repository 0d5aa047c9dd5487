package charts

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/cmd/demo/internal/report"
)

// Sizes of a chart in characters: of a line, and of the longest bar.
const (
	terminalWidth = 60
	barWidth      = 40
)

// Terminal draws the chart in characters, one row for each line and each bar.
func (c *Chart) Terminal(w io.Writer) error {
	text := c.bars()
	if len(c.Lines) > 0 {
		text = c.graph()
	}
	_, err := fmt.Fprintf(w, "\n%s\n%s", c.Title, text)
	return err
}

// graph draws lines. A row has the heights of a line at even steps of X, which are steps of the
// logarithm if X is logarithmic, and behind them its lowest and its highest value.
func (c *Chart) graph() string {
	position := func(x float64) float64 {
		if c.X.Log {
			return math.Log(x)
		}
		return x
	}
	low, high := math.Inf(1), math.Inf(-1)
	wide := 0
	for i := range c.Lines {
		l := &c.Lines[i]
		low, high = min(low, slices.Min(l.X)), max(high, slices.Max(l.X))
		wide = max(wide, len([]rune(l.Label)))
	}
	first, step := position(low), (position(high)-position(low))/(terminalWidth-1)
	top := max(c.top(0), math.SmallestNonzeroFloat64)
	var b strings.Builder
	for i := range c.Lines {
		l := &c.Lines[i]
		shares, begin, end := make([]float64, terminalWidth), position(l.X[0]), position(l.X[len(l.X)-1])
		for k := range shares {
			at, _ := slices.BinarySearchFunc(l.X, first+step*float64(k),
				func(x, want float64) int { return cmp.Compare(position(x), want) })
			shares[k] = l.Y[min(at, len(l.Y)-1)] / top
		}
		row := []rune(report.Sparkline(shares, terminalWidth))
		for k := range row {
			if x := first + step*float64(k); x < begin-step || x > end+step {
				row[k] = ' '
			}
		}
		fmt.Fprintf(&b, "%-*s %s %s to %s\n", wide, l.Label, string(row),
			c.Y.Unit.format(slices.Min(l.Y)), c.Y.Unit.format(slices.Max(l.Y)))
	}
	fmt.Fprintf(&b, "%*s %-*s%s\n", wide, "", terminalWidth-4, c.X.Unit.format(low),
		c.X.Unit.format(high))
	return b.String()
}

// bars draws a row for each bar.
func (c *Chart) bars() string {
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
			fmt.Fprintf(&b, "%*s %-*s %s%s\n", wide, name, barWidth, strings.Repeat("█", n),
				c.Y.Unit.format(v), label)
			name = ""
		}
	}
	return b.String()
}
