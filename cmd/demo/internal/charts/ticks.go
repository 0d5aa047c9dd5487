package charts

import (
	"math"

	"gonum.org/v1/plot"
)

// ticks places the numbers of an axis. It is a plot.Ticker.
type ticks struct{ axis Axis }

// steps is about how many numbers an axis has.
const steps = 5

// Ticks returns the numbers from low to high.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	if t.axis.Log {
		return t.logTicks(low, high)
	}
	var list []plot.Tick
	step := niceStep(high-low, t.axis.Unit)
	for i := math.Ceil(low / step); i*step <= high; i++ {
		list = append(list, plot.Tick{Value: i * step, Label: t.axis.Unit.format(i * step)})
	}
	return list
}

// niceStep is a round step that divides a range into about so many parts; of bytes a
// power of two.
func niceStep(size float64, u Unit) float64 {
	rough := size / steps
	if rough <= 0 || math.IsInf(rough, 0) || math.IsNaN(rough) {
		return 1
	}
	if u == Bytes {
		return math.Exp2(math.Ceil(math.Log2(rough)))
	}
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, digit := range []float64{1, 2, 2.5, 5} {
		if digit*power >= 0.9*rough {
			return digit * power
		}
	}
	return 10 * power
}

// logTicks are the powers of ten, and 2 and 5 times them if the range is short.
func (t ticks) logTicks(low, high float64) []plot.Tick {
	digits := []float64{1}
	if high/low < 300 {
		digits = []float64{1, 2, 5}
	}
	var list []plot.Tick
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for _, digit := range digits {
			if v := digit * power; v >= low*0.999 && v <= high*1.001 {
				list = append(list, plot.Tick{Value: v, Label: t.axis.Unit.format(v)})
			}
		}
	}
	return list
}
