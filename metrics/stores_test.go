package metrics

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages/inspect"
)

// stored is an engine with a store.
type stored struct{ stats inspect.StoreStats }

func (s stored) Stats(context.Context) (inspect.Stats, error) {
	return inspect.Stats{Store: &s.stats}, nil
}

func TestStores(t *testing.T) {
	s := inspect.StoreStats{
		SavedObjects: 1, SavedBytes: 2, FetchedObjects: 3, FetchedBytes: 4, Misses: 5, Rejected: 6,
		Replaced: 11, Dropped: 7,
		Calls: 10, Errors: 8, CallTime: 9 * time.Second, BreakerOpen: true, BreakerOpened: 2,
	}
	s.Latency[0], s.Latency[3], s.Latency[inspect.StoreLatencies-1] = 4, 5, 1
	c := New(Options{Model: "m", Engine: "e"})
	c.Attach(stored{s}, nil)
	const labels = `{engine="e",model_name="m"}`
	helps := map[string]string{}
	out := make(chan prometheus.Metric, 1<<10)
	c.Collect(out)
	close(out)
	for m := range out {
		text := m.Desc().String() // Desc{fqName: "…", help: "…", …}
		name, rest, _ := strings.Cut(strings.TrimPrefix(text, `Desc{fqName: "kvactor_store_`),
			`", help: "`)
		helps[name], _, _ = strings.Cut(rest, `"`)
	}
	for _, row := range [][3]string{
		{"breaker_open", "gauge", "1"}, {"breaker_opened_total", "counter", "2"},
		{"misses_total", "counter", "5"},
		{"saved_objects_total", "counter", "1"}, {"saved_bytes_total", "counter", "2"},
		{"dropped_total", "counter", "7"},
		{"fetched_objects_total", "counter", "3"}, {"fetched_bytes_total", "counter", "4"},
		{"rejected_total", "counter", "6"},
		{"errors_total", "counter", "8"}, {"replaced_total", "counter", "11"},
	} {
		name := "kvactor_store_" + row[0]
		want := "# HELP " + name + " " + helps[row[0]] + "\n# TYPE " + name + " " + row[1] + "\n" + name +
			labels + " " + row[2] + "\n"
		require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(want), name))
	}
	const latency = "kvactor_store_call_duration_seconds"
	want := "# HELP " + latency + " " + helps["call_duration_seconds"] + "\n# TYPE " + latency +
		" histogram\n"
	for i, bound := range inspect.StoreLatencyBounds() {
		n := 4
		if i >= 3 {
			n = 9
		}
		want += fmt.Sprintf("%s_bucket{engine=\"e\",model_name=\"m\",le=\"%v\"} %d\n", latency,
			bound.Seconds(), n)
	}
	want += fmt.Sprintf(
		"%s_bucket{engine=\"e\",model_name=\"m\",le=\"+Inf\"} 10\n%s_sum%s 9\n%s_count%s 10\n", latency,
		latency, labels, latency, labels)
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(want), latency))
	problems, err := testutil.CollectAndLint(c)
	require.NoError(t, err)
	assert.Empty(t, problems)

	without := New(Options{Model: "m", Engine: "e"})
	without.Attach(down{}, nil)
	assert.Zero(t, testutil.CollectAndCount(without, "kvactor_store_breaker_open"))
}
