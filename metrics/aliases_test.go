package metrics

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// preempted is a host that tells of preemptions.
func preempted() int64 { return 2 }

const allAliases = AliasVLLM | AliasVLLMLegacy | AliasTensorRTLLM

// Boards and gateways find the names of other engines, with the same numbers.
func TestAliases(t *testing.T) {
	c := served(t, Options{Model: "m", Aliases: allAliases, Waiting: func() int { return 3 },
		Preemptions: preempted, Generated: preempted})
	hits := value(t, c, "vllm:prefix_cache_hits_total", "m", "0") +
		value(t, c, "vllm:external_prefix_cache_hits_total")
	assert.InDelta(t, value(t, c, "kvactor_reused_tokens_total"), hits, 1e-9)
	assert.InDelta(t, 85, value(t, c, "vllm:prefix_cache_queries_total"), 1e-9)
	sources := 0.0
	for _, source := range []string{"local_compute", "local_cache_hit", "external_kv_transfer"} {
		sources += value(t, c, "vllm:prompt_tokens_by_source_total", source)
	}
	assert.InDelta(t, 85, sources, 1e-9, "each prompt token has one source")
	assert.InDelta(t, hits, value(t, c, "vllm:prompt_tokens_cached_by_source_total", "device")+
		value(t, c, "vllm:prompt_tokens_cached_by_source_total", "host"), 1e-9)
	assert.InDelta(t, value(t, c, "kvactor_offloaded_bytes_total", "w8h1")+
		value(t, c, "kvactor_offloaded_bytes_total", "wfullh1"),
		value(t, c, "vllm:kv_offload_store_bytes_total"), 1e-9)
	assert.InDelta(t, value(t, c, "trtllm_kv_cache_onboard_bytes_total"),
		value(t, c, "vllm:kv_offload_load_bytes_total"), 1e-9)
	assert.InDelta(t, hits, value(t, c, "trtllm_prompt_cached_tokens_total"), 1e-9)
	assert.InDelta(t, 1, value(t, c, "vllm:cache_config_info", "4", "6", "8", "True"), 1e-9)
	assert.InDelta(t, value(t, c, "vllm:kv_cache_usage_perc"),
		value(t, c, "vllm:gpu_cache_usage_perc"), 1e-9)
	reused, missed := value(t, c, "trtllm_kv_cache_reused_blocks_total"),
		value(t, c, "trtllm_kv_cache_missed_blocks_total")
	assert.InDelta(t, reused/(reused+missed), value(t, c, "trtllm_kv_cache_hit_rate", "kvactor"), 1e-9)
	assert.InDelta(t, reused, value(t, c, "trtllm_kv_cache_iter_full_reused_blocks_total")+
		value(t, c, "trtllm_kv_cache_iter_partial_reused_blocks_total"), 1e-9)
	assert.InDelta(t, hits, value(t, c, "trtllm_prompt_cache_hit_tokens_total", "0", "gpu")+
		value(t, c, "trtllm_prompt_cache_hit_tokens_total", "1", "host"), 1e-9)
	assert.InDelta(t, 1, value(t, c, "trtllm_kv_cache_config_info", "4", "True", "0.9", "float16"),
		1e-9)
	assert.InDelta(t, 3, value(t, c, "vllm:num_requests_waiting"), 1e-9)
	assert.InDelta(t, 2, value(t, c, "vllm:num_preemptions_total"), 1e-9)
	assert.NotContains(t, exported(t, served(t, Options{Model: "m", Aliases: allAliases})),
		"vllm:num_preemptions_total", "the host does not tell")
	assert.InDelta(t, 3, value(t, c, "vllm:num_requests_waiting_by_reason", "capacity"), 1e-9)
	assert.InDelta(t, .05, value(t, c, "vllm:kv_offload_store_time_total"), 1e-9)
	assert.InDelta(t, 2e6, value(t, c, "vllm:kv_offload_total_bytes_total", "CPU_to_GPU"), 1e-9)
	assert.InDelta(t, 6, value(t, c, "trtllm_kv_cache_max_blocks"), 1e-9)
	assert.InDelta(t, 4, value(t, c, "trtllm_kv_cache_tokens_per_block"), 1e-9)
	assert.InDelta(t, value(t, c, "kvactor_page_lifetime_seconds", "w8h1")+
		value(t, c, "kvactor_page_lifetime_seconds", "wfullh1"),
		value(t, c, "vllm:kv_block_lifetime_seconds"), 1e-9)
	for _, name := range exported(t, served(t, Options{Model: "m"})) {
		assert.True(t, strings.HasPrefix(name, "kvactor_"), "%s is exported, but not asked for", name)
	}
}

// Each query of the boards in docs/grafana, and each name in docs/observability.md, is
// of a metric that is exported.
func TestTheBoardQueriesWhatIsExported(t *testing.T) {
	c := served(t, Options{Model: "m", Aliases: allAliases, Preemptions: preempted,
		Generated: preempted})
	names := map[string]bool{}
	for _, n := range exported(t, c) {
		names[n] = true
	}
	boards, err := filepath.Glob("../docs/grafana/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, boards)
	for _, file := range append(boards, "../docs/observability.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		text, _, _ = bytes.Cut(text, []byte("### What is absent"))
		found := regexp.MustCompile(`\b(kvactor_|vllm:|trtllm_)[a-z][a-z_]*[a-z]\b`).FindAllString(
			string(text), -1)
		require.Greater(t, len(found), 10, file)
		for _, name := range found {
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"),
				"_count")
			assert.True(t, names[name], "%s queries %s, which is not exported", file, name)
		}
	}
}

// listed reads a list of another engine's metrics: by name, type and labels.
func listed(t *testing.T, file string) map[string][2]string {
	text, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	list := map[string][2]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); !strings.HasPrefix(line, "#") {
			require.Len(t, f, 3, line)
			list[f[0]] = [2]string{f[1], f[2]}
		}
	}
	require.Greater(t, len(list), 60)
	return list
}

// absent reads the names, some of which end with *, of the first column of the table of docs
// that says which metrics of an engine are not exported.
func absent(t *testing.T, prefix string) (names []string) {
	text, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "### What is absent")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n## ")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		assert.Greater(t, len(strings.TrimSpace(cells[2])), 20, "no reason: %s", line)
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			if strings.HasPrefix(quoted[1], prefix) {
				names = append(names, quoted[1])
			}
		}
	}
	return names
}

// shape is what a metric has beside its values.
type shape struct {
	kind   string
	labels []string
}

// Each metric of the other engines is exported, with its type and labels, or docs say in one
// place why it is not.
func TestAliasesAreCompleteOrExplained(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t,
		registry.Register(
			served(t, Options{Model: "m", Aliases: allAliases, Preemptions: preempted,
				Generated: preempted})))
	families, err := registry.Gather()
	require.NoError(t, err)
	here := map[string]shape{}
	for _, f := range families {
		x := shape{kind: strings.ToLower(f.GetType().String())}
		for _, l := range f.GetMetric()[0].GetLabel() {
			x.labels = append(x.labels, l.GetName())
		}
		here[f.GetName()] = x
	}
	for prefix, file := range map[string]string{"vllm:": "vllm-0.33.0.txt",
		"trtllm_": "trtllm-1.3.txt"} {
		list, missing := listed(t, file), absent(t, prefix)
		used := map[string]bool{}
		for name, row := range list {
			var said []string
			for _, pattern := range missing {
				if start, family := strings.CutSuffix(pattern, "*"); pattern == name ||
					family && strings.HasPrefix(name, start) {
					said = append(said, pattern)
					used[pattern] = true
				}
			}
			x, exported := here[name]
			if !exported {
				assert.Len(t, said, 1, "%s is not exported, and docs do not say why, or say it twice", name)
				continue
			}
			assert.Empty(t, said, "%s is exported, though docs say that it is absent", name)
			assert.Equal(t, row[0], x.kind, name)
			if row[1] != "-" {
				assert.ElementsMatch(t, strings.Split(row[1], ","), x.labels, name)
			}
		}
		for _, pattern := range missing {
			assert.True(t, used[pattern], "docs say that %s is absent, which is no metric of that engine",
				pattern)
		}
		for name := range here {
			if strings.HasPrefix(name, prefix) && name != "vllm:gpu_cache_usage_perc" { // of versions before
				assert.Contains(t, list, name, "no metric of that engine")
			}
		}
	}
}

// Appended tokens are those that were not taken back, and never fall.
func TestAppendedTokensNeverFall(t *testing.T) {
	c := New(Options{Model: "m", Aliases: allAliases})
	for _, row := range [][2]int64{{5, 5}, {1, 5}, {6, 6}} {
		c.Attach(counted(inspect.Stats{AppendedTokens: row[0], Pools: make([]inspect.PoolStats, 1)}), nil)
		assert.InDelta(t, row[1], value(t, c, "kvactor_appended_tokens_total"), 0)
	}
}

// Only the host knows what it has generated: the engine learns of no answer's last token.
func TestGeneratedTokensAreTheHosts(t *testing.T) {
	names := []string{"kvactor_generated_tokens_total", "vllm:generation_tokens_total",
		"trtllm_generation_tokens_total"}
	o := Options{Model: "m", Aliases: allAliases}
	for _, name := range exported(t, served(t, o)) {
		assert.NotContains(t, names, name)
	}
	o.Generated = func() int64 { return 7 }
	for _, name := range names {
		assert.InDelta(t, 7, value(t, served(t, o), name), 0)
	}
}

// counted is an engine with some counters.
type counted inspect.Stats

func (s counted) Stats(context.Context) (inspect.Stats, error) { return inspect.Stats(s), nil }

// An admission that is refused as a whole counts each of its requests.
func TestAdmissionsRefusedAsAWhole(t *testing.T) {
	c := New(Options{Model: "m"})
	c.Observe(t.Context(), &messages.Admit{Requests: make([]messages.AdmitRequest, 3)}, time.Now(),
		messages.ErrBusy)
	assert.InDelta(t, 3, value(t, c, "kvactor_admissions_total", "busy"), 0)
	assert.InDelta(t, 1, value(t, c, "kvactor_call_refusals_total", "busy"), 0)
}

// A device that tells nothing of its copies has no metrics of them, rather than zeros.
func TestNoCopyIsInvented(t *testing.T) {
	c := New(Options{Model: "m", Aliases: allAliases})
	c.Copied("copy", time.Second, 1)
	for _, name := range exported(t, c) {
		assert.NotContains(t, name, "kv_offload")
	}
}
