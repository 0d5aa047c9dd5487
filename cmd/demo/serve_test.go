package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/windows"
)

// notes is a writer that tests wait for.
type notes struct {
	sync.Mutex
	bytes.Buffer
}

func (n *notes) Write(b []byte) (int, error) {
	n.Lock()
	defer n.Unlock()
	return n.Buffer.Write(b)
}

func (n *notes) text() string {
	n.Lock()
	defer n.Unlock()
	return n.String()
}

// startServe runs demo serve and gives its address and what ends it.
func startServe(t *testing.T, args ...string) (url string, stop func() int, errs *notes) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	errs = &notes{}
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0", "--model", "tiny"},
			args...), strings.NewReader(""), io.Discard, errs)
	}()
	address := regexp.MustCompile(`http://\S+`)
	require.Eventually(t, func() bool { return address.MatchString(errs.text()) }, time.Minute,
		time.Millisecond, "%s", errs)
	stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { stop() })
	return address.FindString(errs.text()), stop, errs
}

func TestServe(t *testing.T) {
	url, stop, errs := startServe(t, "--draft", "4", "--max-len", "512")
	answer, err := http.Post(url+"/chat/completions", "",
		strings.NewReader(
			`{"model":"kvactor-tiny","temperature":0,"messages":[{"role":"user","content":"My name is Anna."}]}`))
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Equal(t, 200, answer.StatusCode)
	assert.Contains(t, string(text), "Hello Anna!")
	http.DefaultClient.CloseIdleConnections()
	assert.Zero(t, stop(), errs.text())
}

// An address without a host is on the loopback interface, not on all of them.
func TestServeListensLocally(t *testing.T) {
	url, stop, errs := startServe(t, "--listen", ":0", "--max-len", "64")
	assert.Contains(t, url, "http://127.0.0.1:")
	assert.Zero(t, stop(), errs.text())
}

// A model with recurrent layers is served with reuse, choices and drafts.
func TestServeRecurrent(t *testing.T) {
	folder := chatFolder(t, recurrentFolder)
	url, stop, errs := startServe(t, "--model", folder, "--draft", "4", "--max-len", "256",
		"--tokens-per-block", "4", "--chunk", "8")
	ask := func() (answer struct {
		Choices []struct{ Text string }
		Usage   struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}) {
		body := `{"model":"` + filepath.Base(folder) +
			`","temperature":0,"n":3,"max_tokens":12,"prompt":"ab ab ab ab ab ab"}`
		r, err := http.Post(url+"/completions", "", strings.NewReader(body))
		require.NoError(t, err)
		require.Equal(t, 200, r.StatusCode)
		require.NoError(t, json.NewDecoder(r.Body).Decode(&answer))
		require.NoError(t, r.Body.Close())
		return answer
	}
	first, second := ask(), ask()
	assert.Len(t, first.Choices, 3)
	assert.Equal(t, first.Choices, second.Choices)
	assert.Zero(t, first.Usage.Details.Cached)
	assert.Equal(t, 16, second.Usage.Details.Cached)
	http.DefaultClient.CloseIdleConnections()
	assert.Zero(t, stop(), errs.text())
}

// A request that runs when the server is stopped is served; one that takes longer than
// the grace is told.
func TestServeStops(t *testing.T) {
	for _, c := range []struct{ grace, tokens, want string }{{"5m", "300", "[DONE]"},
		{"0s", "4000", "stopping"}} {
		url, stop, errs := startServe(t, "--grace", c.grace)
		answer, err := http.Post(url+"/completions", "",
			strings.NewReader(`{"model":"kvactor-tiny","prompt":"a","stream":true,"max_tokens":`+c.tokens+
				`}`))
		require.NoError(t, err)
		first := make([]byte, 1)
		_, err = io.ReadFull(answer.Body, first)
		require.NoError(t, err)
		ended := make(chan int, 1)
		go func() { ended <- stop() }()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Contains(t, string(text), c.want)
		http.DefaultClient.CloseIdleConnections()
		assert.Zero(t, <-ended, errs.text())
	}
}

// reply is what an answer says beside its text.
type reply struct {
	StatusCode int
	Header     http.Header
}

// While what runs ends, the listener is open and everyone else is told to come again.
func TestServeDrains(t *testing.T) {
	url, stop, errs := startServe(t, "--grace", "5m")
	kept := &http.Client{Transport: &http.Transport{}}
	ask := func(c *http.Client, path string) reply {
		var answer *http.Response
		var err error
		if path == "/completions" {
			answer, err = c.Post(url+path, "",
				strings.NewReader(`{"model":"kvactor-tiny","prompt":"a","max_tokens":1}`))
		} else {
			answer, err = c.Get(strings.TrimSuffix(url, "/v1") + path)
		}
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return reply{answer.StatusCode, answer.Header}
	}
	require.Equal(t, 200, ask(kept, "/health").StatusCode)
	long, err := http.Post(url+"/completions", "",
		strings.NewReader(
			`{"model":"kvactor-tiny","prompt":"a","stream":true,"max_tokens":2000,"ignore_eos":true}`))
	require.NoError(t, err)
	ended := make(chan int, 1)
	go func() { ended <- stop() }()
	require.Eventually(t, func() bool { return strings.Contains(errs.text(), "stopping") },
		time.Minute, time.Millisecond)
	require.Eventually(t,
		func() bool { return ask(kept, "/health").StatusCode == http.StatusServiceUnavailable },
		time.Minute, time.Millisecond)
	for _, c := range []*http.Client{kept, {Transport: &http.Transport{}}} {
		answer := ask(c, "/completions")
		assert.Equal(t, 503, answer.StatusCode)
		assert.Equal(t, "1", answer.Header.Get("Retry-After"))
		c.CloseIdleConnections()
	}
	text, err := io.ReadAll(long.Body)
	require.NoError(t, err)
	require.NoError(t, long.Body.Close())
	assert.Contains(t, string(text), "[DONE]")
	http.DefaultClient.CloseIdleConnections()
	assert.Zero(t, <-ended, errs.text())
	assert.Contains(t, errs.text(), "stopped")
	_, err = net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/v1"))
	assert.Error(t, err, "the listener is closed")
}

// A visitor who types the beginning of a chat finds it.
func TestServeFindsChats(t *testing.T) {
	url, stop, errs := startServe(t, "--max-len", "256")
	said := "My name is Anna and I live in Paris and my dog is called Rex. What is my name?"
	post := func(path, body string) string {
		answer, err := http.Post(strings.TrimSuffix(url, "/v1")+path, "", strings.NewReader(body))
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return string(text)
	}
	post("/v1/chat/completions", `{"model":"kvactor-tiny","messages":[{"role":"user","content":"`+said+
		`"}]}`)
	found := post("/lookup", `{"prompt":"`+said[:60]+`"}`)
	assert.Contains(t, found, `"chat":true`)
	assert.NotContains(t, found, `"matched":0`)
	http.DefaultClient.CloseIdleConnections()
	assert.Zero(t, stop(), errs.text())
}

// On the loopback interface the API takes no request that a page of the web could send under a
// name of its own, CORS needs a flag, and so does a reset.
func TestServeDoors(t *testing.T) {
	body := `{"model":"kvactor-tiny","prompt":"My name is Anna and I live in Rome.","max_tokens":1}`
	send := func(url, method, path, host, origin string) (reply, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSuffix(url, "/v1")+path,
			strings.NewReader(body))
		require.NoError(t, err)
		if host != "" {
			r.Host = host
		}
		if origin != "" {
			r.Header.Set("Origin", origin)
			r.Header.Set("Access-Control-Request-Method", "POST")
			r.Header.Set("Access-Control-Request-Headers", "content-type")
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return reply{answer.StatusCode, answer.Header}, string(text)
	}
	url, stop, errs := startServe(t, "--max-len", "128")
	for path, status := range map[string]int{"/v1/completions": 421, "/tokenize": 421} {
		answer, _ := send(url, "POST", path, "evil.com", "")
		assert.Equal(t, status, answer.StatusCode)
	}
	answer, _ := send(url, "OPTIONS", "/v1/completions", "", "http://a.b")
	assert.Empty(t, answer.Header.Get("Access-Control-Allow-Origin"))
	for _, path := range []string{"/reset_prefix_cache", "/invalidate_prefix_cache", "/set_weights"} {
		answer, _ = send(url, "POST", path, "", "")
		assert.Equal(t, 404, answer.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
	assert.Zero(t, stop(), errs.text())

	url, stop, errs = startServe(t, "--max-len", "128", "--allowed-origins", "http://a.b",
		"--allow-reset")
	answer, _ = send(url, "OPTIONS", "/v1/completions", "", "http://a.b")
	assert.Equal(t, 204, answer.StatusCode)
	assert.Equal(t, "http://a.b", answer.Header.Get("Access-Control-Allow-Origin"))
	assert.Equal(t, "content-type", answer.Header.Get("Access-Control-Allow-Headers"))
	answer, _ = send(url, "OPTIONS", "/v1/completions", "", "http://c.d")
	assert.Empty(t, answer.Header.Get("Access-Control-Allow-Origin"))
	for range 2 {
		answer, text := send(url, "POST", "/v1/completions", "", "http://a.b")
		assert.Equal(t, "http://a.b", answer.Header.Get("Access-Control-Allow-Origin"))
		assert.Contains(t, text, `"cached_tokens":0`)
		answer, _ = send(url, "POST", "/reset_prefix_cache?reset_running_requests=true", "", "")
		assert.Equal(t, 200, answer.StatusCode)
	}
	for query, want := range map[string]string{"reset_external=true": "not supported",
		"reset=1": "no such", "reset_external=x": "neither"} {
		answer, text := send(url, "POST", "/reset_prefix_cache?"+query, "", "")
		assert.Equal(t, 400, answer.StatusCode)
		assert.Contains(t, text, want)
	}
	http.DefaultClient.CloseIdleConnections()
	assert.Zero(t, stop(), errs.text())
}

// An operator forgets what a salt or an adapter has left, or all when the weights change, and an
// epoch that comes back finds in the store what it has left there.
func TestServeOperations(t *testing.T) {
	url, stop, errs := startServe(t, "--max-len", "128", "--allow-reset", "--store",
		"file://"+t.TempDir())
	post := func(path, body string) (int, string) {
		answer, err := http.Post(strings.TrimSuffix(url, "/v1")+path, "", strings.NewReader(body))
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode, string(text)
	}
	prompt := (*regulars)(nil).prompt(1, 0)
	cached := func(salt string) int {
		c := &seen{}
		body := map[string]any{"model": "kvactor-tiny", "prompt": prompt, "max_tokens": 1,
			"return_token_ids": true}
		if salt != "" {
			body["cache_salt"] = salt
		}
		c.complete(t, url, body)
		return c.cached
	}
	done := func(path, body, want string) {
		t.Helper()
		status, text := post(path, body)
		assert.Equal(t, 200, status, text)
		assert.JSONEq(t, want, text)
	}
	invalidate, weights := "/invalidate_prefix_cache", "/set_weights"
	assert.Zero(t, cached(""))
	assert.Zero(t, cached("tenant"))
	whole := cached("tenant")
	assert.Positive(t, whole)
	done(invalidate, `{"lora_name":"a"}`, `{"blocks":0}`)
	done(invalidate, `{"lora_name":"a","cache_salt":"tenant","model":"kvactor-tiny"}`, `{"blocks":0}`)
	status, text := post(invalidate, `{"cache_salt":"tenant"}`)
	assert.Equal(t, 200, status)
	m := settled(t, url)
	blocks := int(m.sum("kvactor_invalidated_blocks_total"))
	assert.Positive(t, blocks)
	assert.JSONEq(t, `{"blocks":`+strconv.Itoa(blocks)+`}`, text)
	assert.Equal(t, whole, cached(""), "what others left is there")

	saved := m.sum("kvactor_store_saved_objects_total")
	assert.Positive(t, saved)
	done(weights, `{"epoch":"2"}`, `{"epoch":"2"}`)
	assert.Zero(t, cached(""), "neither in memory nor in the store")
	settled(t, url)
	done(weights, `{"epoch":""}`, `{"epoch":""}`)
	assert.Positive(t, cached(""), "the store has what this epoch left")
	m = settled(t, url)
	assert.InDelta(t, 3, m.sum("kvactor_invalidations_total"), 0)
	assert.InDelta(t, 2, m.sum("kvactor_resets_total", "weights"), 0)
	assert.Positive(t, m.sum("kvactor_store_fetched_objects_total"))

	for _, c := range []struct{ path, body, want string }{
		{invalidate, `{}`, "lora_name"}, {invalidate, `{"cache_salt":""}`, "cache_salt"},
		{invalidate, `{"lora":"a"}`, "lora"},
		{invalidate, `{"lora_name":1}`, "lora_name"}, {weights, `{}`, "epoch"},
		{weights, `{"epoch":2}`, "epoch"},
		{weights, `{"epoch":"` + strings.Repeat("a", 2000) + `"}`, "2000 bytes"},
		{weights, `[]`, "it is a list, not an object"},
	} {
		status, text := post(c.path, c.body)
		assert.Equal(t, 400, status, c.body)
		assert.Contains(t, text, c.want)
	}
	http.DefaultClient.CloseIdleConnections()
	assert.Zero(t, stop(), errs.text())
}

// Clients that take turns with more than the cache holds reuse more with the policy that the log
// of the default one points at.
func TestServePolicy(t *testing.T) {
	if testing.Short() {
		t.Skip("576 requests")
	}
	cached := map[string]int{}
	for _, policy := range []string{windows.PriorityLRU, windows.Forecast} {
		url, stop, errs := startServe(t, "--max-len", "256", "--pages", "40", "--host-pages", "24",
			"--running", "4", "--policy", policy)
		clients, c := &regulars{answers: map[string]string{}}, &seen{}
		clients.visit(t, url, c, 24, 12)
		cached[policy] = c.cached
		http.DefaultClient.CloseIdleConnections()
		assert.Zero(t, stop(), errs.text())
		assert.Equal(t, policy == windows.PriorityLRU, strings.Contains(errs.text(),
			"eviction_policy forecast"), errs.text())
	}
	assert.Greater(t, cached[windows.Forecast], cached[windows.PriorityLRU])
}

func TestServeMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		"no such file":              {"serve", "--model", "none"},
		"--listen: ":                {"serve", "--model", "tiny", "--listen", "nowhere:99999"},
		"--running -1":              {"serve", "--model", "tiny", "--running", "-1"},
		"--waiting 0":               {"serve", "--model", "tiny", "--waiting", "0"},
		"--step-tokens 0":           {"serve", "--model", "tiny", "--step-tokens", "0"},
		"not a multiple":            {"serve", "--model", "tiny", "--chunk", "5"},
		"--timeout":                 {"serve", "--timeout", "0s"},
		"--dtype":                   {"serve", "--dtype", "int2"},
		"eviction_policy \"lru\"":   {"serve", "--model", "tiny", "--policy", "lru"},
		"unknown command \"hello\"": {"serve", "hello"},
	} {
		status, out, errs := command(t, "", args...)
		assert.Equal(t, 2, status, want)
		assert.Empty(t, out)
		assert.Contains(t, errs, want)
	}
}
