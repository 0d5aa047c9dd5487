package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fetch reads an address.
func fetch(t *testing.T, method, url, body string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(all)
}

// Beside the API demo serve has a page, metrics, events and profiles; prompts are looked up
// as the model's tokens.
func TestServeIsWatched(t *testing.T) {
	url, stop, errs := startServe(t, "--max-len", "512", "--pprof", "--aliases", "vllm,trtllm",
		"--events", "tcp://127.0.0.1:0", "--store", "file://"+t.TempDir())
	root := strings.TrimSuffix(url, "/v1")
	const prompt = "The quick brown fox jumps over the lazy dog, and then it sits down to rest for quite a while."
	status, text := fetch(t, http.MethodPost, url+"/completions",
		`{"model":"kvactor-tiny","max_tokens":2,"prompt":"`+prompt+`"}`)
	require.Equal(t, http.StatusOK, status, text)
	for path, want := range map[string]string{
		"/": "<!doctype html>", "/page.js": "use strict", "/stats": `"title":"kvactor-tiny"`,
		"/healthz": `"ok"`, "/metrics": "vllm:kv_cache_usage_perc",
		"/debug/pprof/goroutine?debug=1": "goroutine profile", "/server_info": `"publisher":"zmq"`,
	} {
		status, text := fetch(t, http.MethodGet, root+path, "")
		assert.Equal(t, http.StatusOK, status, path)
		assert.Contains(t, text, want, path)
	}
	// the last block is stored at the release, which comes behind the answer
	assert.Eventually(t, func() bool {
		status, text = fetch(t, http.MethodPost, root+"/lookup", `{"prompt":"`+prompt+`"}`)
		return status == http.StatusOK && strings.Contains(text, `"matched":45`)
	}, time.Minute, time.Millisecond)
	status, text = fetch(t, http.MethodGet, root+"/nowhere", "")
	assert.Equal(t, http.StatusNotFound, status)
	assert.Contains(t, text, "invalid_request_error", "other paths are the API's")

	// A reader of a stream does not keep the server from stopping.
	stream, err := http.Get(root + "/live")
	require.NoError(t, err)
	defer stream.Body.Close()
	events, err := http.Get(root + "/events")
	require.NoError(t, err)
	defer events.Body.Close()
	first := make([]byte, 4000)
	n, err := events.Body.Read(first)
	require.NoError(t, err)
	assert.NotContains(t, string(first[:n]), "tokens", "they are not told without --show-tokens")
	assert.Zero(t, stop(), errs.text())
	http.DefaultClient.CloseIdleConnections()
}

// What no one has asked for is not there.
func TestServeHidesWhatIsNotAskedFor(t *testing.T) {
	url, stop, errs := startServe(t, "--max-len", "512", "--no-lookup")
	root := strings.TrimSuffix(url, "/v1")
	for _, path := range []string{"/debug/pprof/", "/lookup"} {
		status, _ := fetch(t, http.MethodGet, root+path, "")
		assert.Equal(t, http.StatusNotFound, status, path)
	}
	_, text := fetch(t, http.MethodGet, root+"/metrics", "")
	assert.NotContains(t, text, "vllm:")
	r, err := http.NewRequest(http.MethodGet, root+"/stats", nil)
	require.NoError(t, err)
	r.Host = "page.example"
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Equal(t, http.StatusMisdirectedRequest, answer.StatusCode)
	http.DefaultClient.CloseIdleConnections()
	assert.Zero(t, stop(), errs.text())
}

func TestWatchFlagsMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		"want vllm or trtllm": {"serve", "--model", "tiny", "--aliases", "sglang"},
		"--events":            {"serve", "--model", "tiny", "--events", "udp://x"},
		"kv_events_config":    {"serve", "--model", "tiny", "--events", `{"topics": 1}`},
		"missing port":        {"--serve", "nowhere"},
		"--store":             {"serve", "--model", "tiny", "--store", "nonsense://"},
	} {
		status, _, errs := command(t, "", args...)
		assert.Equal(t, 2, status, want)
		assert.Contains(t, errs, want)
	}
}

// The conversations of the demo can be watched.
func TestConverseServes(t *testing.T) {
	status, _, errs := command(t, "", "--serve", "127.0.0.1:0", "--conversations", "3", "--chats", "0",
		"--hosts", "1")
	assert.Zero(t, status, errs)
	assert.Contains(t, errs, "watch at http://127.0.0.1:")
}
