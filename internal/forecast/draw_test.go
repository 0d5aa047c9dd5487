package forecast

import (
	"fmt"
	"math"
	"strings"
)

// String draws what the policy has learned: the hazard of each bin, and of each value of a
// feature that was seen with a next use its weight, its part of the expected gap, and how many
// gaps taught that.
func (p *Policy) String() string {
	if p.checkpoints != nil {
		return p.checkpoints.String()
	}
	var b strings.Builder
	m := p.model
	fmt.Fprintf(&b,
		"forecast: %d requests, expected gap e^%.2f s, %d of %d blocks watched, %d of %d session ends",
		p.requests, m.base, len(p.watch.index), len(p.watch.ring), len(p.sessions.index),
		len(p.sessions.entries))
	fmt.Fprintf(&b,
		"\n  guard: %.0f look-ups, LRU leads by %.0f ± %.0f, LRU rules %d requests, next %d",
		p.guard.lookups, p.guard.lead, math.Sqrt(p.guard.square), p.guard.ruling, p.guard.term)
	b.WriteString("\n  hazard:")
	for k := range m.bias {
		fmt.Fprintf(&b, " %.2f", m.bias[k].value)
	}
	for i := range m.weight {
		fmt.Fprintf(&b, "\n  feature %d:", i)
		for v := range m.weight[i] {
			if m.scale[i][v].seen > 0 {
				fmt.Fprintf(&b, " %d:%+.2f/%+.2f(%d)",
					v, m.weight[i][v].value, m.scale[i][v].value, m.scale[i][v].seen)
			}
		}
	}
	return b.String()
}

// String draws the hazards that were observed, by class.
func (c *checkpoints) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "forecast of checkpoints: %d observations", c.observed)
	for class := range c.used {
		fmt.Fprintf(&b, "\n  class %d:", class)
		for k := range ageBins {
			if c.reached[class][k] > 0 {
				fmt.Fprintf(&b, " %d:%.2f(%.0f)", k, c.used[class][k]/c.reached[class][k], c.reached[class][k])
			}
		}
	}
	return b.String()
}
