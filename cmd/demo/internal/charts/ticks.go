package charts

import "gonum.org/v1/plot"

// ticks writes the library's numbers of an axis in its unit. It is a plot.Ticker.
type ticks struct{ axis Axis }

// Ticks returns the numbers from low to high.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	var library plot.Ticker = plot.DefaultTicks{}
	if t.axis.Log {
		library = plot.LogTicks{}
	}
	list := library.Ticks(low, high)
	for i := range list {
		if list[i].Label != "" {
			list[i].Label = t.axis.Unit.format(list[i].Value)
		}
	}
	return list
}
