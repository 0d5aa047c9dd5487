package report

import (
	"fmt"
	"strings"
	"time"
)

// levels are the characters of a picture, low to high.
var levels = []rune("▁▂▃▄▅▆▇█")

// Sparkline draws shares, 0 to 1, as one character each; values are averaged
// when there are more than width.
func Sparkline(shares []float64, width int) string {
	var b strings.Builder
	n := min(width, len(shares))
	for i := range n {
		from, to := i*len(shares)/n, (i+1)*len(shares)/n
		sum := 0.0
		for _, v := range shares[from:to] {
			sum += v
		}
		level := int(sum / float64(to-from) * float64(len(levels)))
		b.WriteRune(levels[max(0, min(level, len(levels)-1))])
	}
	return b.String()
}

// Count prints a number with thousands apart: 12 345 678.
func Count[T ~int | ~int64](n T) string {
	text := fmt.Sprintf("%d", n)
	sign := ""
	if text[0] == '-' {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return sign + text
}

// Bytes prints a size in binary units.
func Bytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v := float64(n)
	for i, unit := range units {
		if v < 1024 || i == len(units)-1 {
			if i == 0 {
				return fmt.Sprintf("%d B", n)
			}
			return fmt.Sprintf("%.1f %s", v, unit)
		}
		v /= 1024
	}
	return ""
}

// Percent prints part of whole.
func Percent[T ~int | ~int64](part, whole T) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// Duration prints a time with three digits.
func Duration(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g µs", float64(d)/float64(time.Microsecond))
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	case d < 1000*time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
