package plan

import (
	"fmt"
	"math"
	"strings"

	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/gpu"
)

const onboard = gpu.Onboard

// between is the number at a part of the way from first to last, both of which
// are 1 or more, on a logarithmic scale.
func between(first, last int, part float64) int {
	a, b := math.Log(float64(first)), math.Log(float64(last))
	return int(math.Round(math.Exp(a + part*(b-a))))
}

const (
	chartHeight = 10 // lines
	axisWidth   = 9  // of the numbers beside it
)

// Chart draws the sequences that fit against their length, both on logarithmic
// scales: a column for each length, from one sequence up.
func (p *Plan) Chart(style report.Style) string {
	most := 1
	for _, f := range p.chart {
		most = max(most, f.Sequences)
	}
	bar, corner, side, line := "#", "+", "|", "-"
	if style == report.Unicode {
		bar, corner, side, line = "█", "└", "│", "─"
	}
	var b strings.Builder
	for row := chartHeight; row >= 1; row-- {
		// A column reaches a line if it has at least as many sequences as the
		// lower edge of the line says.
		edge := math.Pow(float64(most), float64(row-1)/float64(chartHeight))
		label := ""
		if row == chartHeight || row == 1 || row == chartHeight/2 {
			label = report.Count(int64(math.Round(edge)))
		}
		if row == chartHeight {
			label = report.Count(int64(most))
		}
		text := fmt.Sprintf("%*s %s", axisWidth, label, side)
		for _, f := range p.chart {
			if f.Sequences >= 1 && float64(f.Sequences) >= edge {
				text += bar
			} else {
				text += " "
			}
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	fmt.Fprintf(&b, "%*s %s%s\n", axisWidth, "", corner, strings.Repeat(line, len(p.chart)))
	first, last := p.chart[0].Tokens, p.chart[len(p.chart)-1].Tokens
	middle := p.chart[len(p.chart)/2].Tokens
	left, mid, right := report.Count(first), report.Count(middle), report.Count(last)
	gap := len(p.chart) - len(left) - len(mid) - len(right)
	fmt.Fprintf(&b, "%*s  %s%s%s%s%s tokens\n", axisWidth, "", left,
		strings.Repeat(" ", max(1, gap/2)), mid, strings.Repeat(" ", max(1, gap-gap/2)), right)
	return b.String()
}
