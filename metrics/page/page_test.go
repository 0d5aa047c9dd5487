package page

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine answers with fixed numbers, or an error.
type engine struct{ err error }

func (e engine) Stats(context.Context) (messages.Stats, error) {
	return messages.Stats{
		Requests: 1234, PromptTokens: 80000, ReusedTokens: 60000, Sequences: 7, Restarts: 2,
		Pools: []messages.PoolStats{{
			Name: "wfullh8", Primary: messages.PageCounts{Total: 1_000_000, Used: 400_000, Cached: 500_000, Free: 100_000},
			Secondary:    messages.PageCounts{Total: 50, Cached: 20, Free: 30},
			PoolCounters: messages.PoolCounters{Evicted: 31, Offloaded: 21, Onboarded: 11, Dropped: 5},
		}},
	}, e.err
}

// serve serves a page and returns its address.
func serve(t *testing.T, e engine) string {
	text := func(s string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) })
	}
	p := New(Options{Title: "m", Source: e, Pools: []windows.Pool{{Name: "wfullh8"}}, Metrics: text("metrics"), Events: text("events")})
	at, stop, err := Serve("127.0.0.1:0", p)
	require.NoError(t, err)
	t.Cleanup(stop)
	return "http://" + at.String()
}

func get(t *testing.T, url string) (status int, body string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(text)
}

func TestWhatIsServed(t *testing.T) {
	at := serve(t, engine{})
	for path, want := range map[string]string{"/": "<!doctype html>", "/metrics": "metrics", "/events": "events", "/healthz": "ok", "/stats": `"requests":1234`} {
		status, body := get(t, at+path)
		assert.Equal(t, http.StatusOK, status, path)
		assert.Contains(t, body, want, path)
	}
	status, _ := get(t, at+"/other")
	assert.Equal(t, http.StatusNotFound, status)
}

// The page has nothing from elsewhere.
func TestThePageIsWhole(t *testing.T) {
	assert.NotContains(t, string(indexHTML), "http:")
	assert.NotContains(t, string(indexHTML), "https:")
	assert.NotContains(t, string(indexHTML), "src=")
}

func TestAnEngineThatDoesNotAnswer(t *testing.T) {
	at := serve(t, engine{errors.New("down")})
	for _, path := range []string{"/healthz", "/stats"} {
		status, body := get(t, at+path)
		assert.Equal(t, http.StatusServiceUnavailable, status)
		assert.NotContains(t, body, "down", "errors are not for strangers")
	}
	status, body := get(t, at+"/live")
	assert.Equal(t, http.StatusOK, status)
	assert.Empty(t, body)
}

// The stream has the numbers again and again, for so many readers and no more.
func TestLive(t *testing.T) {
	at := serve(t, engine{})
	r, err := http.Get(at + "/live")
	require.NoError(t, err)
	lines := bufio.NewReader(r.Body)
	for range 2 {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		var a Answer
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &a))
		assert.Equal(t, int64(1234), a.Requests)
		assert.Equal(t, Pages{400_000, 500_000, 100_000}, a.Pools[0].Primary)
		_, err = lines.ReadString('\n')
		require.NoError(t, err)
	}
	require.NoError(t, r.Body.Close())
	p := New(Options{Source: engine{}})
	p.readers = maxReaders
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/live", nil))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
}

// A port alone is one of the loopback interface.
func TestServeListensOnLoopback(t *testing.T) {
	at, stop, err := Serve(":0", http.NotFoundHandler())
	require.NoError(t, err)
	defer stop()
	assert.True(t, strings.HasPrefix(at.String(), "127.0.0.1:"), at)
	_, _, err = Serve("nonsense", nil)
	require.Error(t, err)
}

// A browser loads the page without an error and shows the numbers of /stats.
func TestInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes some seconds")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium on this machine")
	}
	at := serve(t, engine{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir="+t.TempDir(),
		"--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom", at+"/?still")
	var log strings.Builder
	c.Stderr = &log
	dom, err := c.Output()
	if err != nil {
		t.Skipf("chromium does not run here: %v", err)
	}
	assert.NotContains(t, log.String(), "CONSOLE")
	for _, want := range []string{
		`id="title">kvactor: m<`, `id="state">live<`, `id="hit-rate">75.0 %<`, `id="requests">1,234<`, `id="sequences">7<`,
		`id="prompt-tokens">80,000<`, `id="reused-tokens">60,000<`, `id="restarts">2<`, `id="pool-wfullh8"`, `>used 400,000<`, `>cached 500,000<`,
		`<td>evicted</td><td>31</td>`, `<td>onboarded</td><td>11</td>`,
	} {
		assert.Contains(t, string(dom), want)
	}
}
