package replay

import (
	"slices"
	"sort"
	"time"
)

// Interval is what happened in a part of a replay.
type Interval struct {
	EndSeconds     float64 `json:"end_seconds"` // of the trace's time; with ModeTimed the device's
	Requests       int64   `json:"requests"`
	Blocks         int64   `json:"blocks"` // looked up
	DeviceHits     int64   `json:"device_hit_blocks"`
	HostHits       int64   `json:"host_hit_blocks"`
	BytesOffloaded int64   `json:"bytes_offloaded"` // device to host
	BytesOnboarded int64   `json:"bytes_onboarded"` // host to device
}

// add adds n times what another interval counts.
func (v *Interval) add(o *Interval, n int64) {
	v.Requests += n * o.Requests
	v.Blocks += n * o.Blocks
	v.DeviceHits += n * o.DeviceHits
	v.HostHits += n * o.HostHits
	v.BytesOffloaded += n * o.BytesOffloaded
	v.BytesOnboarded += n * o.BytesOnboarded
}

// maxSamples bounds a timeline: at the bound every other sample goes.
const maxSamples = 8192

// timeline is how the counters of a replay grow. Each sample is an interval from the start,
// so leaving out samples makes intervals longer and no sum wrong.
type timeline struct {
	samples []Interval
	last    Interval // after the latest request
	stride  int      // requests from one sample to the next
	notes   int
}

// note notes where the counters stand.
func (t *timeline) note(at time.Duration, counted Interval) {
	// The clock of a server that waits for a copy may be behind that of an arrival.
	counted.EndSeconds = max(at.Seconds(), t.last.EndSeconds)
	t.last = counted
	if t.stride == 0 {
		t.stride = 1
	}
	if t.notes++; t.notes%t.stride != 0 {
		return
	}
	if len(t.samples) == maxSamples {
		for i := range maxSamples / 2 {
			t.samples[i] = t.samples[2*i+1]
		}
		t.samples = t.samples[:maxSamples/2]
		t.stride *= 2
		return
	}
	t.samples = append(t.samples, counted)
}

// intervals cuts the timeline into n parts of the same time, or of the same number of
// samples if the clock has stood still. Their sums are the last counters.
func (t *timeline) intervals(n int) []Interval {
	if t.notes == 0 {
		return nil
	}
	samples := append(slices.Clip(t.samples), t.last)
	var list []Interval
	var before Interval
	for i := range n {
		end := t.last.EndSeconds * float64(i+1) / float64(n)
		k := sort.Search(len(samples), func(k int) bool { return samples[k].EndSeconds > end })
		if t.last.EndSeconds == 0 {
			k = len(samples) * (i + 1) / n
		}
		if i == n-1 {
			k = len(samples)
		}
		part := Interval{EndSeconds: end}
		if k > 0 {
			part.add(&samples[k-1], 1)
			part.add(&before, -1)
			before = samples[k-1]
		}
		list = append(list, part)
	}
	return list
}
