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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
		"global: {scrape_interval: 500ms, scrape_timeout: 500ms}\nscrape_configs: [{job_name: kvactor, "+
			"static_configs: [{targets: [%q]}]}]\n", target), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at := l.Addr().String()
	require.NoError(t, l.Close())
	c := exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+
		filepath.Join(dir, "data"), "--web.listen-address="+at, "--log.level=error")
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

// get asks for a query and decodes the answer.
func (p *server) get(path, expr string, answer any) {
	r, err := http.Get(p.at + "/api/v1/" + path + url.QueryEscape(expr))
	require.NoError(p.t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusOK, r.StatusCode, "%s: %s", expr, text)
	require.NoError(p.t, json.Unmarshal(text, answer), string(text))
}

// number is a value of an answer.
func number(t *testing.T, v any) float64 {
	n, err := strconv.ParseFloat(v.(string), 64)
	require.NoError(t, err)
	return n
}

// query returns the values of an instant query that are numbers.
func (p *server) query(expr string) (values []float64) {
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	p.get("query?query=", expr, &answer)
	for _, x := range answer.Data.Result {
		if v := number(p.t, x.Value[1]); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return values
}

// visitors ask a server for completions until they are stopped: each prompt is asked several
// times; others evict it, and it comes back from host memory.
func visitors(t *testing.T, at string, n, prompts int) (stop func()) {
	var over atomic.Bool
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			for turn := i; !over.Load(); turn++ {
				prompt := strings.Repeat(string(rune('a'+turn/2%prompts)), 70+turn/2*7%40)
				body := `{"model":"kvactor-tiny","max_tokens":4,"prompt":"` + prompt + `"}`
				r, err := http.Post(at+"/completions", "application/json", strings.NewReader(body))
				if !assert.NoError(t, err) {
					return
				}
				assert.Equal(t, http.StatusOK, r.StatusCode)
				_, err = io.Copy(io.Discard, r.Body)
				assert.NoError(t, err)
				assert.NoError(t, r.Body.Close())
				time.Sleep(time.Duration(20+turn%40) * time.Millisecond)
			}
		})
	}
	return sync.OnceFunc(func() { over.Store(true); group.Wait() })
}

// A Prometheus server scrapes a running demo: its own query returns the hit rate that the
// demo has, and each query of the board returns something. BOARD=folder draws the board there
// after two minutes.
func TestPrometheusScrapesTheDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("a Prometheus takes some seconds")
	}
	folder, n := os.Getenv("BOARD"), 1
	if folder != "" {
		n = 3 // times the visitors, their prompts and the pages
	}
	at, stop, errs := startServe(t, "--max-len", "128", "--pages", strconv.Itoa(24*n), "--host-pages",
		strconv.Itoa(12*n), "--store", "file://"+t.TempDir())
	root := strings.TrimSuffix(at, "/v1")
	p := startPrometheus(t, strings.TrimPrefix(root, "http://"))
	leave := visitors(t, at, 2*n, 5*n)
	defer leave()
	panels := board(t, "kvactor-tiny", "20s")
	require.Greater(t, len(panels), 10)
	missing := slices.Clone(panels)
	deadline := time.Now().Add(2 * time.Minute)
	for len(missing) > 0 && time.Now().Before(deadline) {
		missing = slices.DeleteFunc(missing, p.returns)
		time.Sleep(100 * time.Millisecond)
	}
	assert.Empty(t, missing, "panels of the board with a query that returns nothing")
	if folder != "" {
		time.Sleep(2 * time.Minute)
		p.writeBoard(panels, 2*time.Minute, folder)
	}
	leave()

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

// returns tells whether each query of a panel returns a number.
func (p *server) returns(of panel) bool {
	for _, q := range of.Targets {
		if len(p.query(q.Expr)) == 0 {
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
