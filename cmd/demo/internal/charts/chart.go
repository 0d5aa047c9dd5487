package charts

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/report"
)

// Chart is one chart: Lines over numbers, or Bars over Categories.
type Chart struct {
	Name  string // of its file, without an extension
	Title string
	Note  string // what to know when reading it
	X, Y  Axis
	Lines []Line

	Categories []string
	Bars       []Bars
	// Horizontal bars have their categories on the left, the first one on top.
	Horizontal bool
}

// Axis says how numbers are written. Bars have their values on Y, whichever way they are drawn.
type Axis struct {
	Label string
	Unit  Unit
	Log   bool // of X only; no value may be 0
}

// Line is a series of points, in the order of X.
type Line struct {
	Label string
	Color Color
	X, Y  []float64
	Style LineStyle
}

// LineStyle says how the points of a line are drawn.
type LineStyle int

// The styles. An area reaches down to 0; of areas that stand on each other the highest
// comes first.
const (
	Solid LineStyle = iota
	Dashed
	Marked // the points are marked
	Area
)

// Bars is a series of bars, one for each category.
type Bars struct {
	Label  string
	Color  Color
	Values []float64
}

// Unit says how the numbers of an axis are written.
type Unit int

// The units.
const (
	Count Unit = iota
	Percent
	Bytes
	Seconds
)

// format writes a number in the unit.
func (u Unit) format(v float64) string {
	switch u {
	case Percent:
		return digits(100*v) + " %"
	case Bytes:
		if v != 0 {
			return report.Bytes(int64(v))
		}
	case Seconds:
		if v != 0 {
			return report.Duration(time.Duration(v * float64(time.Second)))
		}
	}
	i, suffixes := 0, [...]string{"", "k", "M", "G"}
	for ; (v >= 1000 || v <= -1000) && i < len(suffixes)-1; i++ {
		v /= 1000
	}
	return digits(v) + suffixes[i]
}

// digits writes a number with three digits, more only before the point.
func digits(v float64) string {
	places := 0
	for a := math.Abs(v); a < 100 && places < 2; a *= 10 {
		places++
	}
	text := strconv.FormatFloat(v, 'f', places, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// labels are those of the series, in their order.
func (c *Chart) labels() (list []string) {
	for i := range c.Lines {
		list = append(list, c.Lines[i].Label)
	}
	for i := range c.Bars {
		list = append(list, c.Bars[i].Label)
	}
	return list
}

// top is the highest value that the chart must have room for, at least least.
func (c *Chart) top(least float64) float64 {
	for i := range c.Lines {
		for _, y := range c.Lines[i].Y {
			least = max(least, y)
		}
	}
	for k := range c.Categories {
		for i := range c.Bars {
			least = max(least, c.Bars[i].Values[k])
		}
	}
	return least
}

// Sort puts the points of a line in the order of X.
func (l *Line) Sort() {
	order := make([]int, len(l.X))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(l.X[a], l.X[b]) })
	x, y := make([]float64, len(order)), make([]float64, len(order))
	for i, k := range order {
		x[i], y[i] = l.X[k], l.Y[k]
	}
	l.X, l.Y = x, y
}
