package devicetest

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu/sim"
)

// The measured profiles of package sim are fitted to the rows in testdata: medians of five
// measurements on an H100 and an H200, 26 November 2026, driver 580.159.04. They say what a
// full batch takes to a tenth, from 4 KiB to 4 MiB.
func TestMeasuredProfilesFitTheirRows(t *testing.T) {
	for _, device := range []string{"h100", "h200"} {
		text, err := os.ReadFile("testdata/" + device + ".json")
		require.NoError(t, err)
		var rows []Row
		require.NoError(t, json.Unmarshal(text, &rows))
		named, err := sim.NamedProfile(device + "-measured")
		require.NoError(t, err)
		fitted := sim.Profile{Name: named.Name, SetupNanos: named.SetupNanos,
			DenseTFLOPS: named.DenseTFLOPS}
		fitProfile(&fitted, rows)
		want, got := numbers(fitted), numbers(named)
		for i := range want {
			assert.InEpsilon(t, want[i], got[i], 0.01, "%s, number %d of %v", device, i, want)
		}
		compared := 0
		for _, r := range rows {
			if r.Copies > 1 && r.InFlight == 1 && (r.Direction == "onboard" || r.Direction == "offload") {
				assert.InEpsilon(t, float64(r.Bytes)/r.GBps, batchNanos(named, r), 0.1, "%s, %s of %d bytes",
					device, r.Direction, r.Bytes)
				compared++
			}
		}
		assert.Equal(t, 2*len(sizes), compared)
	}
}

// numbers are the fitted ones of a profile.
func numbers(p sim.Profile) []float64 {
	list := []float64{p.CallNanos, p.DescriptorNanos, p.BothGBps, p.HBMGBps}
	for _, l := range []sim.Lane{p.Onboard, p.Offload} {
		list = append(list, l.GBps, l.Small.Nanos, l.Small.GBps, l.Large.Nanos, l.Large.GBps)
	}
	return list
}

// batchNanos is what a profile says of a descriptor in a full batch, the processor's time
// included.
func batchNanos(p sim.Profile, r Row) float64 {
	l := p.Offload
	if r.Direction == "onboard" {
		l = p.Onboard
	}
	g := l.Large
	if r.Bytes < l.SmallBelow {
		g = l.Small
	}
	return p.DescriptorNanos + max(g.Nanos+float64(r.Bytes)/g.GBps, float64(r.Bytes)/l.GBps)
}

// A fit finds the numbers that times were made of, the processor's time apart, and is little
// moved by one size that was measured too fast.
func TestFit(t *testing.T) {
	const submit = 530
	rows := func(truth sim.Regime, wrong float64) (rows []Row) {
		for i, bytes := range append(smallSizes, largeSizes...) {
			nanos := submit + truth.Nanos + float64(bytes)/truth.GBps
			if i == 0 {
				nanos *= wrong
			}
			rows = append(rows, Row{Direction: "onboard", Bytes: bytes, Copies: 100, InFlight: 1,
				GBps: float64(bytes) / nanos})
		}
		return rows
	}
	truth := sim.Regime{Nanos: 60, GBps: 55}
	exact := rows(truth, 1)
	got := regime(exact, "onboard", submit, smallSizes, math.Inf(1))
	assert.InEpsilon(t, truth.Nanos, got.Nanos, 1e-6)
	assert.InEpsilon(t, truth.GBps, got.GBps, 1e-6)
	for _, wrong := range []float64{0.97, 0.93, 0.9} {
		got := regime(rows(truth, wrong), "onboard", submit, smallSizes, math.Inf(1))
		for _, bytes := range smallSizes[1:] {
			assert.InEpsilon(t, submit+truth.Nanos+float64(bytes)/truth.GBps,
				submit+got.Nanos+float64(bytes)/got.GBps, 0.08, "%v, %d bytes", wrong, bytes)
		}
	}
	bounded := regime(exact, "onboard", submit, largeSizes, 1/60.0)
	assert.InEpsilon(t, 60, bounded.GBps, 1e-9, "a byte takes no longer than the bound")
	assert.Greater(t, bounded.Nanos, truth.Nanos)
	free := regime(rows(sim.Regime{Nanos: -50, GBps: 55}, 1), "onboard", submit, largeSizes,
		math.Inf(1))
	assert.InDelta(t, 1, free.Nanos, 1e-9, "a descriptor is not less than nothing")
	assert.InEpsilon(t, 55, free.GBps, 0.2)
	none := regime(nil, "onboard", submit, smallSizes, math.Inf(1))
	assert.Positive(t, none.GBps)
}
