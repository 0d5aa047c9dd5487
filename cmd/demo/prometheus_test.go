package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// server is a Prometheus that scrapes a demo.
type server struct {
	t  *testing.T
	at string
}

// startPrometheus starts Debian's Prometheus on a demo; the test is skipped where there is
// none.
func startPrometheus(t *testing.T, target string) *server {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("no prometheus on this machine")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil,
		"global: {scrape_interval: 500ms, scrape_timeout: 500ms}\nscrape_configs: [{job_name: kvactor, static_configs: [{targets: [%q]}]}]\n", target), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at := l.Addr().String()
	require.NoError(t, l.Close())
	c := exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+at, "--log.level=error")
	var log strings.Builder
	c.Stderr = &log
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		assert.NoError(t, c.Process.Signal(os.Interrupt))
		assert.NoError(t, c.Wait(), log.String())
	})
	p := &server{t, "http://" + at}
	require.Eventually(t, func() bool {
		r, err := http.Get(p.at + "/-/ready")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	}, time.Minute, 10*time.Millisecond)
	return p
}

// query returns the values of an instant query that are numbers.
func (p *server) query(expr string) (values []float64) {
	r, err := http.Get(p.at + "/api/v1/query?query=" + url.QueryEscape(expr))
	require.NoError(p.t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(p.t, err)
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Value [2]any }
		}
	}
	require.NoError(p.t, json.Unmarshal(text, &answer), string(text))
	require.Equal(p.t, "success", answer.Status, "%s: %s", expr, answer.Error)
	for _, x := range answer.Data.Result {
		v, err := strconv.ParseFloat(x.Value[1].(string), 64)
		require.NoError(p.t, err)
		if !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return values
}

// board lists the queries of the board in docs, by panel, for one model.
func board(t *testing.T, model string) map[string][]string {
	text, err := os.ReadFile("../../docs/grafana/kvactor.json")
	require.NoError(t, err)
	var b struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &b))
	list := map[string][]string{}
	fill := strings.NewReplacer("$model_name", model, "$engine", ".*", "$__rate_interval", "20s")
	for _, p := range b.Panels {
		for _, q := range p.Targets {
			list[p.Title] = append(list[p.Title], fill.Replace(q.Expr))
		}
	}
	return list
}

// A Prometheus server scrapes a running demo: its own query returns the hit rate that the
// demo has, and each query of the board returns something.
func TestPrometheusScrapesTheDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("a Prometheus takes some seconds")
	}
	at, stop, errs := startServe(t, "--max-len", "128", "--pages", "12", "--host-pages", "6")
	root := strings.TrimSuffix(at, "/v1")
	p := startPrometheus(t, strings.TrimPrefix(root, "http://"))
	missing := board(t, "kvactor-tiny")
	require.Greater(t, len(missing), 10)
	deadline := time.Now().Add(2 * time.Minute)
	for n := 0; len(missing) > 0 && time.Now().Before(deadline); n++ {
		// Each prompt is asked twice; others evict it, and it comes back from host memory.
		prompt := strings.Repeat(string(rune('a'+n/2%5)), 80)
		status, text := fetch(t, http.MethodPost, at+"/completions", `{"model":"kvactor-tiny","max_tokens":4,"prompt":"`+prompt+`"}`)
		require.Equal(t, http.StatusOK, status, text)
		for title, queries := range missing {
			if returns(p, queries) {
				delete(missing, title)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	assert.Empty(t, missing, "queries of the board that return nothing")

	_, text := fetch(t, http.MethodGet, root+"/stats", "")
	var stats struct {
		Prompt float64 `json:"prompt_tokens"`
		Reused float64 `json:"reused_tokens"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &stats))
	require.Positive(t, stats.Reused)
	assert.Eventually(t, func() bool {
		rate := p.query("sum(kvactor_reused_tokens_total) / sum(kvactor_prompt_tokens_total)")
		return len(rate) == 1 && math.Abs(rate[0]-stats.Reused/stats.Prompt) < 1e-12
	}, time.Minute, 50*time.Millisecond, "the hit rate is %v", stats.Reused/stats.Prompt)
	http.DefaultClient.CloseIdleConnections()
	assert.Zero(t, stop(), errs.text())
}

// returns tells whether each query returns a number.
func returns(p *server, queries []string) bool {
	for _, q := range queries {
		if len(p.query(q)) == 0 {
			return false
		}
	}
	return true
}

// promtool finds nothing wrong with what the demo exports under its own names.
func TestPromtool(t *testing.T) {
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool on this machine")
	}
	at, stop, errs := startServe(t, "--max-len", "128")
	_, text := fetch(t, http.MethodGet, strings.TrimSuffix(at, "/v1")+"/metrics", "")
	c := exec.Command(program, "check", "metrics")
	c.Stdin = strings.NewReader(text)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Empty(t, string(out))
	http.DefaultClient.CloseIdleConnections()
	assert.Zero(t, stop(), errs.text())
}
