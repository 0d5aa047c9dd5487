package metrics

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	names "github.com/kvactor/kvactor/internal/calls"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/offloader/stores"
)

// served is a collector over an engine that has served prompts: two alike, one that is
// too long, one refused call.
func served(t *testing.T, o Options) *Collector {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.HostCacheSize, cache.MaxAttentionWindow = 4, 1<<14, []int{8, 64}
	c := New(o)
	c.Configure(cache)
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{Layers: 2, KVHeads: []int{1, 1}, HeadDim: 8, DType: kvactor.Float16,
			MaxSeqLen: 64},
		Cache: cache, Pages: []kvactor.PageCounts{{Primary: 6, Secondary: 8}, {Primary: 8, Secondary: 8}},
		Device: device,
	}, actors.WithCallObserver(c.Observe), actors.WithStageObserver(c.ObserveStages),
		actors.WithPageObserver(1, c.ObservePage),
		actors.WithStore(actors.StoreConfig{Store: &stores.Memory{}, Model: "m"}))
	require.NoError(t, err)
	c.ObservePage(inspect.PageTime{Pool: 0, Duration: time.Hour}) // before Attach: no pool has a name
	t.Cleanup(func() {
		_, err := e.Close(context.WithoutCancel(t.Context()))
		require.NoError(t, err)
	})
	c.Attach(e, e.Pools())
	c.Copied("offload", 30*time.Millisecond, 7)
	c.Copied("offload", 20*time.Millisecond, 3)
	c.Copied("onboard bulk", time.Millisecond, 2e6)
	c.Copied("copy", time.Millisecond, 5)
	c.CopyEnded("offload", 70*time.Millisecond)
	prompt := func(first messages.Token) []messages.Token {
		tokens := make([]messages.Token, 17)
		tokens[0] = first
		return tokens
	}
	c.ObservePage(inspect.PageTime{Kind: 99})
	for _, first := range []messages.Token{0, 0, 1, 2, 0} { // 1 and 2 move 0 to host memory
		s, err := e.Admit(t.Context(), kvactor.AdmitRequest{Tokens: prompt(first)})
		require.NoError(t, err)
		require.NoError(t, s.Commit(t.Context(), 17, kvactor.Ticket{}))
		require.NoError(t, s.Release(t.Context(), kvactor.Ticket{}))
	}
	_, err = e.Admit(t.Context(), kvactor.AdmitRequest{Tokens: make([]messages.Token, 60)})
	require.ErrorIs(t, err, messages.ErrOutOfPages)
	require.ErrorIs(t, e.Unpin(t.Context(), 99), messages.ErrUnknownPin)
	return c
}

// value is that of one metric, whose other labels are not looked at.
func value(t *testing.T, c prometheus.Collector, name string, labels ...string) float64 {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			text := m.String()
			if !slices.ContainsFunc(labels,
				func(l string) bool { return !strings.Contains(text, `value:"`+l+`"`) }) {
				switch {
				case m.Gauge != nil:
					return m.GetGauge().GetValue()
				case m.Counter != nil:
					return m.GetCounter().GetValue()
				default:
					return float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
	}
	t.Fatalf("no metric %s with labels %v", name, labels)
	return 0
}

// What is exported is what the engine counts, and what was observed.
func TestWhatIsExported(t *testing.T) {
	c := served(t, Options{Model: "m", Waiting: func() int { return 3 }})
	stats, err := c.source.Stats(t.Context())
	require.NoError(t, err)
	for _, want := range []struct {
		value  float64
		name   string
		labels []string
	}{
		{1, "kvactor_up", []string{"m", "0"}},
		{5, "kvactor_requests_total", nil},
		{85, "kvactor_prompt_tokens_total", nil},
		{float64(stats.ReusedTokens), "kvactor_reused_tokens_total", nil},
		{0, "kvactor_sequences_running", nil},
		{1, "kvactor_ranks", nil},
		{float64(stats.Memory.DeviceBytes), "kvactor_memory_bytes", []string{"device", "pages"}},
		{float64(stats.Memory.ContentBytes), "kvactor_memory_bytes", []string{"host", "contents"}},
		{float64(stats.Memory.AheadBytes), "kvactor_memory_bytes", []string{"host", "ahead"}},
		{float64(stats.Memory.SaveBytes), "kvactor_memory_bytes", []string{"host", "saves"}},
		{float64(stats.Memory.MetadataBytes), "kvactor_memory_bytes", []string{"host", "records"}},
		{3, "kvactor_requests_waiting", nil},
		{5, "kvactor_admissions_total", []string{"admitted"}},
		{1, "kvactor_admissions_total", []string{"out_of_pages"}},
		{1, "kvactor_call_refusals_total", []string{"unknown_pin"}},
		{6, "kvactor_call_duration_seconds", []string{"admit"}},
		{5, "kvactor_call_duration_seconds", []string{"commit"}},
		{51, "kvactor_missed_tokens_total", []string{"cold"}},
		{0, "kvactor_missed_tokens_total", []string{"disabled"}},
		{0, "kvactor_sequences_lost", nil},
		{0, "kvactor_admissions_waiting", nil},
		{0, "kvactor_calls_in_flight", nil},
		{0, "kvactor_calls_blocked", nil},
		{0, "kvactor_copies_refused_total", nil},
		{5, "kvactor_request_prompt_tokens", nil},
		{5, "kvactor_request_reused_tokens", nil},
		{1, "kvactor_copy_latency_seconds", []string{"offload"}},
		{float64(stats.Pools[1].Primary.Cached), "kvactor_pages",
			[]string{"wfullh1", "primary", "cached"}},
		{float64(stats.Pools[0].Primary.Free), "kvactor_pages", []string{"w8h1", "primary", "free"}},
		{float64(stats.Pools[1].BytesOffloaded), "kvactor_offloaded_bytes_total", []string{"wfullh1"}},
		{.05, "kvactor_link_busy_seconds_total", []string{"offload"}},
		{10, "kvactor_link_bytes_total", []string{"offload"}},
		{2, "kvactor_copy_duration_seconds", []string{"offload"}},
		{6, "kvactor_stage_duration_seconds", []string{"admit", "queue"}},
		{5, "kvactor_stage_duration_seconds", []string{"commit", "queue"}},
		{8, "kvactor_pool_window_tokens", []string{"w8h1"}},
		{4, "kvactor_pool_block_tokens", []string{"wfullh1"}},
	} {
		assert.InDelta(t, want.value, value(t, c, want.name, want.labels...), 1e-9, "%s %v", want.name,
			want.labels)
	}
	assert.InDelta(t, float64(stats.Pools[0].Evicted), value(t, c, "kvactor_page_lifetime_seconds",
		"w8h1"), 1e-9, "each page is followed")
	assert.InDelta(t, float64(stats.Pools[1].Evicted), value(t, c,
		"kvactor_page_idle_before_eviction_seconds", "wfullh1"), 1e-9)
	assert.Positive(t, value(t, c, "kvactor_page_reuse_gap_seconds", "wfullh1"))
	for _, stage := range []string{"match", "take", "move", "apply"} {
		assert.Positive(t, value(t, c, "kvactor_stage_duration_seconds", "admit", stage), stage)
	}
	device, host := value(t, c, "kvactor_hit_tokens_total", "device"),
		value(t, c, "kvactor_hit_tokens_total", "host")
	assert.InDelta(t, float64(stats.ReusedTokens), device+host, 1e-9)
	assert.Positive(t, host)
	assert.Positive(t, device)
}

// promtool finds nothing wrong with our own names.
func TestNamesAreClean(t *testing.T) {
	c := served(t, Options{Model: "m"})
	problems, err := testutil.CollectAndLint(c)
	require.NoError(t, err)
	assert.Equal(t, []promlint.Problem(nil), problems)
}

// exported lists the names of a collector's metrics.
func exported(t *testing.T, c prometheus.Collector) (names []string) {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		names = append(names, f.GetName())
	}
	return names
}

// An engine that does not answer is down; what was observed is exported all the same.
func TestAnEngineThatIsDown(t *testing.T) {
	c := New(Options{Model: "m"})
	c.Observe(t.Context(), &messages.Reset{}, time.Now(), context.Canceled)
	assert.NotContains(t, exported(t, c), "kvactor_up")
	c.Attach(down{}, nil)
	assert.InDelta(t, 0, value(t, c, "kvactor_up"), 0)
	assert.InDelta(t, 1, value(t, c, "kvactor_call_refusals_total", "canceled"), 0)
	assert.NotContains(t, exported(t, c), "kvactor_requests_total")
}

type down struct{}

func (down) Stats(context.Context) (inspect.Stats, error) {
	return inspect.Stats{}, errors.New("down")
}

// named is an engine whose weights have any name.
type named string

func (n named) Stats(context.Context) (inspect.Stats, error) {
	return inspect.Stats{Weights: string(n)}, nil
}

// The epoch of the weights is any string, as the bytes of a hash; a label is UTF-8.
func TestTheNameOfWeightsIsNoText(t *testing.T) {
	for name, label := range map[string]string{"": "", "step 2": "step 2", "a\xffb": "a\uFFFDb"} {
		c := New(Options{Model: "m"})
		c.Attach(named(name), nil)
		assert.InDelta(t, 1, value(t, c, "kvactor_weights_info", label), 0)
	}
}

// Each kind of call has a name, so that none is counted among others by mistake.
func TestCallsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, request := range []any{
		&messages.Admit{}, &messages.Append{}, &messages.Commit{}, &messages.Release{},
		&messages.Rewind{}, &messages.Fork{},
		&messages.ReadTables{}, &messages.Lookup{}, &messages.PinPrefix{}, &messages.UnpinPrefix{},
		&messages.Invalidate{},
		&messages.Prefetch{}, &messages.Reset{}, &messages.Rebalance{}, &inspect.ReadStats{},
		&inspect.ReadOverview{}, &kvevents.ReadEvents{}, &inspect.Check{},
		&messages.WriteScales{}, &messages.ReadScales{}, &protocol.Fetch{}, &protocol.DescribeSequence{},
		&protocol.BeginImport{}, struct{}{},
	} {
		name, err := names.Name(request)
		require.NoError(t, err)
		assert.False(t, seen[name], name)
		assert.Contains(t, callNames, name)
		seen[name] = true
	}
	assert.Len(t, seen, len(callNames))
	for _, request := range []any{&kvevents.ReadSnapshot{}, &kvevents.OpenReader{},
		&kvevents.CloseReader{}} {
		name, _ := names.Name(request)
		assert.Equal(t, "events", name)
	}
	name, err := names.Name(&protocol.TransferPages{Err: messages.ErrUnknownSequence})
	assert.Equal(t, "export", name)
	require.ErrorIs(t, err, messages.ErrUnknownSequence)
	assert.Equal(t, "deadline_exceeded", codeOf(context.DeadlineExceeded))
	assert.Equal(t, "other", codeOf(errors.New("x")))
}

// The stages of a call follow each other: their times add up to that of the call.
func TestStagesAddUp(t *testing.T) {
	c := New(Options{Model: "m"})
	began := time.Now().Add(-time.Hour)
	c.ObserveStages(t.Context(), &messages.Admit{}, []inspect.StageMark{
		{Stage: inspect.StageQueue, Began: began}, {Stage: inspect.StageMatch,
			Began: began.Add(time.Minute)},
		{Stage: inspect.StageWait, Began: began.Add(3 * time.Minute)},
		{Stage: inspect.StageMatch, Began: began.Add(10 * time.Minute)},
	}, nil)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	require.NoError(t, err)
	sum := func(stage string) float64 {
		for _, f := range families {
			if f.GetName() != "kvactor_stage_duration_seconds" {
				continue
			}
			for _, m := range f.GetMetric() {
				if strings.Contains(m.String(), `value:"`+stage+`"`) {
					return m.GetHistogram().GetSampleSum()
				}
			}
		}
		return 0
	}
	assert.InDelta(t, 60, sum("queue"), 1e-6)
	assert.InDelta(t, 420, sum("wait"), 1e-6)
	assert.GreaterOrEqual(t, sum("match"), 120+3000.0, "twice in it, the second time until now")
}

// A call that is observed allocates nothing, but for those that are refused.
func TestObservingAllocatesNothing(t *testing.T) {
	c := New(Options{Model: "m"})
	request := &messages.Append{Steps: make([]messages.AppendStep, 64),
		Results: make([]messages.StepResult, 64)}
	began := time.Now()
	c.Observe(t.Context(), request, began, nil)
	// Histograms make new native buckets now and then.
	assert.Less(t, testing.AllocsPerRun(1000, func() { c.Observe(t.Context(), request, began, nil) }),
		1.0)
}

func BenchmarkObserve(b *testing.B) {
	c := New(Options{Model: "m"})
	request := &messages.Append{}
	b.ReportAllocs()
	for b.Loop() {
		c.Observe(b.Context(), request, time.Now(), nil)
	}
}
